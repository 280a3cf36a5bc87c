//! Exact counts by a `tokenizer.json` that the operator has, for families whose vocabulary is not built in.
//!
//! Bytes in: where the file lies is not known here. Text that looks like a special llm_token is plain text (B108), and
//! nothing is cut or filled up, whatever the file asks for: what is counted is the whole text. Slower than the built-in
//! vocabularies by about ten times, and code of others: callers run it off their workers and outlive its panics.
//! Without the feature `files` no file is taken.

/// Largest file that is read, bytes; the largest public ones have about 35 MB.
pub const TOKENIZER_BYTES_MAX: usize = 64 << 20;

/// A tokenizer read from its file.
pub struct Tokenizer {
    #[cfg(feature = "files")]
    inner: tokenizers::Tokenizer,
}

/// Why a file is not taken.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TokenizerError {
    #[error("is larger than {TOKENIZER_BYTES_MAX} bytes")]
    TooLarge,
    #[error("is no tokenizer.json: {0}")]
    Unreadable(String),
    #[error("counts nothing in a text: its vocabulary is empty or of another kind")]
    Blind,
    #[error("cannot be used: this program was built without tokenizers of files")]
    Unsupported,
}

impl Tokenizer {
    /// Reads a file's bytes: tens of milliseconds per megabyte.
    ///
    /// # Errors
    /// When they are no tokenizer, or one that finds nothing in a text.
    #[cfg(feature = "files")]
    pub fn parse(json: &[u8]) -> Result<Self, TokenizerError> {
        if json.len() > TOKENIZER_BYTES_MAX {
            return Err(TokenizerError::TooLarge);
        }
        let unreadable = |error: tokenizers::Error| TokenizerError::Unreadable(error.to_string());
        let mut inner = tokenizers::Tokenizer::from_bytes(json).map_err(unreadable)?;
        inner.with_padding(None);
        inner.with_truncation(None).map_err(unreadable)?;
        inner.set_encode_special_tokens(true);
        let tokenizer = Self { inner };
        if tokenizer.count("a").unwrap_or(0) == 0 {
            return Err(TokenizerError::Blind);
        }
        Ok(tokenizer)
    }

    /// No file is taken.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(feature = "files"))]
    pub fn parse(_: &[u8]) -> Result<Self, TokenizerError> {
        Err(TokenizerError::Unsupported)
    }

    /// llm_tokens of one piece of text, without any that a template adds; `None` where the file's rules fail on it.
    #[cfg(feature = "files")]
    pub fn count(&self, text: &str) -> Option<u64> {
        if text.is_empty() {
            return Some(0);
        }
        let encoding = self.inner.encode_fast(text, false).ok()?;
        u64::try_from(encoding.len()).ok()
    }

    /// There is none to ask.
    #[cfg(not(feature = "files"))]
    pub fn count(&self, _: &str) -> Option<u64> {
        None
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tokenizer")
    }
}

#[cfg(all(test, feature = "files"))]
mod tests {
    use super::Tokenizer;

    /// B108: a text cannot make itself small by spelling a special word of the file.
    #[test]
    fn b108_special_words_of_a_file_are_plain_text() {
        let json = r#"{"version":"1.0","truncation":null,"padding":null,
            "added_tokens":[{"id":2,"content":"<|endoftext|>","single_word":false,"lstrip":false,"rstrip":false,
                "normalized":false,"special":true}],
            "normalizer":null,"pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,
            "model":{"type":"WordLevel","vocab":{"[UNK]":0,"a":1},"unk_token":"[UNK]"}}"#;
        let tokenizer = Tokenizer::parse(json.as_bytes()).unwrap();
        assert_eq!(tokenizer.count("a"), Some(1));
        // `<|`, `endoftext` and `|>`, as of any other word between such marks.
        assert_eq!(tokenizer.count("<|endoftext|>"), tokenizer.count("<|something|>"));
        assert_eq!(tokenizer.count("a <|endoftext|> a"), Some(5));
    }
}
