//! Compares names of members as the most lenient provider does.
//!
//! Invariants: names are lower-case ASCII; a key is decoded text. Two keys are the same name if they are equal
//! after simple case folding: ASCII case, and the two letters beyond ASCII that fold into it (the Kelvin sign is
//! a k, the long s an s). No other character folds into ASCII. A comparison cannot fail.

/// The key is the name, in whatever spelling.
pub(crate) fn spells(key: &str, name: &str) -> bool {
    if key.is_ascii() {
        return key.eq_ignore_ascii_case(name);
    }
    key.chars().map(fold).eq(name.chars())
}

/// The key is the name, but not in its own spelling.
pub(crate) fn misspells(key: &str, name: &str) -> bool {
    key != name && spells(key, name)
}

/// Something in the key may fold. Without, it is a name in its own spelling or none.
pub(crate) fn may_misspell(key: &str) -> bool {
    key.bytes().any(|b| !b.is_ascii() || b.is_ascii_uppercase())
}

fn fold(c: char) -> char {
    match c {
        '\u{212A}' => 'k',
        '\u{17F}' => 's',
        _ => c.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::{may_misspell, misspells, spells};

    #[test]
    fn exactly_three_spellings_of_k_and_s_and_two_of_the_rest() {
        for name in 'a'..='z' {
            let same = (char::MIN..=char::MAX).filter(|c| spells(&c.to_string(), &name.to_string()));
            let more = usize::from(matches!(name, 'k' | 's'));
            assert_eq!(same.count(), 2 + more, "{name}");
        }
    }

    #[test]
    fn a_name_does_not_misspell_itself() {
        assert!(!may_misspell("max_tokens") && !misspells("max_tokens", "max_tokens"));
        for key in ["Max_tokens", "max_to\u{212A}ens", "max_token\u{17F}", "MAX_TO\u{212A}EN\u{17F}"] {
            assert!(may_misspell(key) && misspells(key, "max_tokens"), "{key}");
        }
        for key in ["max_tokens ", "max_token", "max-tokens", "maẋ_tokens", "", "\u{17F}"] {
            assert!(!spells(key, "max_tokens"), "{key}");
        }
    }
}
