//! The walk over trees that are only names.

use super::{FileListToken, PackageWalk, WalkEntryKind, WalkLimits};
use crate::domain::{RelPath, handle};
use proptest::prelude::*;
use std::collections::BTreeMap;

const NO_LIMITS: WalkLimits = WalkLimits { entries: 1_000, depth: 100, path_bytes: 1_000 };

/// A tree by path; a link to a directory is a `Link` that has entries below it.
type Tree = BTreeMap<RelPath, WalkEntryKind>;

fn children(tree: &Tree, dir: &RelPath) -> Vec<(Box<[u8]>, WalkEntryKind)> {
    let of = |(path, kind): (&RelPath, &WalkEntryKind)| {
        let name = path.file_name()?.into();
        (path.parent().as_ref() == Some(dir)).then_some((name, *kind))
    };
    tree.iter().filter_map(of).collect()
}

/// One page of at most `most` files, and where the next begins.
fn list_page(
    tree: &Tree,
    bounds: WalkLimits,
    from: Option<&FileListToken>,
    most: usize,
) -> (Vec<RelPath>, Option<FileListToken>, bool) {
    let mut walk = PackageWalk::new(bounds, from);
    walk.enter_dir((), RelPath::root(), children(tree, &RelPath::root()));
    let (mut files, mut bookmark) = (Vec::new(), None);
    while let Some((path, kind)) = walk.next() {
        let below = children(tree, &path);
        match kind {
            WalkEntryKind::Link if !below.is_empty() => walk.requeue_link_as_dir(&path),
            WalkEntryKind::File | WalkEntryKind::Link if files.len() == most => {
                return (files, bookmark, false);
            }
            WalkEntryKind::File | WalkEntryKind::Link => {
                bookmark = Some(walk.token_after(path.clone()));
                files.push(path);
            }
            // It came as a file already.
            WalkEntryKind::LinkedDirectory if below.is_empty() => {}
            WalkEntryKind::Directory | WalkEntryKind::LinkedDirectory => {
                walk.enter_dir((), path, below)
            }
        }
    }
    (files, None, walk.is_truncated())
}

fn list_all_pages(tree: &Tree, bounds: WalkLimits, most: usize) -> (Vec<RelPath>, bool) {
    let (mut files, mut next, mut truncated) = list_page(tree, bounds, None, most);
    while let Some(bookmark) = next {
        let (more, after, cut) = list_page(tree, bounds, Some(&bookmark), most);
        assert!(!more.is_empty(), "a page behind a bookmark has a file");
        files.extend(more);
        (next, truncated) = (after, cut);
    }
    (files, truncated)
}

fn path(text: &str) -> RelPath {
    RelPath::new(text.as_bytes()).expect("a path")
}

/// `a/` is a directory, `a@` a link; what is above a path is a directory unless it says otherwise.
fn tree(paths: &[&str]) -> Tree {
    let mut tree = Tree::new();
    for text in paths {
        let (text, kind) = match (text.strip_suffix('/'), text.strip_suffix('@')) {
            (Some(dir), _) => (dir, WalkEntryKind::Directory),
            (_, Some(link)) => (link, WalkEntryKind::Link),
            _ => (*text, WalkEntryKind::File),
        };
        tree.insert(path(text), kind);
        let mut above = path(text);
        while let Some(parent) = above.parent().filter(|parent| !parent.is_root()) {
            tree.entry(parent.clone()).or_insert(WalkEntryKind::Directory);
            above = parent;
        }
    }
    tree
}

fn names(files: &[RelPath]) -> Vec<String> {
    files.iter().map(ToString::to_string).collect()
}

#[test]
fn the_order_is_that_of_handles() {
    let tree = tree(&["a@", "a/x", "a-b", "a b", "a.c", "a0", "b/x/y", "b-", "f@"]);
    let (files, truncated) = list_all_pages(&tree, NO_LIMITS, 100);
    assert_eq!(names(&files), ["a b", "a-b", "a.c", "a/x", "a0", "b-", "b/x/y", "f"]);
    assert!(!truncated);
}

#[test]
fn bounds_cut_and_say_so() {
    let tree = tree(&["a", "b/c/d", "b/e", "f"]);
    let cut = |bounds| {
        let (files, truncated) = list_all_pages(&tree, bounds, 100);
        (names(&files), truncated)
    };
    let entries = |entries| WalkLimits { entries, ..NO_LIMITS };
    assert!(!cut(entries(6)).1);
    assert_eq!(cut(entries(5)), (vec!["a".into(), "b/c/d".into(), "b/e".into()], true));
    assert_eq!(cut(entries(3)), (vec!["a".into()], true));
    assert_eq!(cut(entries(0)), (Vec::new(), true));
    let depth = |depth| WalkLimits { depth, ..NO_LIMITS };
    assert!(!cut(depth(2)).1);
    assert_eq!(cut(depth(1)), (vec!["a".into(), "b/e".into(), "f".into()], true));
    let long = WalkLimits { path_bytes: 4, ..NO_LIMITS };
    assert_eq!(cut(long), (vec!["a".into(), "b/e".into(), "f".into()], true));
}

#[test]
fn goes_on_after_a_name_that_is_gone() {
    let before = tree(&["a", "b/c", "b/d", "e"]);
    let (files, bookmark, _) = list_page(&before, NO_LIMITS, None, 2);
    assert_eq!(names(&files), ["a", "b/c"]);
    for after in
        [&["a", "b/d", "e"][..], &["b/d", "b@", "e"], &["b/a", "b/d", "e"], &["b", "b/d", "e"]]
    {
        let after = tree(after);
        let (files, _, _) = list_page(&after, NO_LIMITS, bookmark.as_ref(), 9);
        let expected = if after.get(&path("b")) == Some(&WalkEntryKind::File) {
            vec!["e"]
        } else {
            vec!["b/d", "e"]
        };
        assert_eq!(names(&files), expected);
    }
}

/// Trees of a few names that sort in surprising ways.
fn arbitrary_trees() -> impl Strategy<Value = Tree> {
    let name = prop_oneof![Just("a"), Just("a-"), Just("a."), Just("a0"), Just("b"), Just(" ")];
    let place = proptest::collection::vec(name, 1..4).prop_map(|names| names.join("/"));
    let entry = (place, any::<bool>());
    proptest::collection::vec(entry, 0..24).prop_map(|entries| {
        let mut all = Tree::new();
        for (place, link) in entries {
            let place = path(&place);
            let mut above = place.parent();
            let mut ways = Vec::new();
            while let Some(dir) = above.filter(|dir| !dir.is_root()) {
                above = dir.parent();
                ways.push(dir);
            }
            if ways.iter().any(|dir| all.get(dir) == Some(&WalkEntryKind::File))
                || all.contains_key(&place)
            {
                continue;
            }
            for dir in ways {
                all.entry(dir).or_insert(if link {
                    WalkEntryKind::Link
                } else {
                    WalkEntryKind::Directory
                });
            }
            all.insert(place, if link { WalkEntryKind::Link } else { WalkEntryKind::File });
        }
        all
    })
}

proptest! {
    #[test]
    fn pages_joined_are_the_list(
        tree in arbitrary_trees(), most in 1_usize..5, entries in 0_usize..30, depth in 0_usize..4
    ) {
        let bounds = WalkLimits { entries, depth, ..NO_LIMITS };
        let (whole, truncated) = list_all_pages(&tree, bounds, usize::MAX);
        prop_assert_eq!(list_all_pages(&tree, bounds, most), (whole.clone(), truncated));
        prop_assert!(whole.is_sorted_by(|a, b| handle::compare_encoded(a, b).is_lt()));
        let is_leaf = |(path, kind): &(&RelPath, &WalkEntryKind)| {
            **kind != WalkEntryKind::Directory && children(&tree, path).is_empty()
        };
        let leaves = tree.iter().filter(is_leaf).count();
        prop_assert!(truncated || whole.len() == leaves);
        prop_assert!(whole.len() <= entries);
    }
}
