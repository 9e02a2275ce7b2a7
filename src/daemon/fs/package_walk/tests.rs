//! Tests of the walk over trees in memory.

use super::{FileListToken, PackageWalk, WalkEntryKind, WalkLimits};
use caproot_core::wire::{RelPath, handle};
use proptest::prelude::*;
use std::collections::BTreeMap;

const NO_LIMITS: WalkLimits = WalkLimits {
    entries: 1_000,
    depth: 100,
    path_bytes: 1_000,
};

/// Tree by path. A link to a directory is a `Link` with entries below it.
type Tree = BTreeMap<RelPath, WalkEntryKind>;

fn children(tree: &Tree, dir: &RelPath) -> Vec<(Box<[u8]>, WalkEntryKind)> {
    let of = |(path, kind): (&RelPath, &WalkEntryKind)| {
        let name = path.file_name()?.into();
        (path.parent().as_ref() == Some(dir)).then_some((name, *kind))
    };
    tree.iter().filter_map(of).collect()
}

/// Returns a page of at most `max_files` files, the token of the next page, and whether a limit
/// omitted an entry.
fn list_page(
    tree: &Tree,
    limits: WalkLimits,
    from: Option<&FileListToken>,
    max_files: usize,
) -> (Vec<RelPath>, Option<FileListToken>, bool) {
    let mut walk = PackageWalk::new(limits, from);
    walk.enter_dir((), RelPath::root(), children(tree, &RelPath::root()));
    let (mut files, mut token) = (Vec::new(), None);
    while let Some((path, kind)) = walk.next() {
        let below = children(tree, &path);
        match kind {
            WalkEntryKind::Link if !below.is_empty() => walk.requeue_link_as_dir(&path),
            WalkEntryKind::File | WalkEntryKind::Link if files.len() == max_files => {
                return (files, token, false);
            }
            WalkEntryKind::File | WalkEntryKind::Link => {
                token = Some(walk.token_after(path.clone()));
                files.push(path);
            }
            // The walk returned the link as a file already.
            WalkEntryKind::LinkedDirectory if below.is_empty() => {}
            WalkEntryKind::Directory | WalkEntryKind::LinkedDirectory => {
                walk.enter_dir((), path, below);
            }
        }
    }
    (files, None, walk.is_truncated())
}

fn list_all_pages(tree: &Tree, limits: WalkLimits, max_files: usize) -> (Vec<RelPath>, bool) {
    let (mut files, mut next, mut truncated) = list_page(tree, limits, None, max_files);
    while let Some(token) = next {
        let (more, after, page_truncated) = list_page(tree, limits, Some(&token), max_files);
        assert!(!more.is_empty(), "a page after a token is not empty");
        files.extend(more);
        (next, truncated) = (after, page_truncated);
    }
    (files, truncated)
}

fn path(text: &str) -> RelPath {
    RelPath::new(text.as_bytes()).expect("a path")
}

/// Parses a tree. `a/` is a directory and `a@` a link. Parents that are not listed are directories.
fn tree(paths: &[&str]) -> Tree {
    let mut tree = Tree::new();
    for text in paths {
        let (text, kind) = match (text.strip_suffix('/'), text.strip_suffix('@')) {
            (Some(dir), _) => (dir, WalkEntryKind::Directory),
            (_, Some(link)) => (link, WalkEntryKind::Link),
            _ => (*text, WalkEntryKind::File),
        };
        tree.insert(path(text), kind);
        let mut parent_dir = path(text);
        while let Some(parent) = parent_dir.parent().filter(|parent| !parent.is_root()) {
            tree.entry(parent.clone())
                .or_insert(WalkEntryKind::Directory);
            parent_dir = parent;
        }
    }
    tree
}

fn names(files: &[RelPath]) -> Vec<String> {
    files.iter().map(ToString::to_string).collect()
}

#[test]
fn files_sort_by_their_handles() {
    let tree = tree(&["a@", "a/x", "a-b", "a b", "a.c", "a0", "b/x/y", "b-", "f@"]);
    let (files, truncated) = list_all_pages(&tree, NO_LIMITS, 100);
    assert_eq!(
        names(&files),
        ["a b", "a-b", "a.c", "a/x", "a0", "b-", "b/x/y", "f"]
    );
    assert!(!truncated);
}

#[test]
fn limits_truncate_the_list() {
    let tree = tree(&["a", "b/c/d", "b/e", "f"]);
    let list = |limits| {
        let (files, truncated) = list_all_pages(&tree, limits, 100);
        (names(&files), truncated)
    };
    let entries = |entries| WalkLimits {
        entries,
        ..NO_LIMITS
    };
    assert!(!list(entries(6)).1);
    assert_eq!(
        list(entries(5)),
        (vec!["a".into(), "b/c/d".into(), "b/e".into()], true)
    );
    assert_eq!(list(entries(3)), (vec!["a".into()], true));
    assert_eq!(list(entries(0)), (Vec::new(), true));
    let depth = |depth| WalkLimits { depth, ..NO_LIMITS };
    assert!(!list(depth(2)).1);
    assert_eq!(
        list(depth(1)),
        (vec!["a".into(), "b/e".into(), "f".into()], true)
    );
    let long = WalkLimits {
        path_bytes: 4,
        ..NO_LIMITS
    };
    assert_eq!(
        list(long),
        (vec!["a".into(), "b/e".into(), "f".into()], true)
    );
}

#[test]
fn a_page_continues_after_a_removed_file() {
    let before = tree(&["a", "b/c", "b/d", "e"]);
    let (files, token, _) = list_page(&before, NO_LIMITS, None, 2);
    assert_eq!(names(&files), ["a", "b/c"]);
    for after in [
        &["a", "b/d", "e"][..],
        &["b/d", "b@", "e"],
        &["b/a", "b/d", "e"],
        &["b", "b/d", "e"],
    ] {
        let after = tree(after);
        let (files, _, _) = list_page(&after, NO_LIMITS, token.as_ref(), 9);
        let expected = if after.get(&path("b")) == Some(&WalkEntryKind::File) {
            vec!["e"]
        } else {
            vec!["b/d", "e"]
        };
        assert_eq!(names(&files), expected);
    }
}

/// Generates trees of a few names whose paths and handles sort differently.
fn arbitrary_trees() -> impl Strategy<Value = Tree> {
    let name = prop_oneof![
        Just("a"),
        Just("a-"),
        Just("a."),
        Just("a0"),
        Just("b"),
        Just(" ")
    ];
    let place = proptest::collection::vec(name, 1..4).prop_map(|names| names.join("/"));
    let entry = (place, any::<bool>());
    proptest::collection::vec(entry, 0..24).prop_map(|entries| {
        let mut all = Tree::new();
        for (place, link) in entries {
            let place = path(&place);
            let mut parent_dir = place.parent();
            let mut parents = Vec::new();
            while let Some(dir) = parent_dir.filter(|dir| !dir.is_root()) {
                parent_dir = dir.parent();
                parents.push(dir);
            }
            if parents
                .iter()
                .any(|dir| all.get(dir) == Some(&WalkEntryKind::File))
                || all.contains_key(&place)
            {
                continue;
            }
            for dir in parents {
                all.entry(dir).or_insert(if link {
                    WalkEntryKind::Link
                } else {
                    WalkEntryKind::Directory
                });
            }
            all.insert(
                place,
                if link {
                    WalkEntryKind::Link
                } else {
                    WalkEntryKind::File
                },
            );
        }
        all
    })
}

proptest! {
    #[test]
    fn pages_joined_equal_the_whole_list(
        tree in arbitrary_trees(), max_files in 1_usize..5, entries in 0_usize..30, depth in 0_usize..4
    ) {
        let limits = WalkLimits { entries, depth, ..NO_LIMITS };
        let (whole, truncated) = list_all_pages(&tree, limits, usize::MAX);
        prop_assert_eq!(list_all_pages(&tree, limits, max_files), (whole.clone(), truncated));
        prop_assert!(whole.is_sorted_by(|a, b| handle::compare_encoded(a, b).is_lt()));
        let is_leaf = |(path, kind): &(&RelPath, &WalkEntryKind)| {
            **kind != WalkEntryKind::Directory && children(&tree, path).is_empty()
        };
        let leaves = tree.iter().filter(is_leaf).count();
        prop_assert!(truncated || whole.len() == leaves);
        prop_assert!(whole.len() <= entries);
    }
}
