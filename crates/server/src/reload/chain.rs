//! Which names decide what a path means: the file itself, and every symbolic link on the way to it.
//!
//! A mounted configuration map is a link to a link that is swapped, and a folder may be a link too. Watching each of
//! these names in the folder it stands in sees every way of putting another file in a path's place.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// Most links followed; more is a circle.
const LINKS_MAX: usize = 40;

/// The names, each in a folder without links. Where something is missing, the name that would have to appear.
pub(super) fn names(path: &Path) -> Vec<PathBuf> {
    let Ok(path) = std::path::absolute(path) else { return Vec::new() };
    let (mut at, mut found, mut links) = (PathBuf::new(), Vec::new(), 0);
    let mut ahead: VecDeque<OsString> = parts(&path, &mut at);
    while let Some(part) = ahead.pop_front() {
        if part == ".." {
            at.pop();
            continue;
        }
        let here = at.join(&part);
        let target = std::fs::symlink_metadata(&here).map(|meta| meta.is_symlink());
        match target {
            Ok(false) if ahead.is_empty() => found.push(here),
            Ok(false) => at = here,
            Ok(true) if links < LINKS_MAX => {
                links += 1;
                found.push(here.clone());
                let Ok(target) = std::fs::read_link(&here) else { return found };
                let mut before = parts(&target, &mut at);
                before.append(&mut ahead);
                ahead = before;
            }
            Ok(true) | Err(_) => {
                found.push(here);
                return found;
            }
        }
    }
    found
}

/// The components of a path; an absolute one starts again at the root.
fn parts(path: &Path, at: &mut PathBuf) -> VecDeque<OsString> {
    let mut parts = VecDeque::new();
    for component in path.components() {
        match component {
            Component::Prefix(_) | Component::RootDir => *at = PathBuf::from("/"),
            Component::CurDir => {}
            Component::ParentDir => parts.push_back("..".into()),
            Component::Normal(name) => parts.push_back(name.to_owned()),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn every_link_on_the_way_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir(root.join("v1")).unwrap();
        fs::write(root.join("v1/t.yaml"), "").unwrap();
        symlink("v1", root.join("..data")).unwrap();
        symlink("..data/t.yaml", root.join("t.yaml")).unwrap();
        fs::create_dir(root.join("out")).unwrap();
        symlink(&root, root.join("out/current")).unwrap();
        let seen = names(&root.join("out/./current/t.yaml"));
        let expected = ["out/current", "t.yaml", "..data", "v1/t.yaml"].map(|name| root.join(name));
        assert_eq!(seen, expected);
    }

    #[test]
    fn what_is_missing_is_named_where_it_would_appear() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        assert_eq!(names(&root.join("a/b/t.yaml")), [root.join("a")]);
        symlink("gone", root.join("t.yaml")).unwrap();
        assert_eq!(names(&root.join("t.yaml")), [root.join("t.yaml"), root.join("gone")]);
    }

    #[test]
    fn a_circle_of_links_ends() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        symlink("b", root.join("a")).unwrap();
        symlink("a", root.join("b")).unwrap();
        assert_eq!(names(&root.join("a")).len(), LINKS_MAX + 1);
    }
}
