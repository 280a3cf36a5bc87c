//! Every rule of the ledger specification names tests, and those tests exist and run.

use std::collections::BTreeMap;

use super::scan::{line_at, words};
use super::{Finding, Tree};

const SPEC: &str = "docs/spec/ledger.md";
const RULES: usize = 18;
const PROOF: &str = "Proven by:";

pub(super) fn rules(tree: &Tree, out: &mut Vec<Finding>) {
    let here = |line, message| Finding { path: SPEC.to_owned(), line, message };
    let Some(text) = tree.text(SPEC) else {
        out.push(here(0, "the file is missing".to_owned()));
        return;
    };
    let tests = Tests::of(tree);
    let sections = sections(text);
    for rule in (1..=RULES).map(|number| format!("L{number}")) {
        let Some((line, section)) = sections.get(rule.as_str()) else {
            out.push(here(0, format!("there is no heading '## {rule} …'")));
            continue;
        };
        let named = proofs(section);
        if named.is_empty() {
            out.push(here(*line, format!("{rule} has no '{PROOF}' with the name of a test")));
        }
        for name in named {
            if let Some(reason) = tests.doubt(name) {
                out.push(here(*line, format!("{rule}: '{name}' {reason}")));
            }
        }
    }
}

/// Sections by the first word of their heading, with the heading's line.
fn sections(text: &str) -> BTreeMap<&str, (usize, &str)> {
    let begins: Vec<usize> = text.match_indices("\n## ").map(|(at, _)| at + 1).collect();
    let ends = begins.iter().skip(1).copied().chain([text.len()]);
    let sections = begins.iter().zip(ends).filter_map(|(begin, end)| {
        let section = text.get(*begin..end)?;
        let name = section.split_whitespace().nth(1)?;
        Some((name.trim_end_matches([':', '.', '—']), (line_at(text, *begin), section)))
    });
    sections.collect()
}

/// Names in backticks from the mark to the end of its paragraph.
fn proofs(section: &str) -> Vec<&str> {
    let after = section.split_once(PROOF).map_or("", |(_, rest)| rest);
    let paragraph = after.split("\n\n").next().unwrap_or_default();
    let quoted = paragraph.split('`').skip(1).step_by(2);
    // `module::name` may say where it lies; the last part is the name.
    quoted.map(|name| name.rsplit("::").next().unwrap_or(name)).collect()
}

/// Functions by name: is one a test, and how often is the name used?
struct Tests<'a> {
    functions: BTreeMap<&'a str, bool>,
    uses: BTreeMap<&'a str, usize>,
}

impl<'a> Tests<'a> {
    fn of(tree: &'a Tree) -> Self {
        let mut tests = Self { functions: BTreeMap::new(), uses: BTreeMap::new() };
        for rust in tree.rust.values() {
            let mut before = "";
            for (at, word) in words(&rust.code) {
                *tests.uses.entry(word).or_default() += 1;
                if before == "fn" {
                    *tests.functions.entry(word).or_default() |= has_test_attribute(&rust.code, at);
                }
                before = word;
            }
        }
        tests
    }

    /// Why the name is no proof, if it is none.
    fn doubt(&self, name: &str) -> Option<&'static str> {
        match self.functions.get(name) {
            None => Some("is no function"),
            // A case of a suite is a plain function that a list or macro names once more.
            Some(false) if self.uses.get(name).is_none_or(|uses| *uses < 2) => {
                Some("is no test and is in no list of cases")
            }
            Some(_) => None,
        }
    }
}

/// True where an attribute that ends in `test` stands between the item before and this function's name.
fn has_test_attribute(code: &str, at: usize) -> bool {
    let before = code.get(..at).unwrap_or_default();
    let begin = before.rfind(['}', ';', '{']).map_or(0, |at| at + 1);
    let own = before.get(begin..).unwrap_or_default();
    own.contains("#[test]") || own.contains("test(") || own.contains("::test]")
}

#[cfg(test)]
mod tests {
    use super::super::testing::{found, tree};
    use super::*;

    fn spec(change: impl Fn(usize) -> String) -> String {
        let rules = (1..=RULES).map(|n| format!("\n## L{n} Rule\n\nText.\n\nProven by: {}\n", change(n)));
        format!("# Ledger\n{}", rules.collect::<Vec<_>>().concat())
    }

    #[test]
    fn named_tests_pass() {
        let code = "//! x\nfn a() {}\n#[test]\nfn l01_x() {}\n#[tokio::test(start_paused = true)]\nasync fn l02_x() {}\n\
                    pub fn l03_case() {}\ncases![l03_case];\nproptest! {\n  #[test]\n  fn l04_x(a in 0..1) {}\n}\n";
        let name = |n| match n {
            1 => "`l01_x`,\n`it::l02_x`".to_owned(),
            2 => "`l02_x`".to_owned(),
            3 => "`l03_case`".to_owned(),
            _ => "`l04_x`".to_owned(),
        };
        let tree = tree(&[(SPEC, &spec(name)), ("testing/engine-suite/src/lib.rs", code)]);
        assert_eq!(found(rules, &tree), Vec::<String>::new());
    }

    #[test]
    fn rules_without_a_real_test_are_found() {
        let code = "//! x\n#[test]\nfn ok() {}\nfn helper() {}\n";
        let name = |n| match n {
            1 => "`gone`".to_owned(),
            2 => "`helper`".to_owned(),
            3 => "nothing".to_owned(),
            _ => "`ok`".to_owned(),
        };
        let text = spec(name).replace("## L18 ", "## L19 ");
        let tree = tree(&[(SPEC, &text), ("crates/ledger/src/lib.rs", code)]);
        assert_eq!(
            found(rules, &tree),
            [
                "docs/spec/ledger.md:3: L1: 'gone' is no function",
                "docs/spec/ledger.md:9: L2: 'helper' is no test and is in no list of cases",
                "docs/spec/ledger.md:15: L3 has no 'Proven by:' with the name of a test",
                "docs/spec/ledger.md: there is no heading '## L18 …'",
            ]
        );
    }
}
