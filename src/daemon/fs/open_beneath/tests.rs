// Skipped tests print the reason.
#![allow(clippy::print_stdout)]

use super::{OpenMethod, check_beneath};
use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, mkfifoat, open};
use rustix::io::{Errno, Result as Io};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Flags of the `disk` module: to read attributes, to pass through, to list, to read.
const OPEN_FLAGS: [OFlags; 4] = [
    OFlags::PATH.union(OFlags::NOFOLLOW),
    OFlags::PATH.union(OFlags::DIRECTORY),
    OFlags::RDONLY.union(OFlags::DIRECTORY),
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY),
];
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn open_dir(dir: &Path) -> OwnedFd {
    open(dir, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).expect("a directory")
}

/// Returns the identity of the opened file, or the error.
fn inode_and_type(opened: Io<OwnedFd>) -> Result<(u64, FileType), Errno> {
    let stat = fstat(opened?)?;
    Ok((stat.st_ino, FileType::from_raw_mode(stat.st_mode)))
}

fn has_openat2() -> bool {
    let available = OpenMethod::probe() == OpenMethod::Openat2;
    if !available {
        println!("SKIPPED: openat2(2) is not available");
    }
    available
}

fn open_methods() -> Vec<OpenMethod> {
    if has_openat2() {
        vec![OpenMethod::Openat2, OpenMethod::Openat]
    } else {
        vec![OpenMethod::Openat]
    }
}

fn paths() -> impl Strategy<Value = String> {
    proptest::collection::vec(proptest::sample::select(&NAMES[..]), 1..5).prop_map(|n| n.join("/"))
}

/// Creates a tree. Entries whose parent is not a directory, or that exist, are skipped.
fn build(top: &Path, tree: &[(String, u8, String)]) {
    for (name, kind, target) in tree {
        let path = top.join(name);
        let parent = path.parent().expect("below the top");
        if path.symlink_metadata().is_ok() || fs::create_dir_all(parent).is_err() {
            continue;
        }
        let result = match kind {
            0..=2 => fs::create_dir(&path),
            3 | 4 => fs::write(&path, name),
            5 => symlink(target, &path),
            6 => symlink(top.join(target), &path),
            _ => mkfifoat(CWD, &path, Mode::RUSR).map_err(Into::into),
        };
        result.expect("the path does not exist yet");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_methods_agree(
        tree in proptest::collection::vec((paths(), 0u8..8, paths()), 1..12),
        others in proptest::collection::vec(paths(), 1..12),
    ) {
        if !has_openat2() {
            return Ok(());
        }
        let tmp = tempfile::tempdir().expect("a directory");
        build(tmp.path(), &tree);
        let base = open_dir(tmp.path());
        for path in tree.iter().map(|(name, ..)| name).chain(&others) {
            for flags in OPEN_FLAGS {
                let [one, other] = [OpenMethod::Openat2, OpenMethod::Openat]
                    .map(|opener| inode_and_type(opener.open(&base, path.as_bytes(), flags)));
                prop_assert_eq!(one, other, "{} {:?} in {:?}", path, flags, tree);
            }
        }
    }
}

#[test]
fn both_methods_agree_on_long_paths() {
    if !has_openat2() {
        return;
    }
    let tmp = tempfile::tempdir().expect("a directory");
    let base = open_dir(tmp.path());
    let name = "n".repeat(255);
    let long = [name.as_str(); 16].join("/");
    for path in [
        &long[..],
        &long[1..],
        &"n".repeat(256),
        "n",
        &"n/".repeat(3_000),
    ] {
        for flags in OPEN_FLAGS {
            let [one, other] = [OpenMethod::Openat2, OpenMethod::Openat]
                .map(|opener| inode_and_type(opener.open(&base, path.as_bytes(), flags)));
            assert_eq!(one, other, "{} bytes {flags:?}", path.len());
        }
    }
}

#[test]
fn both_methods_refuse_links_on_an_absolute_path() {
    let tmp = tempfile::tempdir().expect("a directory");
    let top = tmp.path().canonicalize().expect("a real path");
    fs::create_dir_all(top.join("a/b")).expect("directories");
    fs::write(top.join("f"), "").expect("a file");
    symlink("a", top.join("l")).expect("a link");
    let inode = |path: &str| {
        inode_and_type(open(path, OFlags::PATH, Mode::empty())).expect("the file exists")
    };
    for opener in open_methods() {
        let opened = |name: &str| {
            inode_and_type(opener.open_absolute_dir(top.join(name).as_os_str().as_encoded_bytes()))
        };
        assert_eq!(
            opened("a/b"),
            Ok(inode(top.join("a/b").to_str().expect("UTF-8")))
        );
        assert_eq!(opened("l/b"), Err(Errno::LOOP));
        assert_eq!(opened("l"), Err(Errno::LOOP));
        assert_eq!(opened("f"), Err(Errno::NOTDIR));
        assert_eq!(opened("f/x"), Err(Errno::NOTDIR));
        assert_eq!(opened("none"), Err(Errno::NOENT));
        for root in [&b""[..], b"/"] {
            assert_eq!(
                inode_and_type(opener.open_absolute_dir(root)),
                Ok(inode("/"))
            );
        }
        let magic = format!("/proc/{}/root/proc", std::process::id());
        assert_eq!(
            inode_and_type(opener.open_absolute_dir(magic.as_bytes())),
            Err(Errno::LOOP)
        );
    }
}

#[test]
fn a_file_that_was_moved_out_or_replaced_is_not_beneath() {
    if !Path::new("/proc/self/fd").exists() {
        println!("SKIPPED: /proc is not mounted");
        return;
    }
    let tmp = tempfile::tempdir().expect("a directory");
    for dir in ["in/d/e", "in2", "out"] {
        fs::create_dir_all(tmp.path().join(dir)).expect("a directory");
    }
    let base = open_dir(&tmp.path().join("in"));
    let file = |name: &str| {
        fs::write(tmp.path().join("in").join(name), "x").expect("a file");
        OpenMethod::Openat
            .open(&base, name.as_bytes(), OFlags::RDONLY)
            .expect("beneath")
    };
    let dir = OpenMethod::Openat
        .open(&base, b"d/e", OFlags::PATH)
        .expect("beneath");
    // No caller uses such a path. A file above the base is never returned.
    for above in [&b".."[..], b"../out", b"d/../../out"] {
        for opener in open_methods() {
            assert_eq!(
                inode_and_type(opener.open(&base, above, OFlags::PATH)),
                Err(Errno::XDEV)
            );
        }
    }
    let (inner, odd, gone) = (file("d/x"), file("odd (deleted)"), file("gone"));
    assert_eq!(check_beneath(&inner, &base, b"x"), Ok(()));
    assert_eq!(check_beneath(&odd, &base, b"odd (deleted)"), Ok(()));
    fs::remove_file(tmp.path().join("in/gone")).expect("remove");
    assert_eq!(check_beneath(&gone, &base, b"gone"), Err(Errno::AGAIN));
    for away in ["out/d", "in2/d"] {
        fs::rename(tmp.path().join("in/d"), tmp.path().join(away)).expect("move out");
        assert_eq!(check_beneath(&inner, &base, b"x"), Err(Errno::XDEV));
        assert_eq!(check_beneath(&dir, &base, b"e"), Err(Errno::XDEV));
        fs::rename(tmp.path().join(away), tmp.path().join("in/d")).expect("move in");
        assert_eq!(check_beneath(&inner, &base, b"x"), Ok(()));
    }
    // The base itself may move.
    fs::rename(tmp.path().join("in"), tmp.path().join("elsewhere")).expect("move");
    assert_eq!(check_beneath(&inner, &base, b"x"), Ok(()));
}
