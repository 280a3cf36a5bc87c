//! Tools that a provider runs itself, and may bill by the call: which a request offers, and how often an answer called
//! them.
//!
//! Web searches are counted by themselves (`Usage::web_searches`). What a client runs (functions, shells of its own, text
//! editors) is no hosted tool. A kind that is not known is `Other`, never nothing: it may have a fee.

/// A kind of hosted tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostedTool {
    CodeInterpreter,
    FileSearch,
    ImageGeneration,
    ComputerUse,
    Mcp,
    Other,
}

/// Types of tools that cost nothing but llm_tokens: a client runs them, or they only fetch.
const FREE: [&str; 12] = [
    "function",
    "custom",
    "namespace",
    "local_shell",
    "apply_patch",
    "tool_search",
    "web_search",
    "web_fetch",
    "bash_",
    "text_editor_",
    "memory_",
    "computer_2",
];

impl HostedTool {
    /// Every kind, by the name that price lists use.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::CodeInterpreter, "code_interpreter"),
        (Self::FileSearch, "file_search"),
        (Self::ImageGeneration, "image_generation"),
        (Self::ComputerUse, "computer_use"),
        (Self::Mcp, "mcp"),
        (Self::Other, "other"),
    ];

    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(this, _)| *this == self).map_or("other", |(_, name)| name)
    }

    /// The kind of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, this)| *this == name).map(|(this, _)| this)
    }

    /// What a tool of this `type` in a request is, if the provider runs it.
    pub(crate) fn offered(kind: &str) -> Option<Self> {
        if kind.is_empty() || FREE.iter().any(|free| kind.starts_with(free)) {
            return None;
        }
        Some(Self::known(kind).unwrap_or(Self::Other))
    }

    /// What an item of this `type` in an answer is, if it is the call of a hosted tool.
    pub(crate) fn called(kind: &str) -> Option<Self> {
        let tool = kind.strip_suffix("_call")?;
        if FREE.iter().any(|free| tool.starts_with(free)) {
            return None;
        }
        Some(Self::known(tool).unwrap_or(Self::Other))
    }

    fn known(kind: &str) -> Option<Self> {
        Some(match kind {
            _ if kind.starts_with("code_interpreter") || kind.starts_with("code_execution") => {
                Self::CodeInterpreter
            }
            _ if kind.starts_with("file_search") => Self::FileSearch,
            _ if kind.starts_with("image_generation") => Self::ImageGeneration,
            _ if kind.starts_with("computer") => Self::ComputerUse,
            _ if kind.starts_with("mcp") => Self::Mcp,
            _ => return None,
        })
    }

    fn bit(self) -> u8 {
        1 << (self as u8)
    }
}

/// The kinds that a request offers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostedTools(u8);

impl HostedTools {
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = HostedTool> {
        HostedTool::ALL.into_iter().map(|(tool, _)| tool).filter(move |tool| self.0 & tool.bit() != 0)
    }

    pub(crate) fn add(&mut self, tool: HostedTool) {
        self.0 |= tool.bit();
    }
}

impl FromIterator<HostedTool> for HostedTools {
    fn from_iter<I: IntoIterator<Item = HostedTool>>(tools: I) -> Self {
        let mut all = Self::default();
        tools.into_iter().for_each(|tool| all.add(tool));
        all
    }
}

/// How often each kind was called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostedCalls([u32; HostedTool::ALL.len()]);

impl HostedCalls {
    /// So many calls of each of these kinds.
    pub fn each(tools: HostedTools, calls: u32) -> Self {
        let mut out = Self::default();
        for tool in tools.iter() {
            out.add(tool, calls);
        }
        out
    }

    pub fn iter(&self) -> impl Iterator<Item = (HostedTool, u32)> {
        HostedTool::ALL.into_iter().map(|(tool, _)| tool).zip(self.0).filter(|(_, calls)| *calls > 0)
    }

    pub(crate) fn add(&mut self, tool: HostedTool, calls: u32) {
        if let Some(slot) = self.0.get_mut(usize::from(tool as u8)) {
            *slot = slot.saturating_add(calls);
        }
    }

    /// The larger count of each kind.
    pub(crate) fn max(self, other: Self) -> Self {
        let mut out = self;
        for (slot, more) in out.0.iter_mut().zip(other.0) {
            *slot = (*slot).max(more);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_one_name_and_one_place() {
        for (n, (tool, name)) in HostedTool::ALL.into_iter().enumerate() {
            assert_eq!(
                (usize::from(tool as u8), tool.name(), HostedTool::named(name)),
                (n, name, Some(tool))
            );
        }
        assert_eq!(HostedTool::named("web_search"), None);
        let mut calls = HostedCalls::default();
        calls.add(HostedTool::Other, u32::MAX);
        calls.add(HostedTool::Other, 1);
        assert_eq!(calls.iter().collect::<Vec<_>>(), [(HostedTool::Other, u32::MAX)]);
    }

    #[test]
    fn what_is_hosted_is_told_from_what_a_client_runs() {
        for (kind, tool) in [
            ("code_interpreter", Some(HostedTool::CodeInterpreter)),
            ("code_execution_20250825", Some(HostedTool::CodeInterpreter)),
            ("file_search", Some(HostedTool::FileSearch)),
            ("image_generation", Some(HostedTool::ImageGeneration)),
            ("computer_use_preview", Some(HostedTool::ComputerUse)),
            ("mcp", Some(HostedTool::Mcp)),
            ("mcp_toolset", Some(HostedTool::Mcp)),
            ("shell", Some(HostedTool::Other)),
            ("something_new", Some(HostedTool::Other)),
            ("function", None),
            ("custom", None),
            ("local_shell", None),
            ("web_search_preview_2025_03_11", None),
            ("bash_20250124", None),
            ("text_editor_20250728", None),
            ("computer_20250124", None),
            ("", None),
        ] {
            assert_eq!(HostedTool::offered(kind), tool, "{kind}");
        }
        for (kind, tool) in [
            ("code_interpreter_call", Some(HostedTool::CodeInterpreter)),
            ("computer_call", Some(HostedTool::ComputerUse)),
            ("shell_call", Some(HostedTool::Other)),
            ("function_call", None),
            ("custom_tool_call", None),
            ("web_search_call", None),
            ("local_shell_call", None),
            ("message", None),
            ("mcp_list_tools", None),
        ] {
            assert_eq!(HostedTool::called(kind), tool, "{kind}");
        }
    }
}
