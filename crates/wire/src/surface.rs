//! The dialects that are spoken and the surfaces (routes with one shape each) that exist in them.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dialect {
    OpenAi,
    Anthropic,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Surface {
    /// `POST /v1/chat/completions`
    Chat,
    /// `POST /v1/messages`
    Messages,
}

impl Surface {
    pub fn dialect(self) -> Dialect {
        match self {
            Self::Chat => Dialect::OpenAi,
            Self::Messages => Dialect::Anthropic,
        }
    }
}
