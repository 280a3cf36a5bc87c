//! Reads Rust source just well enough to tell code from comments, strings and tests.
//!
//! Invariant: blanked text keeps its length in bytes and its line breaks, so places stay places.

use std::ops::Range;

/// A Rust file in three forms.
#[derive(Debug)]
pub struct Rust {
    /// Comments and the contents of strings replaced by spaces.
    pub code: String,
    /// `code` without what is compiled for tests only.
    pub product: String,
    /// True where the whole file is compiled for tests only.
    pub is_test: bool,
}

impl Rust {
    pub fn new(path: &str, text: &str) -> Self {
        let code = without_comments_and_strings(text);
        let is_test = is_test_file(path);
        let mut product = code.clone();
        if is_test {
            product = blank(&product, 0..product.len());
        }
        for region in test_regions(&code) {
            product = blank(&product, region);
        }
        Self { code, product, is_test }
    }
}

/// Files that only tests, benches and the packages of `testing/` are made of.
fn is_test_file(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let in_folder =
        path.split('/').any(|folder| matches!(folder, "tests" | "benches" | "examples" | "testing"));
    in_folder || name == "tests.rs" || name.ends_with("_tests.rs") || name.starts_with("test_")
}

/// The line, from 1, that the byte at `at` lies on.
pub(super) fn line_at(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

/// Identifiers and numbers with the place where they begin.
pub(super) fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    code.split(|c: char| !is_word(c)).filter_map(move |word| {
        let begin = at;
        // Separators in masked code may be longer than a byte (arrows in macros): measure, do not assume.
        at = begin + word.len() + code.get(begin + word.len()..)?.chars().next().map_or(0, char::len_utf8);
        (!word.is_empty()).then_some((begin, word))
    })
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn is_word_byte(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric() || byte >= 0x80
}

fn blank(text: &str, range: Range<usize>) -> String {
    let bytes = text.bytes().enumerate().map(|(at, byte)| match byte {
        b'\n' => byte,
        _ if range.contains(&at) => b' ',
        _ => byte,
    });
    String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
}

fn without_comments_and_strings(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = bytes.get(at..).unwrap_or_default();
        let (length, keep) = lexeme(rest);
        let taken = rest.iter().take(length.max(1));
        out.extend(taken.map(|byte| if keep || *byte == b'\n' { *byte } else { b' ' }));
        at += length.max(1);
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Length of what begins here, and whether it is code.
fn lexeme(rest: &[u8]) -> (usize, bool) {
    match rest {
        [b'/', b'/', ..] => (rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()), false),
        [b'/', b'*', ..] => (block_comment(rest), false),
        [b'"', ..] => (quoted(rest, b'"'), false),
        [b'\'', ..] => char_or_lifetime(rest),
        [first, ..] if is_word_byte(*first) => word_or_string(rest),
        _ => (1, true),
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(pair) = rest.get(at..at + 2) {
        match pair {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// From an opening quote to behind the closing one.
fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut escaped = false;
    for (at, byte) in rest.iter().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            _ if *byte == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

fn char_or_lifetime(rest: &[u8]) -> (usize, bool) {
    if rest.get(1) == Some(&b'\\') {
        return (quoted(rest, b'\''), false);
    }
    // One character of up to four bytes, then the closing quote: otherwise it is a lifetime.
    let inner = rest.iter().skip(1).take(5).position(|byte| *byte == b'\'');
    let is_char = inner.is_some_and(|length| {
        let inner = rest.get(1..=length).unwrap_or_default();
        std::str::from_utf8(inner).is_ok_and(|text| text.chars().count() == 1)
    });
    if is_char { (inner.unwrap_or(0) + 2, false) } else { (1, true) }
}

/// A word, or a string that begins with a letter: `r"…"`, `r#"…"#`, `b"…"`, `b'…'`, `c"…"`.
fn word_or_string(rest: &[u8]) -> (usize, bool) {
    let length = rest.iter().position(|byte| !is_word_byte(*byte)).unwrap_or(rest.len());
    let (word, after) = rest.split_at(length.min(rest.len()));
    match (word, after) {
        (b"r" | b"br" | b"cr", [b'"' | b'#', ..]) => {
            let hashes = after.iter().take_while(|byte| **byte == b'#').count();
            if after.get(hashes) != Some(&b'"') {
                return (length, true);
            }
            let mut closing = vec![b'"'];
            closing.resize(hashes + 1, b'#');
            let body = after.get(hashes + 1..).unwrap_or_default();
            let inside = body.windows(closing.len()).position(|window| window == closing);
            let inside = inside.map_or(body.len(), |begin| begin + closing.len());
            (length + hashes + 1 + inside, false)
        }
        (b"b" | b"c", [b'"', ..]) => (length + quoted(after, b'"'), false),
        (b"b", [b'\'', ..]) => (length + quoted(after, b'\''), false),
        _ => (length, true),
    }
}

/// What follows `#[cfg(test)]`: one item each.
fn test_regions(code: &str) -> Vec<Range<usize>> {
    let mut regions = Vec::new();
    for marker in ["#[cfg(test)]", "#[cfg(all(test"] {
        for (begin, _) in code.match_indices(marker) {
            let rest = code.get(begin + marker.len()..).unwrap_or_default();
            regions.push(begin..begin + marker.len() + item_length(rest));
        }
    }
    regions
}

/// From here to the end of the item: its `;`, or the brace that closes its body.
fn item_length(code: &str) -> usize {
    let mut depth = 0_usize;
    let mut brackets = 0_usize;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'[' | b'(' => brackets += 1,
            b']' | b')' => brackets = brackets.saturating_sub(1),
            b';' if depth == 0 && brackets == 0 => return at + 1,
            b'{' => depth += 1,
            b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Masked text with runs of blanks as one `_`.
    fn masked(text: &str) -> String {
        let code = without_comments_and_strings(text);
        assert_eq!(code.len(), text.len());
        code.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_strings_vanish() {
        let rows = [
            ("a // b\nc", "a c"),
            ("a /* b /* c */ d */ e", "a e"),
            ("a \"b \\\" c\" d", "a d"),
            ("a r\"b\\\" c", "a c"),
            ("a r#\"b \" c\"# d", "a d"),
            ("a br##\"b \"# c\"## d", "a d"),
            ("a b\"b\" c\"d\" e", "a e"),
            ("a 'b' c", "a c"),
            ("a '\\'' b", "a b"),
            ("a b'\"' c", "a c"),
            ("a 'é' b 'é", "a b 'é"),
            ("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}"),
            ("r#type x", "r#type x"),
            ("bar\"x\" y", "bar y"),
            ("a \"no end", "a"),
            ("a /* no end", "a"),
        ];
        for (text, expected) in rows {
            assert_eq!(masked(text), expected, "{text}");
        }
    }

    #[test]
    fn tests_are_no_product() {
        let text = "a!();\n#[cfg(test)]\n#[allow(x, reason = \"y\")]\nmod tests {\n  fn f() { b }\n}\nc\n#[cfg(test)]\nmod t;\nd";
        let rust = Rust::new("crates/x/src/lib.rs", text);
        assert_eq!(rust.product.split_whitespace().collect::<Vec<_>>(), ["a!();", "c", "d"]);
        assert_eq!(rust.product.lines().count(), text.lines().count());
        assert!(Rust::new("crates/x/tests/it/main.rs", text).product.trim().is_empty());
        assert!(Rust::new("crates/x/src/tests.rs", text).is_test);
        assert!(!Rust::new("crates/x/src/attests.rs", text).is_test);
    }

    #[test]
    fn words_know_their_place() {
        let found: Vec<(usize, &str)> = words("a::b → c_1").collect();
        assert_eq!(found, [(0, "a"), (3, "b"), (9, "c_1")]);
    }
}
