//! Grounds that end at a bound.

use super::{Allowed, Blocked, Ground, Opener};
use crate::domain::{RelPath, Spot};
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

fn allowed(top: &Path, bound: &[&str]) -> Allowed {
    let join = |dirs: &[&str]| dirs.iter().map(|dir| top.join(dir)).collect();
    Allowed::bounded(Opener::probe(), join(&["a", "b"]), join(bound))
}

fn ground(top: &Path, bound: &[&str]) -> Arc<Ground> {
    allowed(top, bound).look_for(b"/")
}

fn resolve(ground: &Ground, path: &Path) -> Result<Spot, Blocked> {
    ground.resolve(path.as_os_str().as_bytes())
}

#[test]
fn nothing_outside_a_bound_is_resolved_or_opened() {
    let (_tmp, top) = tree();
    let whole = Allowed::new(vec![top.join("a"), top.join("b")]).look_for(b"/");
    for (bound, path, expected) in [
        (&["a/in"][..], "a/in", Ok(())),
        (&["a/in"], "a/in/deep", Ok(())),
        (&["a/in"], "to-in/deep", Ok(())),
        (&["a/in"], "a/in/none", Err(Blocked::Missing)),
        (&["a/in"], "a", Err(Blocked::Outside)),
        (&["a/in"], "a/out", Err(Blocked::Outside)),
        (&["a/in"], "a/in/link", Err(Blocked::Outside)),
        (&["a/in"], "a/none", Err(Blocked::Outside)),
        (&["a/in"], "a/inn", Err(Blocked::Outside)),
        (&["a/in"], "b", Err(Blocked::Outside)),
        // A link names what it leads to, and a directory that is not there yet names itself.
        (&["to-in"], "a/in/deep", Ok(())),
        (&["a/none"], "a/none", Err(Blocked::Missing)),
        (&["a/none"], "a/in", Err(Blocked::Outside)),
        // What is above allowed roots gives these, and what is beside them nothing.
        (&["."], "a/out", Ok(())),
        (&["."], "b", Ok(())),
        (&["."], ".", Err(Blocked::Outside)),
        (&["c"], "a", Err(Blocked::Outside)),
        (&[], "a", Err(Blocked::Outside)),
        (&["a/in", "b"], "b", Ok(())),
    ] {
        let ground = ground(&top, bound);
        let resolved = resolve(&ground, &top.join(path));
        assert_eq!(resolved.clone().map(drop), expected, "{bound:?} {path}");
        // Whoever has a spot from elsewhere cannot open it either.
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        if let Ok(spot) = resolve(&whole, &top.join(path)) {
            let opened = ground.open(&spot, flags).map(drop);
            let expected = if expected.is_ok() { Ok(()) } else { Err(Errno::XDEV) };
            assert_eq!(opened, expected, "{bound:?} {path}");
            assert!(ground.unbounded().open(&spot, flags).is_ok(), "{bound:?} {path}");
        }
    }
}

#[test]
fn a_place_is_found_among_roots_of_like_names() {
    let (_tmp, top) = tree();
    for dir in ["a-b/in", "a.b"] {
        fs::create_dir_all(top.join(dir)).expect("a directory");
    }
    let given = ["a-b", "a/in", "b", "a", "a.b"].map(|dir| top.join(dir));
    let ground = Allowed::new(given.to_vec()).look_for(b"/");
    for path in ["a", "a/in", "a/in/deep", "a/out", "a-b", "a-b/in", "a.b", "b"] {
        let spot = resolve(&ground, &top.join(path)).expect(path);
        assert_eq!(ground.native(&spot), top.join(path));
    }
    for path in [".", "a-", "a-b.c", "aa", "c"] {
        assert_eq!(resolve(&ground, &top.join(path)), Err(Blocked::Outside), "{path}");
    }
    // The file system's own root holds everything.
    let ground = Allowed::new(vec![top.join("a"), "/".into()]).look_for(b"/");
    let spot = resolve(&ground, &top.join("b")).expect("inside");
    assert_eq!(ground.native(&spot), top.join("b"));
}

#[test]
fn a_place_that_becomes_a_link_is_not_followed() {
    let (_tmp, top) = tree();
    let ground = ground(&top, &["a/in"]);
    let spot = resolve(&ground, &top.join("a/in/deep")).expect("inside");
    fs::remove_dir(top.join("a/in/deep")).expect("removed");
    symlink("../out", top.join("a/in/deep")).expect("a link");
    assert_eq!(ground.open(&spot, OFlags::PATH).map(drop), Err(Errno::LOOP));
    // Nor where the bound itself becomes one.
    fs::rename(top.join("a/in"), top.join("a/was")).expect("renamed");
    symlink("out", top.join("a/in")).expect("a link");
    let bound = Spot { base: spot.base, rel: RelPath::new(b"in").expect("a path") };
    assert_eq!(ground.open(&bound, OFlags::PATH).map(drop), Err(Errno::LOOP));
}

#[test]
fn a_ground_is_made_anew_where_its_bound_leads_elsewhere() {
    let (_tmp, top) = tree();
    let allowed = allowed(&top, &["to-in"]);
    let first = allowed.look_for(b"/");
    assert!(Arc::ptr_eq(&first, &allowed.look_for(b"/")));
    fs::remove_file(top.join("to-in")).expect("removed");
    symlink("a/out", top.join("to-in")).expect("a link");
    let second = allowed.look_for(b"/");
    assert!(!Arc::ptr_eq(&first, &second));
    assert_eq!(resolve(&second, &top.join("a/in")).map(drop), Err(Blocked::Outside));
    assert_eq!(resolve(&second, &top.join("a/out")).map(drop), Ok(()));
}

#[test]
fn what_comes_back_from_outside_tells_nothing() {
    let (_tmp, top) = tree();
    fs::create_dir(top.join("there")).expect("a directory");
    let ground = Allowed::new(vec![top.join("a")]).look_for(b"/");
    for (path, expected) in [
        ("there/../a/in", Err(Blocked::Outside)),
        ("gone/../a/in", Err(Blocked::Outside)),
        ("a/in/../in", Ok(())),
        ("a/in/../../a/in", Ok(())),
        ("a/gone/../in", Err(Blocked::Missing)),
        // A link outside is not the caller's text.
        ("to-in/deep", Ok(())),
    ] {
        assert_eq!(resolve(&ground, &top.join(path)).map(drop), expected, "{path}");
    }
    let holder = resolve(&ground, &top.join("a/in")).expect("inside");
    for (target, expected) in [
        ("../../there/../a/in", Err(Blocked::Outside)),
        ("../../gone/../a/in", Err(Blocked::Outside)),
        ("../../a/in/deep", Ok(())),
    ] {
        let followed = ground.follow_link(&holder, target.as_bytes());
        assert_eq!(followed.map(drop), expected, "{target}");
    }
    // What the operator wrote may take any way.
    let given = Allowed::new(vec![top.join("there/../a")]).look_for(b"/");
    assert_eq!(resolve(&given, &top.join("there/../a")).map(drop), Ok(()));
}
