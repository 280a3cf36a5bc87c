//! Reads the few small members that matter out of an event that is too large to keep.
//!
//! The last event of a response repeats its input and output and can be larger than any block that is read; its usage is
//! small. Bytes go through once, as they come; what is kept is at most `KEPT_MAX`.
//! Invariants: only members at their own place count (of the event, of its `response`), so no text of a client or a model
//! can pass for them. What is not JSON in one line gives nothing; a member that is too long is left out.

/// Largest sum of what is kept.
const KEPT_MAX: usize = 16 * 1024;
/// Deepest nesting that is followed.
const DEPTH_MAX: u32 = 64;
const KEY_MAX: usize = 32;
/// Members of the event and of its response.
const OUTER: [&[u8]; 3] = [b"type", b"sequence_number", b"error"];
const INNER: [&[u8]; 4] = [b"status", b"service_tier", b"usage", b"error"];

#[derive(Debug, Default)]
pub(crate) struct Skim {
    begun: bool,
    failed: bool,
    in_string: bool,
    escaped: bool,
    depth: u32,
    /// Containers that are objects, a bit each.
    objects: u64,
    /// The next string of the container is a key.
    at_key: bool,
    key: Vec<u8>,
    in_response: bool,
    /// Where the member that is being kept begins, and whether it is the response's.
    keeping: Option<(usize, bool)>,
    outer: Vec<u8>,
    inner: Vec<u8>,
}

impl Skim {
    /// Takes the next bytes of the block, field names of the lines included.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let mut bytes = bytes;
        if !self.begun {
            let Some(n) = bytes.iter().position(|b| *b == b'{') else { return };
            self.begun = true;
            bytes = bytes.get(n..).unwrap_or_default();
        }
        for b in bytes {
            if self.failed {
                return;
            }
            self.byte(*b);
        }
    }

    /// The event with nothing but what was kept; nothing if it could not be followed.
    pub(crate) fn take(self) -> Option<Vec<u8>> {
        let whole = self.begun && !self.failed && self.depth == 0 && !self.in_string;
        whole.then(|| [b"{" as &[u8], &self.outer, b"\"response\":{", &self.inner, b"\"\":0}}"].concat())
    }

    fn byte(&mut self, b: u8) {
        if self.in_string {
            if self.at_key && (b != b'"' || self.escaped) && self.key.len() <= KEY_MAX {
                self.key.push(b);
            }
            self.keep(b);
            match b {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return;
        }
        match b {
            b'"' => {
                self.in_string = true;
                if self.at_key {
                    self.key.clear();
                }
                self.keep(b);
            }
            b'{' | b'[' => {
                self.keep(b);
                self.open(b == b'{');
            }
            b'}' | b']' => self.close(b),
            b',' => {
                self.finish();
                self.keep(b);
                self.at_key = self.objects & 1 == 1;
            }
            b':' => {
                self.keep(b);
                self.member();
            }
            // The line of the event is over.
            b'\n' | b'\r' => self.failed |= self.depth > 0,
            _ => self.keep(b),
        }
    }

    fn open(&mut self, object: bool) {
        self.failed |= self.depth == DEPTH_MAX;
        self.depth += 1;
        self.objects = self.objects << 1 | u64::from(object);
        self.at_key = object;
    }

    fn close(&mut self, b: u8) {
        self.finish();
        self.failed |= self.depth == 0;
        self.depth = self.depth.saturating_sub(1);
        self.objects >>= 1;
        self.at_key = false;
        if self.depth == 1 {
            self.in_response = false;
        }
        self.keep(b);
    }

    /// A key was read and its value follows.
    fn member(&mut self) {
        self.at_key = false;
        let key = self.key.as_slice();
        if self.depth == 1 {
            self.in_response = key == b"response";
        }
        let wanted = match self.depth {
            1 => OUTER.contains(&key),
            2 => self.in_response && INNER.contains(&key),
            _ => false,
        };
        if wanted && self.keeping.is_none() {
            let nested = self.depth == 2;
            let to = if nested { &mut self.inner } else { &mut self.outer };
            self.keeping = Some((to.len(), nested));
            to.push(b'"');
            to.extend_from_slice(&self.key);
            to.extend_from_slice(b"\":");
        }
    }

    fn keep(&mut self, b: u8) {
        let Some((start, nested)) = self.keeping else { return };
        let room = KEPT_MAX.saturating_sub(self.outer.len() + self.inner.len());
        let to = if nested { &mut self.inner } else { &mut self.outer };
        if room <= 1 {
            to.truncate(start);
            self.keeping = None;
            return;
        }
        to.push(b);
    }

    /// A comma or an end at the depth of the member that is kept closes it.
    fn finish(&mut self) {
        let Some((_, nested)) = self.keeping else { return };
        if self.depth == if nested { 2 } else { 1 } {
            let to = if nested { &mut self.inner } else { &mut self.outer };
            to.push(b',');
            self.keeping = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skim(text: &str, step: usize) -> Option<String> {
        let mut skim = Skim::default();
        text.as_bytes().chunks(step).for_each(|part| skim.push(part));
        skim.take().map(|kept| String::from_utf8(kept).unwrap())
    }

    #[test]
    fn only_members_at_their_place_are_kept() {
        let text = concat!(
            "event: response.completed\ndata: {\"type\":\"response.completed\",\"x\":[1,{\"type\":\"no\"}],",
            r#""response":{"id":"r","output":[{"usage":{"input_tokens":1},"text":"\"usage\":{\"input_tokens\":2}"}],"#,
            r#""status":"completed","tools":{"usage":{"input_tokens":3}},"usage":{"input_tokens":7,"d":{"e":[1,2]}},"error":null},"usage":5,"sequence_number":9}"#,
            "\n\n"
        );
        let want = r#"{"type":"response.completed","sequence_number":9,"response":{"status":"completed","usage":{"input_tokens":7,"d":{"e":[1,2]}},"error":null,"":0}}"#;
        for step in [1, 2, 3, 7, text.len()] {
            assert_eq!(skim(text, step).as_deref(), Some(want), "{step}");
        }
    }

    #[test]
    fn what_cannot_be_followed_gives_nothing_and_what_is_too_long_is_left_out() {
        for text in ["data: {\"a\":1", "data: {\"a\":\n1}", "data: {\"a\":\"x", "comment", "data: {}}"] {
            assert_eq!(skim(text, 3), None, "{text}");
        }
        let deep = format!("{{\"a\":{}", "[".repeat(70));
        assert_eq!(skim(&deep, 9), None);
        let long = "y".repeat(KEPT_MAX);
        let text = format!(r#"{{"error":"{long}","type":"t","response":{{"usage":{{"input_tokens":4}}}}}}"#);
        let want = r#"{"type":"t","response":{"usage":{"input_tokens":4},"":0}}"#;
        assert_eq!(skim(&text, 100).as_deref(), Some(want));
    }
}
