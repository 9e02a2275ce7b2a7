//! The law of lists of files: what is listed can be read, and what a walk meets that can be read is
//! listed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use caproot::catalog::OpenMethod;
use caproot::proto::caproot::v1::ListResourcesRequest;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::fixture::Fixture;
use crate::harness::{Daemon, Setup, by_both_openers, short_or_long, read_request, rpc_error, selected};
use crate::resources::{all, request};

by_both_openers! {
    fn what_is_listed_is_what_can_be_read;
}

/// What a tree may hold at a place of the package or beside it.
#[derive(Debug, Clone)]
enum Thing {
    File,
    Link(String),
    Fifo,
}

/// Few names and few places for links to lead to, so that they often meet.
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

fn trees() -> impl Strategy<Value = BTreeMap<String, Thing>> {
    let target = proptest::sample::select(&TARGETS[..]).prop_map(str::to_owned);
    let thing = prop_oneof![
        5 => Just(Thing::File),
        4 => prop_oneof![3 => target, 1 => places()].prop_map(Thing::Link),
        1 => Just(Thing::Fifo),
    ];
    proptest::collection::btree_map(places(), thing, 4..32)
}

/// Builds a tree as far as its entries do not stand in each other's way.
fn build(tree: &BTreeMap<String, Thing>) -> Fixture {
    let mut fixture = Fixture::new("dir root/a\ndir also\ndir out");
    for (place, thing) in tree {
        let path = fixture.path(place);
        let taken = path.symlink_metadata().is_ok();
        let parent = path.parent().expect("a parent");
        // Whatever is made is made where its name says, and not behind a link.
        let real = |path: &Path| path.canonicalize().is_ok_and(|real| real == *path);
        let mut above = parent.ancestors();
        let there = above.find(|p| p.symlink_metadata().is_ok()).expect("the top is there");
        if taken || !real(there) || !there.is_dir() {
            continue;
        }
        fixture.add(&match thing {
            Thing::File => format!("file {place}\n| {place}"),
            Thing::Link(target) => format!("link {place} -> $TMP/{target}"),
            Thing::Fifo => format!("fifo {place}"),
        });
    }
    let main = fixture.path("root/a/SKILL.md");
    if main.symlink_metadata().is_ok() {
        drop(fs::remove_dir_all(&main).or_else(|_| fs::remove_file(&main)));
    }
    fixture.add("skill root/a");
    fixture
}

/// Every path of the package that leads to something that is no directory, found with the standard
/// library: links followed, except back to a directory on the way; nothing said of permission.
fn everything(dir: &Path, way: &mut Vec<PathBuf>, found: &mut BTreeSet<PathBuf>) {
    let real = dir.canonicalize().expect("it is there");
    if way.contains(&real) {
        return;
    }
    way.push(real);
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            everything(&path, way, found);
        } else {
            found.insert(path);
        }
    }
    way.pop();
}

fn what_is_listed_is_what_can_be_read(opener: OpenMethod) {
    let config = Config { cases: short_or_long(32, 96), failure_persistence: None, ..Config::default() };
    let law = |tree: BTreeMap<String, Thing>, page_size: i32| {
        // Of its own, since it ends with all that the daemon holds of the kernel.
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let fixture = build(&tree);
        let (mut listed, mut readable, mut behind) = (BTreeSet::new(), BTreeSet::new(), 0);
        runtime.block_on(async {
            let setup = Setup::allowing([fixture.path("root"), fixture.path("also")]);
            let daemon = Daemon::start(setup.with_opener(opener)).await;
            let root = selected("r", fixture.path("root"));
            let asking = ListResourcesRequest { page_size, ..request(&root) };
            for resource in all(&daemon, asking).await.0 {
                let read = read_request(&root, "skill://r/a", &resource.resource);
                let bytes = daemon.read_all(read).await.expect("what is listed can be read");
                assert_eq!(resource.size_bytes, bytes.len() as u64);
                listed.insert(resource.resource);
            }
            let top = fixture.path("root/a");
            let mut paths = BTreeSet::new();
            everything(&top, &mut Vec::new(), &mut paths);
            for path in paths {
                let below = path.strip_prefix(&top).expect("below").to_str().expect("UTF-8");
                let handle = format!("skill://r/a/{below}");
                match daemon.read(read_request(&root, "skill://r/a", &handle)).await {
                    Ok(_) if is_behind_a_passed_over_place(&path, &fixture) => behind += 1,
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
        prop_assert_eq!(listed, readable, "of {:?}, {} behind", tree, behind);
        Ok(())
    };
    TestRunner::new(config)
        .run(&(trees(), 1_i32..4), |(tree, page_size)| law(tree, page_size))
        .expect("listed if and only if readable");
}

/// Whether a directory on the way really is a place that is not listed: outside the allowed roots,
/// or passed over. A link in it may lead out again, to what can be read.
fn is_behind_a_passed_over_place(path: &Path, fixture: &Fixture) -> bool {
    let (package, root) = (fixture.path("root/a"), fixture.path("root"));
    let also = fixture.path("also");
    let mut dirs = path.ancestors().skip(1).take_while(|dir| dir.starts_with(&package));
    dirs.any(|dir| {
        let real = dir.canonicalize().expect("it is there");
        let below = [&package, &root, &also].into_iter().find_map(|d| real.strip_prefix(d).ok());
        let is_barred = |name: &str| name == ".git" || name.starts_with(".env");
        below.is_none_or(|b| b.iter().any(|name| name.to_str().is_none_or(is_barred)))
    })
}
