//! What every Rust file keeps: its length, its header, its words, no stubs.

use super::scan::{line_at, words};
use super::{Finding, Tree};

/// Longest file, its tests not counted.
const LINES_MAX: usize = 800;

/// Files that may be longer, each with its reason.
const LONG: [(&str, &str); 0] = [];

pub(super) fn length(tree: &Tree, out: &mut Vec<Finding>) {
    for (path, rust) in tree.rust.iter().filter(|(_, rust)| !rust.is_test) {
        if LONG.iter().any(|(long, _)| long == path) {
            continue;
        }
        let all = rust.code.lines().count();
        let blanked = rust.code.lines().zip(rust.product.lines());
        let tests =
            blanked.filter(|(code, product)| product.trim().is_empty() && !code.trim().is_empty()).count();
        let lines = all - tests;
        if lines > LINES_MAX {
            let message =
                format!("{lines} lines without tests, at most {LINES_MAX}: split it by what it does");
            out.push(Finding { path: path.clone(), line: 0, message });
        }
    }
}

pub(super) fn stubs(tree: &Tree, out: &mut Vec<Finding>) {
    for (path, rust) in &tree.rust {
        for stub in ["todo!", "unimplemented!", "#[ignore"] {
            for (at, _) in rust.code.match_indices(stub) {
                let message = format!("'{stub}': done means done");
                out.push(Finding { path: path.clone(), line: line_at(&rust.code, at), message });
            }
        }
    }
    // Put together here, so that this file does not find itself.
    let marker = concat!("FIX", "ME");
    let ending = |path: &str| path.rsplit('.').next().is_some_and(|ending| CODE.contains(&ending));
    for (path, text) in tree.files.iter().filter(|(path, _)| ending(path) || path.starts_with(".ci/")) {
        for (at, _) in text.match_indices(marker) {
            let message = format!("'{marker}': mend it, or file an issue");
            out.push(Finding { path: path.clone(), line: line_at(text, at), message });
        }
    }
}

/// File name endings of code in any language.
const CODE: [&str; 11] = ["rs", "toml", "py", "sh", "js", "ts", "tsx", "sql", "lua", "yaml", "yml"];

/// "Token" is three things; each has a name of its own.
pub(super) fn bare_token(tree: &Tree, out: &mut Vec<Finding>) {
    for (path, rust) in &tree.rust {
        for (at, word) in words(&rust.code) {
            // `Tokens` is the measure of that name, beside `InputTokens` and `OutputTokens`.
            if matches!(word, "token" | "tokens" | "Token" | "TOKEN" | "TOKENS") {
                let message = format!("'{word}' alone: say llm_tokens, api_key or level");
                out.push(Finding { path: path.clone(), line: line_at(&rust.code, at), message });
            }
        }
    }
}

pub(super) fn headers(tree: &Tree, out: &mut Vec<Finding>) {
    for path in tree.rust.keys() {
        if !tree.text(path).is_some_and(|text| text.trim_start().starts_with("//!")) {
            let message = "the file begins with '//!': role, invariants, what happens on failure".to_owned();
            out.push(Finding { path: path.clone(), line: 1, message });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{found, tree};
    use super::*;

    #[test]
    fn long_files_are_found_and_tests_do_not_count() {
        let long = "x();\n".repeat(LINES_MAX);
        let with_tests = format!("{long}#[cfg(test)]\nmod tests {{\n{long}}}\n");
        let at_most = tree(&[("crates/a/src/lib.rs", &long), ("crates/b/src/lib.rs", &with_tests)]);
        assert!(found(length, &at_most).is_empty());
        let longer = format!("x();\n{long}");
        let one_more = tree(&[("crates/a/src/lib.rs", &longer), ("crates/a/tests/it/main.rs", &longer)]);
        assert_eq!(
            found(length, &one_more),
            ["crates/a/src/lib.rs: 801 lines without tests, at most 800: split it by what it does"]
        );
    }

    #[test]
    fn stubs_are_found_in_code_only() {
        let text =
            "//! todo!\nfn f() {\n    todo!()\n}\n#[ignore = \"later\"]\nfn g() { h(\"unimplemented!\") }\n";
        let marked = concat!("# FIX", "ME\n");
        let tree = tree(&[("crates/a/src/lib.rs", text), (".ci/run", marked), ("docs/x.md", marked)]);
        assert_eq!(
            found(stubs, &tree),
            [
                "crates/a/src/lib.rs:3: 'todo!': done means done".to_owned(),
                "crates/a/src/lib.rs:5: '#[ignore': done means done".to_owned(),
                format!(".ci/run:1: '{0}{1}': mend it, or file an issue", "FIX", "ME"),
            ]
        );
    }

    #[test]
    fn a_bare_token_is_found() {
        let text =
            "//! x\nlet llm_tokens = f(\"token\"); // token\nlet CancellationToken = 1;\nlet token = 1;\n";
        let findings = found(bare_token, &tree(&[("crates/a/src/lib.rs", text)]));
        assert_eq!(findings, ["crates/a/src/lib.rs:4: 'token' alone: say llm_tokens, api_key or level"]);
    }

    #[test]
    fn a_file_without_header_is_found() {
        let tree = tree(&[("crates/a/src/lib.rs", "//! x\n"), ("crates/a/src/b.rs", "use x;\n//! y\n")]);
        let findings = found(headers, &tree);
        assert_eq!(findings.len(), 1);
        assert!(findings.iter().all(|finding| finding.starts_with("crates/a/src/b.rs:1: ")));
    }
}
