//! The list of attributes.

use std::collections::BTreeSet;

use tollbook_telemetry::trace::Key;

const PAGE: &str = include_str!("../../../../docs/operations/traces.md");

#[test]
fn every_attribute_is_documented_as_it_is_listed() {
    for key in Key::ALL {
        let doc = key.doc();
        let row = format!("| `{}` | {} |", doc.name, doc.help);
        assert!(PAGE.lines().any(|line| line == row), "{row}");
    }
    let rows = PAGE.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, Key::ALL.len(), "the page tells of attributes that are not listed");
}

#[test]
fn names_are_unique_and_none_is_for_a_secret() {
    let names: BTreeSet<&str> = Key::ALL.iter().map(|key| key.name()).collect();
    assert_eq!(names.len(), Key::ALL.len());
    for name in names {
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || matches!(b, b'.' | b'_')), "{name}");
        for banned in ["prompt", "message", "header", "api_key", "user", "content"] {
            assert!(!name.contains(banned), "{name}");
        }
    }
}
