//! The dialects that are spoken and the surfaces (routes with one shape each) that exist in them.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dialect {
    OpenAi,
    Anthropic,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Surface {
    /// `POST /v1/chat/completions`
    #[default]
    Chat,
    /// `POST /v1/responses`
    Responses,
    /// `POST /v1/completions`
    Completions,
    /// `POST /v1/embeddings`
    Embeddings,
    /// `POST /v1/messages`
    Messages,
}

impl Surface {
    pub const ALL: [Self; 5] =
        [Self::Chat, Self::Responses, Self::Completions, Self::Embeddings, Self::Messages];

    pub fn dialect(self) -> Dialect {
        match self {
            Self::Chat | Self::Responses | Self::Completions | Self::Embeddings => Dialect::OpenAi,
            Self::Messages => Dialect::Anthropic,
        }
    }

    /// Its name in configuration, metrics and documents.
    pub fn word(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Completions => "completions",
            Self::Embeddings => "embeddings",
            Self::Messages => "messages",
        }
    }

    /// A stream tells its usage only if `stream_options.include_usage` asks for it, in a chunk of its own.
    pub fn has_usage_option(self) -> bool {
        matches!(self, Self::Chat | Self::Completions)
    }

    /// The model writes something. Without, there is no cap, no stream and nothing to expect.
    pub fn has_output(self) -> bool {
        self != Self::Embeddings
    }
}

/// A set of surfaces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Surfaces(u8);

impl Surfaces {
    /// All that a dialect has.
    pub fn of(dialect: Dialect) -> Self {
        Surface::ALL.into_iter().filter(|surface| surface.dialect() == dialect).collect()
    }

    pub fn contains(self, surface: Surface) -> bool {
        self.0 & Self::bit(surface) != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = Surface> {
        Surface::ALL.into_iter().filter(move |surface| self.contains(*surface))
    }

    fn bit(surface: Surface) -> u8 {
        match surface {
            Surface::Chat => 1,
            Surface::Responses => 2,
            Surface::Completions => 4,
            Surface::Embeddings => 8,
            Surface::Messages => 16,
        }
    }
}

impl FromIterator<Surface> for Surfaces {
    fn from_iter<I: IntoIterator<Item = Surface>>(surfaces: I) -> Self {
        Self(surfaces.into_iter().fold(0, |set, surface| set | Self::bit(surface)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in() {
        for surface in Surface::ALL {
            let one: Surfaces = [surface].into_iter().collect();
            assert!(Surface::ALL.into_iter().all(|other| one.contains(other) == (other == surface)));
            assert!(Surfaces::of(surface.dialect()).contains(surface));
        }
        assert_eq!(Surfaces::of(Dialect::OpenAi).iter().count(), 4);
        assert!(Surfaces::default().is_empty());
    }
}
