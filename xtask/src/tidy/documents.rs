//! Documents: their length, their links, and nothing in them that belongs to one machine.

use super::scan::line_at;
use super::{Finding, Tree};

const ARCHITECTURE_LINES_MAX: usize = 300;

pub(super) fn architecture(tree: &Tree, out: &mut Vec<Finding>) {
    let path = "ARCHITECTURE.md";
    let lines = tree.text(path).map_or(0, |text| text.lines().count());
    if lines == 0 || lines > ARCHITECTURE_LINES_MAX {
        let message = format!("{lines} lines, expected 1 to {ARCHITECTURE_LINES_MAX}");
        out.push(Finding { path: path.to_owned(), line: 0, message });
    }
}

/// The two READMEs have the same sections, so that neither language is left behind.
pub(super) fn readmes(tree: &Tree, out: &mut Vec<Finding>) {
    let path = "README.zh-CN.md";
    let levels =
        |path| tree.text(path).map(|text| headings(text).map(|(level, _)| level).collect::<Vec<_>>());
    let (english, chinese) = (levels("README.md"), levels(path));
    if english.is_none() || english != chinese {
        let message = format!("headings {chinese:?} differ from those of README.md {english:?}");
        out.push(Finding { path: path.to_owned(), line: 0, message });
    }
}

/// Links to files of the project lead somewhere, and so do links to headings.
pub(super) fn links(tree: &Tree, out: &mut Vec<Finding>) {
    for (path, text) in tree.files.iter().filter(|(path, _)| is_markdown(path)) {
        for (at, target) in targets(text) {
            if let Some(reason) = broken(tree, path, target) {
                out.push(Finding { path: path.clone(), line: line_at(text, at), message: reason });
            }
        }
    }
}

fn broken(tree: &Tree, from: &str, target: &str) -> Option<String> {
    let is_elsewhere = target.contains("://") || target.starts_with("mailto:");
    if is_elsewhere {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let Some(file) = resolve(from, file) else {
        return Some(format!("link '{target}' leads out of the project"));
    };
    let folder = format!("{}/", file.trim_end_matches('/'));
    if file.is_empty() || tree.files.keys().any(|path| path.starts_with(&folder)) {
        return None;
    }
    let Some(text) = tree.text(&file) else {
        return Some(format!("link '{target}' leads nowhere"));
    };
    let is_known = anchor.is_empty() || !is_markdown(&file) || anchors(text).any(|known| known == anchor);
    (!is_known).then(|| format!("link '{target}': {file} has no such heading"))
}

/// The path below the root that a relative link means; none if it leaves the root.
fn resolve(from: &str, target: &str) -> Option<String> {
    if target.is_empty() {
        return Some(from.to_owned());
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

fn is_markdown(path: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, ending)| ending == "md")
}

/// Lines outside of fenced code, with the place where each begins.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    let mut fenced = false;
    text.split_inclusive('\n').filter_map(move |line| {
        let begin = at;
        at += line.len();
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        (!fenced && !is_fence).then_some((begin, line))
    })
}

fn headings(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text).filter_map(|(_, line)| {
        let title = line.trim_start_matches('#');
        let level = line.len() - title.len();
        ((1..=6).contains(&level) && title.starts_with(' ')).then(|| (level, title.trim()))
    })
}

/// The names that headings get as link targets.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    headings(text).map(|(_, title)| {
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

/// Targets of `[text](target)` and `[name]: target`, inline code left out.
fn targets(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (begin, line) in prose(text) {
        for (at, _) in line.match_indices("](") {
            let is_code = line.get(..at).is_some_and(|before| before.matches('`').count() % 2 == 1);
            let target = line.get(at + 2..).and_then(|rest| rest.split_once(')')).map(|(target, _)| target);
            let target = target.and_then(|target| target.split_whitespace().next());
            if let Some(target) = target.filter(|_| !is_code) {
                found.push((begin + at, target));
            }
        }
        let named =
            line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map(|(_, target)| target.trim());
        found.extend(named.map(|target| (begin, target)));
    }
    found
}

/// Folders that exist on somebody's machine and mean nothing on another.
const MACHINE_FOLDERS: [&str; 4] =
    [concat!("/", "work"), concat!("/", "root"), concat!("/", "home"), concat!("/", "Users")];

pub(super) fn machine_paths(tree: &Tree, out: &mut Vec<Finding>) {
    for (path, text) in &tree.files {
        for folder in MACHINE_FOLDERS {
            for (at, _) in text.match_indices(folder) {
                let before = text.get(..at).and_then(|text| text.chars().next_back());
                let after = text.get(at + folder.len()..).and_then(|text| text.chars().next());
                // Inside a longer path or a URL it is no folder of a machine.
                let begins = !before
                    .is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | '}' | '~'));
                let ends = !after.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-'));
                if begins && ends {
                    let message = format!("'{folder}' is a folder of one machine");
                    out.push(Finding { path: path.clone(), line: line_at(text, at), message });
                }
            }
        }
    }
}

/// Hosts of package registries: which one is used is the business of who builds.
const HOSTS: [&str; 8] = [
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("pypi", ".org"),
    concat!("files.", "pythonhosted.org"),
    concat!("registry.", "npmjs.org"),
    concat!("deb.", "debian.org"),
    concat!("proxy.", "golang.org"),
    concat!("registry-", "1.docker.io"),
];

pub(super) fn registry_hosts(tree: &Tree, out: &mut Vec<Finding>) {
    for (path, text) in &tree.files {
        for host in HOSTS {
            for (at, _) in text.match_indices(host) {
                let message = format!("'{host}': a registry is named by its client's configuration");
                out.push(Finding { path: path.clone(), line: line_at(text, at), message });
            }
        }
    }
    // Cargo writes the registry that it used; only the public one, under its own name, may be in the file.
    let lock = tree.text("Cargo.lock").unwrap_or_default();
    let public = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
    for (number, line) in lock.lines().enumerate().filter(|(_, line)| line.starts_with("source = ")) {
        if line != public {
            let message = format!("unexpected {line}");
            out.push(Finding { path: "Cargo.lock".to_owned(), line: number + 1, message });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{found, tree};
    use super::*;

    #[test]
    fn architecture_has_at_most_300_lines() {
        let lines = |count| "x\n".repeat(count);
        assert!(found(architecture, &tree(&[("ARCHITECTURE.md", &lines(300))])).is_empty());
        assert_eq!(found(architecture, &tree(&[("ARCHITECTURE.md", &lines(301))])).len(), 1);
        assert_eq!(found(architecture, &tree(&[])).len(), 1);
    }

    #[test]
    fn readmes_have_the_same_headings() {
        let english = "# a\n## b\n```sh\n# no heading\n```\n";
        let same = tree(&[("README.md", english), ("README.zh-CN.md", "# 甲\n## 乙\n")]);
        assert!(found(readmes, &same).is_empty());
        let other = tree(&[("README.md", english), ("README.zh-CN.md", "# 甲\n# 乙\n")]);
        assert_eq!(found(readmes, &other).len(), 1);
        assert_eq!(found(readmes, &tree(&[("README.md", english)])).len(), 1);
    }

    #[test]
    fn broken_links_are_found() {
        let text = "# Top\n[a](b.md) [c](../README.md#what-it-is) [d](https://x.y/z) [e](#top) [f](../crates)\n\
                    [g](gone.md) `[h](gone)` [i](../README.md#gone) [j](#gone) [k](../../out.md)\n[l]: gone2.md\n";
        let tree = tree(&[
            ("docs/a.md", text),
            ("docs/b.md", "x"),
            ("README.md", "## What it is?\n"),
            ("crates/x/src/lib.rs", "//! x"),
        ]);
        assert_eq!(
            found(links, &tree),
            [
                "docs/a.md:3: link 'gone.md' leads nowhere",
                "docs/a.md:3: link '../README.md#gone': README.md has no such heading",
                "docs/a.md:3: link '#gone': docs/a.md has no such heading",
                "docs/a.md:3: link '../../out.md' leads out of the project",
                "docs/a.md:4: link 'gone2.md' leads nowhere",
            ]
        );
    }

    #[test]
    fn machine_paths_are_found() {
        let [work, root, home, _] = MACHINE_FOLDERS;
        let text = format!("cd {work}/main\nx=\"{home}\"\nhttps://x.y{work}/z .{work} {root}fs ..{root}/x\n");
        let findings = found(machine_paths, &tree(&[("docs/a.md", &text)]));
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].starts_with("docs/a.md:1: ") && findings[1].starts_with("docs/a.md:2: "));
    }

    #[test]
    fn registry_hosts_are_found() {
        let lock = "source = \"registry+https://github.com/rust-lang/crates.io-index\"\nsource = \"registry+https://mirror\"\n";
        let findings = found(registry_hosts, &tree(&[("Cargo.lock", lock), ("a.toml", HOSTS[2])]));
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[1].starts_with("Cargo.lock:2: "));
    }
}
