//! Property of lists of files: each listed file can be read, and each readable file of a walk is
//! listed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use caproot::daemon::catalog::OpenMethod;
use caproot_core::proto::caproot::v1::ListResourcesRequest;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::calls::resources::{list_all, request};
use crate::harness::fixture::Fixture;
use crate::harness::{
    Daemon, Setup, by_both_openers, read_request, rpc_error, selected, short_or_long,
};

by_both_openers! {
    fn listed_files_are_exactly_the_readable_files;
}

/// Entry of a random tree, in the package or next to it.
#[derive(Debug, Clone)]
enum TreeEntry {
    File,
    Link(String),
    Fifo,
}

/// Few names and few link targets, so that they often collide.
const TOPS: [&str; 6] = ["root/a", "root/a", "root/a", "root", "also", "out"];
const NAMES: [&str; 8] = ["d", "d", "e", "e", "x", ".git", ".env", "d-"];
const TARGETS: [&str; 12] = [
    "root",
    "root/a",
    "root/a/d",
    "root/a/e",
    "root/a/d/e",
    "root/a/.git",
    "root/d",
    "root/.git",
    "also",
    "also/d",
    "out",
    "root/a/x",
];

fn places() -> impl Strategy<Value = String> {
    let names = proptest::collection::vec(proptest::sample::select(&NAMES[..]), 1..4);
    (proptest::sample::select(&TOPS[..]), names)
        .prop_map(|(top, names)| format!("{top}/{}", names.join("/")))
}

fn trees() -> impl Strategy<Value = BTreeMap<String, TreeEntry>> {
    let target = proptest::sample::select(&TARGETS[..]).prop_map(str::to_owned);
    let thing = prop_oneof![
        5 => Just(TreeEntry::File),
        4 => prop_oneof![3 => target, 1 => places()].prop_map(TreeEntry::Link),
        1 => Just(TreeEntry::Fifo),
    ];
    proptest::collection::btree_map(places(), thing, 4..32)
}

/// Builds a tree and skips entries that conflict with earlier entries.
fn build(tree: &BTreeMap<String, TreeEntry>) -> Fixture {
    let mut fixture = Fixture::new("dir root/a\ndir also\ndir out");
    for (place, thing) in tree {
        let path = fixture.path(place);
        let taken = path.symlink_metadata().is_ok();
        let parent = path.parent().expect("a parent");
        // Entries are created at their own path, never behind a link.
        let real = |path: &Path| path.canonicalize().is_ok_and(|real| real == *path);
        let mut above = parent.ancestors();
        let existing = above
            .find(|p| p.symlink_metadata().is_ok())
            .expect("the top exists");
        if taken || !real(existing) || !existing.is_dir() {
            continue;
        }
        fixture.add(&match thing {
            TreeEntry::File => format!("file {place}\n| {place}"),
            TreeEntry::Link(target) => format!("link {place} -> $TMP/{target}"),
            TreeEntry::Fifo => format!("fifo {place}"),
        });
    }
    let main = fixture.path("root/a/SKILL.md");
    if main.symlink_metadata().is_ok() {
        drop(fs::remove_dir_all(&main).or_else(|_| fs::remove_file(&main)));
    }
    fixture.add("skill root/a");
    fixture
}

/// Collects every path of the package that leads to a file, with the standard library. Links are
/// followed, except back to a directory on the current path. Permissions are ignored.
fn collect_files(dir: &Path, ancestors: &mut Vec<PathBuf>, found: &mut BTreeSet<PathBuf>) {
    let real = dir.canonicalize().expect("an existing directory");
    if ancestors.contains(&real) {
        return;
    }
    ancestors.push(real);
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect_files(&path, ancestors, found);
        } else {
            found.insert(path);
        }
    }
    ancestors.pop();
}

fn listed_files_are_exactly_the_readable_files(opener: OpenMethod) {
    let config = Config {
        cases: short_or_long(32, 96),
        failure_persistence: None,
        ..Config::default()
    };
    let property = |tree: BTreeMap<String, TreeEntry>, page_size: i32| {
        // A runtime per tree, which frees all kernel resources of the daemon at its end.
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let fixture = build(&tree);
        let (mut listed, mut readable, mut in_skipped) = (BTreeSet::new(), BTreeSet::new(), 0);
        runtime.block_on(async {
            let setup = Setup::allowing([fixture.path("root"), fixture.path("also")]);
            let daemon = Daemon::start(setup.with_opener(opener)).await;
            let root = selected("r", fixture.path("root"));
            let list_request = ListResourcesRequest {
                page_size,
                ..request(&root)
            };
            for resource in list_all(&daemon, list_request).await.0 {
                let read = read_request(&root, "skill://r/a", &resource.resource);
                let bytes = daemon
                    .read_all(read)
                    .await
                    .expect("a listed file can be read");
                assert_eq!(resource.size_bytes, bytes.len() as u64);
                listed.insert(resource.resource);
            }
            let top = fixture.path("root/a");
            let mut paths = BTreeSet::new();
            collect_files(&top, &mut Vec::new(), &mut paths);
            for path in paths {
                let below = path
                    .strip_prefix(&top)
                    .expect("below")
                    .to_str()
                    .expect("UTF-8");
                let handle = format!("skill://r/a/{below}");
                match daemon
                    .read(read_request(&root, "skill://r/a", &handle))
                    .await
                {
                    Ok(_) if is_in_skipped_directory(&path, &fixture) => in_skipped += 1,
                    Ok(_) => drop(readable.insert(handle)),
                    Err(status) => {
                        let refused = rpc_error(&status);
                        let known = ["RESOURCE_NOT_FOUND", "OUTSIDE_ROOT"];
                        assert!(known.contains(&&*refused.reason), "{handle}: {refused:?}");
                    }
                }
            }
            daemon.stop().await;
        });
        prop_assert_eq!(
            listed,
            readable,
            "tree {:?}, {} in skipped directories",
            tree,
            in_skipped
        );
        Ok(())
    };
    TestRunner::new(config)
        .run(&(trees(), 1_i32..4), |(tree, page_size)| {
            property(tree, page_size)
        })
        .expect("listed if and only if readable");
}

/// Whether a directory on the path is never listed because it is skipped or outside the allowed
/// directories. A link in such a directory may lead back to a readable file.
fn is_in_skipped_directory(path: &Path, fixture: &Fixture) -> bool {
    let (package, root) = (fixture.path("root/a"), fixture.path("root"));
    let also = fixture.path("also");
    let mut dirs = path
        .ancestors()
        .skip(1)
        .take_while(|dir| dir.starts_with(&package));
    dirs.any(|dir| {
        let real = dir.canonicalize().expect("an existing directory");
        let below = [&package, &root, &also]
            .into_iter()
            .find_map(|d| real.strip_prefix(d).ok());
        let is_barred = |name: &str| name == ".git" || name.starts_with(".env");
        below.is_none_or(|b| b.iter().any(|name| name.to_str().is_none_or(is_barred)))
    })
}
