//! Exact counts for the vocabularies that are public and built in.
//!
//! Text that looks like a special llm_token is plain text (B108); time is linear in the text whatever it is (B107).
//! The tables are large and load on first use: call [`Vocabulary::warm`] off the request path, and estimate until then.
//! Without the feature `exact` no family has a vocabulary, and everything is estimated.

use crate::family::Family;

/// A vocabulary that can count exactly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Vocabulary {
    O200k,
    Cl100k,
}

impl Vocabulary {
    /// The vocabulary of a family, if it is built in.
    pub fn of(family: Family) -> Option<Self> {
        if !cfg!(feature = "exact") {
            return None;
        }
        match family {
            Family::O200k => Some(Self::O200k),
            Family::Cl100k => Some(Self::Cl100k),
            Family::Qwen | Family::DeepSeek | Family::Claude | Family::ClaudeNew | Family::Unknown => None,
        }
    }

    /// Loads the tables; tens of milliseconds of CPU the first time.
    pub fn warm(self) {
        let _ = self.count("warm");
    }

    /// llm_tokens of one piece of text, about 40 ms per megabyte: large texts off the async workers.
    #[cfg(feature = "exact")]
    pub fn count(self, text: &str) -> u64 {
        let vocabulary = match self {
            Self::O200k => bpe_openai::o200k_base(),
            Self::Cl100k => bpe_openai::cl100k_base(),
        };
        u64::try_from(vocabulary.count(text)).unwrap_or(u64::MAX)
    }

    /// Without the feature no one has a vocabulary to ask; the byte count is the bound that always holds.
    #[cfg(not(feature = "exact"))]
    pub fn count(self, text: &str) -> u64 {
        u64::try_from(text.len()).unwrap_or(u64::MAX)
    }
}
