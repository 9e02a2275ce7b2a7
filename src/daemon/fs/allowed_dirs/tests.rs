//! Tests of resolving and opening, mainly with an access scope.

use super::{AllowedDirs, AllowedDirsSnapshot, OpenMethod, ResolveError};
use crate::daemon::model::ResolvedPath;
use caproot_core::wire::RelPath;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

fn tree() -> (TempDir, PathBuf) {
    let tmp = tempfile::tempdir().expect("a directory");
    let top = tmp.path().canonicalize().expect("real");
    for dir in ["a/in/deep", "a/out", "b"] {
        fs::create_dir_all(top.join(dir)).expect("a directory");
    }
    symlink("../out", top.join("a/in/link")).expect("a link");
    symlink("a/in", top.join("to-in")).expect("a link");
    (tmp, top)
}

fn allowed_dirs(top: &Path, scope: &[&str]) -> AllowedDirs {
    let join = |dirs: &[&str]| dirs.iter().map(|dir| top.join(dir)).collect();
    AllowedDirs::with_access_scope(OpenMethod::probe(), join(&["a", "b"]), join(scope))
}

fn snapshot(top: &Path, scope: &[&str]) -> Arc<AllowedDirsSnapshot> {
    allowed_dirs(top, scope).snapshot_for_path(b"/")
}

fn resolve(snapshot: &AllowedDirsSnapshot, path: &Path) -> Result<ResolvedPath, ResolveError> {
    snapshot.resolve(path.as_os_str().as_bytes())
}

#[test]
fn nothing_outside_the_access_scope_is_resolved_or_opened() {
    let (_tmp, top) = tree();
    let whole = AllowedDirs::new(vec![top.join("a"), top.join("b")]).snapshot_for_path(b"/");
    for (scope, path, expected) in [
        (&["a/in"][..], "a/in", Ok(())),
        (&["a/in"], "a/in/deep", Ok(())),
        (&["a/in"], "to-in/deep", Ok(())),
        (&["a/in"], "a/in/none", Err(ResolveError::Missing)),
        (&["a/in"], "a", Err(ResolveError::Outside)),
        (&["a/in"], "a/out", Err(ResolveError::Outside)),
        (&["a/in"], "a/in/link", Err(ResolveError::Outside)),
        (&["a/in"], "a/none", Err(ResolveError::Outside)),
        (&["a/in"], "a/inn", Err(ResolveError::Outside)),
        (&["a/in"], "b", Err(ResolveError::Outside)),
        // A link in the scope stands for its target. A directory of the scope need not exist.
        (&["to-in"], "a/in/deep", Ok(())),
        (&["a/none"], "a/none", Err(ResolveError::Missing)),
        (&["a/none"], "a/in", Err(ResolveError::Outside)),
        // A directory above allowed directories stands for them. Other directories add nothing.
        (&["."], "a/out", Ok(())),
        (&["."], "b", Ok(())),
        (&["."], ".", Err(ResolveError::Outside)),
        (&["c"], "a", Err(ResolveError::Outside)),
        (&[], "a", Err(ResolveError::Outside)),
        (&["a/in", "b"], "b", Ok(())),
    ] {
        let snapshot = snapshot(&top, scope);
        let resolved = resolve(&snapshot, &top.join(path));
        assert_eq!(resolved.clone().map(drop), expected, "{scope:?} {path}");
        // A path from another snapshot cannot be opened either.
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        if let Ok(located) = resolve(&whole, &top.join(path)) {
            let opened = snapshot.open(&located, flags).map(drop);
            let expected = if expected.is_ok() {
                Ok(())
            } else {
                Err(Errno::XDEV)
            };
            assert_eq!(opened, expected, "{scope:?} {path}");
            assert!(
                snapshot
                    .without_access_scope()
                    .open(&located, flags)
                    .is_ok(),
                "{scope:?} {path}"
            );
        }
    }
}

#[test]
fn a_path_is_located_among_directories_with_similar_names() {
    let (_tmp, top) = tree();
    for dir in ["a-b/in", "a.b"] {
        fs::create_dir_all(top.join(dir)).expect("a directory");
    }
    let configured = ["a-b", "a/in", "b", "a", "a.b"].map(|dir| top.join(dir));
    let snapshot = AllowedDirs::new(configured.to_vec()).snapshot_for_path(b"/");
    for path in [
        "a",
        "a/in",
        "a/in/deep",
        "a/out",
        "a-b",
        "a-b/in",
        "a.b",
        "b",
    ] {
        let resolved = resolve(&snapshot, &top.join(path)).expect(path);
        let absolute = snapshot.absolute_bytes(&resolved);
        assert_eq!(absolute, top.join(path).as_os_str().as_bytes());
    }
    for path in [".", "a-", "a-b.c", "aa", "c"] {
        assert_eq!(
            resolve(&snapshot, &top.join(path)),
            Err(ResolveError::Outside),
            "{path}"
        );
    }
    // The root of the file system holds every path.
    let snapshot = AllowedDirs::new(vec![top.join("a"), "/".into()]).snapshot_for_path(b"/");
    let resolved = resolve(&snapshot, &top.join("b")).expect("inside");
    let absolute = snapshot.absolute_bytes(&resolved);
    assert_eq!(absolute, top.join("b").as_os_str().as_bytes());
}

#[test]
fn a_directory_that_becomes_a_link_is_not_followed() {
    let (_tmp, top) = tree();
    let snapshot = snapshot(&top, &["a/in"]);
    let resolved = resolve(&snapshot, &top.join("a/in/deep")).expect("inside");
    fs::remove_dir(top.join("a/in/deep")).expect("removed");
    symlink("../out", top.join("a/in/deep")).expect("a link");
    assert_eq!(
        snapshot.open(&resolved, OFlags::PATH).map(drop),
        Err(Errno::LOOP)
    );
    // The same holds if the directory of the scope becomes a link.
    fs::rename(top.join("a/in"), top.join("a/was")).expect("renamed");
    symlink("out", top.join("a/in")).expect("a link");
    let scope = ResolvedPath {
        dir_index: resolved.dir_index,
        rel_path: RelPath::new(b"in").expect("a path"),
    };
    assert_eq!(
        snapshot.open(&scope, OFlags::PATH).map(drop),
        Err(Errno::LOOP)
    );
}

#[test]
fn the_snapshot_is_replaced_when_a_scope_link_is_retargeted() {
    let (_tmp, top) = tree();
    let allowed = allowed_dirs(&top, &["to-in"]);
    let first = allowed.snapshot_for_path(b"/");
    assert!(Arc::ptr_eq(&first, &allowed.snapshot_for_path(b"/")));
    fs::remove_file(top.join("to-in")).expect("removed");
    symlink("a/out", top.join("to-in")).expect("a link");
    let second = allowed.snapshot_for_path(b"/");
    assert!(!Arc::ptr_eq(&first, &second));
    assert_eq!(
        resolve(&second, &top.join("a/in")).map(drop),
        Err(ResolveError::Outside)
    );
    assert_eq!(resolve(&second, &top.join("a/out")).map(drop), Ok(()));
}

#[test]
fn a_path_that_leaves_and_returns_does_not_leak_existence() {
    let (_tmp, top) = tree();
    fs::create_dir(top.join("there")).expect("a directory");
    let snapshot = AllowedDirs::new(vec![top.join("a")]).snapshot_for_path(b"/");
    for (path, expected) in [
        ("there/../a/in", Err(ResolveError::Outside)),
        ("gone/../a/in", Err(ResolveError::Outside)),
        ("a/in/../in", Ok(())),
        ("a/in/../../a/in", Ok(())),
        ("a/gone/../in", Err(ResolveError::Missing)),
        // The caller did not write the target of a link outside.
        ("to-in/deep", Ok(())),
    ] {
        assert_eq!(
            resolve(&snapshot, &top.join(path)).map(drop),
            expected,
            "{path}"
        );
    }
    let holder = resolve(&snapshot, &top.join("a/in")).expect("inside");
    for (target, expected) in [
        ("../../there/../a/in", Err(ResolveError::Outside)),
        ("../../gone/../a/in", Err(ResolveError::Outside)),
        ("../../a/in/deep", Ok(())),
    ] {
        let followed = snapshot.resolve_link(&holder, b"link", target.as_bytes());
        assert_eq!(followed.map(drop), expected, "{target}");
    }
    // A path from the configuration may leave the allowed directories on the way.
    let configured = AllowedDirs::new(vec![top.join("there/../a")]).snapshot_for_path(b"/");
    assert_eq!(
        resolve(&configured, &top.join("there/../a")).map(drop),
        Ok(())
    );
}
