//! A script and the name that servers know it by.

use redis::Cmd;

/// The text is sent once to each server; calls carry its digest.
#[derive(Debug, Clone)]
pub struct Script {
    text: String,
    sha: String,
}

impl Script {
    pub fn new(text: &str) -> Self {
        let sha = redis::Script::new(text).get_hash().to_owned();
        Self { text: text.to_owned(), sha }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The digest of the text, in hexadecimal digits.
    pub fn sha(&self) -> &str {
        &self.sha
    }

    pub(super) fn call(&self, keys: &[Vec<u8>], args: &[Vec<u8>]) -> Cmd {
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.sha).arg(keys.len());
        for word in keys.iter().chain(args) {
            call.arg(word.as_slice());
        }
        call
    }

    pub(super) fn load(&self) -> Cmd {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(&self.text);
        load
    }
}

#[cfg(test)]
mod tests {
    use super::Script;

    #[test]
    fn the_digest_is_that_of_the_servers() {
        assert_eq!(Script::new("return 1").sha(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    }
}
