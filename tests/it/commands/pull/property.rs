//! Property: after a pull, the directory equals the package, for any tree and any change of it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use caproot_client::pull::{PullRequest, pull_package, verify_dir};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{FileTree, read_tree};
use crate::harness::fixture::Fixture;
use crate::harness::watch_harness::fresh_list;
use crate::harness::{Daemon, Setup, located, short_or_long};
use crate::orchestrator::client;

/// Names that need an encoding, or that mean something elsewhere.
const NAMES: [&[u8]; 10] = [
    b"a",
    b"a",
    b"b c",
    b"%41",
    b"%2e%2e",
    "\u{fc}".as_bytes(),
    b".h",
    b".h..",
    b"\xff",
    b"-\n",
];

fn trees() -> impl Strategy<Value = FileTree> {
    let name = proptest::sample::select(&NAMES[..]);
    let path = proptest::collection::vec(name, 1..4).prop_map(|names| names.join(&b'/'));
    let content = proptest::collection::vec(any::<u8>(), 0..200);
    proptest::collection::btree_map(path, (content, any::<bool>()), 0..10)
}

/// Replaces the files below a directory. Entries that conflict with earlier entries are skipped.
fn write_tree(dir: &Path, tree: &FileTree) {
    fs::remove_dir_all(dir).expect("remove");
    fs::create_dir(dir).expect("create");
    let skill: BTreeMap<_, _> = [(
        b"SKILL.md".to_vec(),
        (b"---\ndescription: Does it.\n---\n".to_vec(), false),
    )]
    .into();
    for (path, (content, executable)) in skill.iter().chain(tree) {
        let path = dir.join(OsStr::from_bytes(path));
        let parent = path.parent().expect("below the directory");
        if fs::create_dir_all(parent).is_err() || fs::write(&path, content).is_err() {
            continue;
        }
        let mode = if *executable { 0o755 } else { 0o644 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
    }
}

#[test]
fn a_pulled_directory_equals_the_package() {
    let config = Config {
        cases: short_or_long(24, 200),
        failure_persistence: None,
        ..Config::default()
    };
    let property = |states: Vec<FileTree>| {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let fixture = Fixture::new("skill r/s\ndir out");
        runtime.block_on(async {
            let daemon = Daemon::start(Setup::publishing("r", fixture.path("r"))).await;
            let client = client(&daemon.address).await;
            let (package, out) = (fixture.path("r/s"), fixture.path("out/s"));
            let root = located("r", "published:r");
            for state in &states {
                write_tree(&package, state);
                let list = fresh_list(&daemon, std::slice::from_ref(&root)).await;
                assert_eq!(
                    list.skills
                        .iter()
                        .filter(|s| s.package == "skill://r/s")
                        .count(),
                    1
                );
                let request = PullRequest::new(root.clone(), "skill://r/s", &out);
                let report = pull_package(&client, &request, &mut |_| {})
                    .await
                    .expect("a pull");
                let expected = read_tree(&package);
                assert_eq!(read_tree(&out), expected);
                assert_eq!(report.files, expected.len());
                let verified = verify_dir(&out).expect("a pulled directory");
                assert_eq!(
                    (verified.differences, verified.files),
                    (vec![], expected.len())
                );
                let again = pull_package(&client, &request, &mut |_| {})
                    .await
                    .expect("a pull");
                assert!(!again.is_replaced && again.written.is_empty(), "{again:?}");
            }
            daemon.stop().await;
        });
        Ok(())
    };
    TestRunner::new(config)
        .run(&proptest::collection::vec(trees(), 1..4), property)
        .expect("the directory equals the package");
}
