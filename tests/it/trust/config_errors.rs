//! Locks that the daemon does not start with.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::config;
use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, serve_config};

const EMPTY: &str = "{\"version\": 1, \"skills\": []}\n";

/// Starts a daemon that must fail with 78, and returns its stderr without the path of the fixture.
async fn start_error(fixture: &Fixture, config: &str) -> String {
    let output = Process::start_failure(serve_config(fixture, config)).await;
    assert_eq!(output.code, Some(78), "{}", output.stderr);
    let top = fixture.top().display().to_string();
    output.stderr.replace(&top, "TOP")
}

#[tokio::test]
async fn each_invalid_lock_ends_the_start_with_its_message() {
    for (lock, message) in [
        ("", "TOP/caproot.lock:1:1: JSON: "),
        (
            "{\"version\": 2}",
            "TOP/caproot.lock:1:13: version: this version of caproot reads version 1",
        ),
        (
            "{\"version\": 1,\n  \"skils\": []}",
            "TOP/caproot.lock:2:3: skils: unknown key; did you mean \"skills\"?",
        ),
        (
            "<<<<<<< HEAD\n",
            "TOP/caproot.lock: line 1: a conflict of git; resolve it, then run caproot lock --check",
        ),
    ] {
        let fixture = Fixture::new("skill r/a");
        fixture.write("caproot.lock", lock);
        let stderr = start_error(&fixture, &config("hide")).await;
        assert!(stderr.contains(message), "{stderr}");
    }
}

#[tokio::test]
async fn a_lock_in_a_wrong_place_ends_the_start() {
    let fixture = Fixture::new("skill r/a\ndir other\ndir directory");
    let stderr = start_error(&fixture, &config("hide")).await;
    assert!(stderr.contains("TOP/caproot.lock: "), "{stderr}");

    fixture.write("r/caproot.lock", EMPTY);
    let below = config("hide").replace("lock: caproot.lock", "lock: r/caproot.lock");
    let stderr = start_error(&fixture, &below).await;
    assert!(
        stderr.contains(
            "TOP/r/caproot.lock: lies below the allowed directory TOP/r, so an author could approve an own skill; \
             move the file"
        ),
        "{stderr}"
    );

    let directory = config("hide").replace("lock: caproot.lock", "lock: directory");
    let stderr = start_error(&fixture, &directory).await;
    assert!(stderr.contains("TOP/directory: "), "{stderr}");

    fixture.write("caproot.lock", EMPTY);
    let set_mode = |path: &str, mode| {
        fs::set_permissions(fixture.path(path), fs::Permissions::from_mode(mode)).expect("a mode");
    };
    set_mode("caproot.lock", 0o666);
    let stderr = start_error(&fixture, &config("hide")).await;
    assert!(
        stderr.contains("others than root and the user of the daemon can write the file"),
        "{stderr}"
    );

    fixture.write("other/caproot.lock", EMPTY);
    set_mode("other", 0o777);
    let other = config("hide").replace("lock: caproot.lock", "lock: other/caproot.lock");
    let stderr = start_error(&fixture, &other).await;
    assert!(
        stderr.contains("can replace the file, because they can write the directory TOP/other"),
        "{stderr}"
    );

    // A directory above it, and the file of the signers.
    fixture.write("other/deep/caproot.lock", EMPTY);
    let deep = config("hide").replace("lock: caproot.lock", "lock: other/deep/caproot.lock");
    set_mode("caproot.lock", 0o644);
    let signers = config("hide").replace("mode: hide", "mode: hide, signers: other/signers");
    fixture.write("other/signers", "");
    // A link in the directory leads to a file that only the daemon's user can replace.
    symlink("other/hop", fixture.path("link.lock")).expect("a link");
    symlink("../caproot.lock", fixture.path("other/hop")).expect("a link");
    let linked = config("hide").replace("lock: caproot.lock", "lock: link.lock");
    for config in [deep, signers, linked] {
        let stderr = start_error(&fixture, &config).await;
        assert!(
            stderr.contains("because they can write the directory TOP/other"),
            "{stderr}"
        );
    }
}

#[tokio::test]
async fn each_invalid_key_has_its_message() {
    let fixture = Fixture::new("skill r/a");
    fixture.write("caproot.lock", EMPTY);
    for (trust, message) in [
        ("{mode: hide}", "trust.lock: required key is missing"),
        (
            "{lock: caproot.lock}",
            "trust.mode: required key is missing",
        ),
        (
            "{lock: caproot.lock, mode: deny}",
            "trust.mode: invalid value \"deny\": expected warn or hide",
        ),
        (
            "{lock: caproot.lock, mode: hide, roots: [s]}",
            "no published root has this id",
        ),
        (
            "{lock: caproot.lock, mode: hide, roots: []}",
            "trust.roots: empty list, so the lock would apply to no root; remove the key for every root",
        ),
        (
            "{lock: caproot.lock, mode: hide, signers: absent}",
            "TOP/absent: ",
        ),
    ] {
        let config = format!("roots: [{{id: r, path: r}}]\ntrust: {trust}");
        let stderr = start_error(&fixture, &config).await;
        assert!(stderr.contains(message), "{stderr}");
    }
}
