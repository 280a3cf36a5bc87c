//! Every metric of the list is set somewhere in the product: one that never moves tells a lie.

use super::scan::{line_at, words};
use super::{Finding, Tree};

/// The file with the list.
const LIST: &str = "crates/telemetry/src/list.rs";
/// What a line of the list begins with.
const KINDS: [&str; 3] = ["Counts", "Gauges", "Times"];
/// The room that defines the metrics; what it does with them is not a use.
const ROOM: &str = "crates/telemetry/";

pub(super) fn set(tree: &Tree, out: &mut Vec<Finding>) {
    let Some(list) = tree.rust.get(LIST) else { return };
    for (at, field) in fields(&list.product) {
        let used = tree.rust.iter().filter(|(path, _)| !path.starts_with(ROOM));
        if used.into_iter().any(|(_, rust)| has_field(&rust.product, field)) {
            continue;
        }
        let message = format!("metric '{field}' is listed but never set");
        out.push(Finding { path: LIST.to_owned(), line: line_at(&list.product, at), message });
    }
}

/// The fields of the list with their places: `Counts calls_ended(...) "..." ;`.
fn fields(list: &str) -> Vec<(usize, &str)> {
    let begin = list.find("\nmetrics! {").unwrap_or(list.len());
    let body = list.get(begin..).unwrap_or_default();
    let mut kind_seen = false;
    let mut found = Vec::new();
    for (at, word) in words(body) {
        if kind_seen {
            found.push((begin + at, word));
        }
        kind_seen = KINDS.contains(&word);
        if word == "impl" {
            break;
        }
    }
    found
}

/// Whether `code` has the field, with a dot before it and a dot after it, whatever lies between.
fn has_field(code: &str, field: &str) -> bool {
    words(code).any(|(at, word)| {
        let before = code.get(..at).unwrap_or_default().trim_end();
        let after = code.get(at + word.len()..).unwrap_or_default().trim_start();
        word == field && before.ends_with('.') && after.starts_with('.')
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{found, tree};
    use super::*;

    const ALL: &str = "//! x\nCounts::new();\nmetrics! {\n    // calls\n    Counts ended(A, B) \"Calls\";\n    \
                       Gauges open() \"Open\";\n    Times took(A) [OWN] \"Time\";\n}\nimpl Metrics {}\n";

    #[test]
    fn a_metric_that_nothing_sets_is_found() {
        let product =
            "//! x\nfn f() {\n    m\n        .ended\n        .inc(());\n    m.took.observe(());\n}\n";
        let test = "//! x\nfn f() { m.open.set((), 1); }\n";
        let tree = tree(&[
            (LIST, ALL),
            ("crates/telemetry/src/kinds.rs", test),
            ("crates/a/tests/it/main.rs", test),
            ("crates/a/src/lib.rs", product),
        ]);
        assert_eq!(found(set, &tree), [format!("{LIST}:6: metric 'open' is listed but never set")]);
    }

    #[test]
    fn a_set_metric_and_a_tree_without_list_are_fine() {
        let product = "//! x\nfn f() { m.open.set((), 1); m.ended.inc(()); m.took.observe(()); }\n";
        assert!(found(set, &tree(&[(LIST, ALL), ("crates/a/src/lib.rs", product)])).is_empty());
        assert!(found(set, &tree(&[("crates/a/src/lib.rs", product)])).is_empty());
    }
}
