//! Tests of `callers` and `socket`.

use super::{env, load};
use crate::daemon::config::{Config, ServeFlags, SocketAccess};
use crate::daemon::grpc::auth::{SanPattern, TokenFile};
use crate::daemon::model::AccessScope;
use caproot_core::wire::RootId;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use tempfile::NamedTempFile;

/// Creates a token file.
pub fn token(mode: u32) -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("a file");
    file.write_all(b"s3cret\n").expect("written");
    fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).expect("a mode");
    file
}

/// Creates a lock without skills.
pub fn empty_lock() -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("a file");
    file.write_all(b"{\"version\": 1, \"skills\": []}\n")
        .expect("written");
    file
}

fn reach(dirs: &[&str]) -> AccessScope {
    AccessScope::Directories(dirs.iter().map(|dir| dir.as_bytes().into()).collect())
}

#[test]
fn rules_are_read_and_resolved() {
    let file = token(0o640);
    let text = format!(
        "allow: [/opt/a]\n\
         roots: [{{id: team, path: skills}}, {{id: /odd, path: /r}}]\n\
         callers:\n\
         - {{name: u, uids: [7, root, '8'], gids: [0x, root]}}\n\
         - {{name: s, sans: [Host.example, 'spiffe://a/b', 'spiffe://a/*'], roots: [team]}}\n\
         - {{name: t, token_file: {}, roots: [/opt, /opt/a/b, /odd]}}\n",
        file.path().display()
    );
    let error = load(&text).expect_err("no such group");
    assert!(
        error.starts_with("f:4:42: callers[0].gids[0]: invalid value \"0x\": no group"),
        "{error}"
    );
    let config = load(&text.replace("0x, ", "")).expect("good");
    let callers = config.callers.expect("callers");
    let [user, sans, token] = &*callers.callers.rules else {
        panic!("three rules")
    };
    assert_eq!((&*user.uids, &*user.gids), (&[7, 0, 8][..], &[0][..]));
    assert_eq!(
        (&user.access_scope, user.needs_token),
        (&AccessScope::All, false)
    );
    let names = ["Host.example", "spiffe://a/b", "spiffe://a/*"];
    assert_eq!(
        sans.sans,
        names.map(|name| SanPattern::parse(name).expect("a name"))
    );
    assert_eq!(sans.access_scope, reach(&["/base/skills"]));
    assert!(token.needs_token && !token.has_identities());
    // The id of a root takes precedence over a directory of the same name.
    assert_eq!(token.access_scope, reach(&["/opt", "/opt/a/b", "/r"]));
    let files: Vec<_> = callers
        .token_files
        .iter()
        .flatten()
        .map(TokenFile::path)
        .collect();
    assert_eq!(files, [file.path()]);
    assert!(config.open_health && !config.open_reflection && !config.audit);
}

#[test]
fn a_root_removed_by_a_flag_grants_nothing() {
    let text = "roots: [{id: a, path: /a}]\ncallers: [{name: c, uids: [1], roots: [a]}]\n";
    let root = crate::daemon::config::RootFlag {
        id: Some("b".into()),
        dir: "/tmp".into(),
    };
    let flags = ServeFlags {
        roots: vec![root],
        ..ServeFlags::default()
    };
    let config = Config::from_bytes(flags, Path::new("f"), text.into(), &env()).expect("good");
    assert_eq!(
        config.published_roots[0].id,
        RootId::new("b").expect("an id")
    );
    assert_eq!(
        config.callers.expect("callers").callers.rules[0].access_scope,
        reach(&[])
    );
}

#[test]
fn mode_and_group_of_sockets() {
    let own = SocketAccess {
        mode: 0o600,
        group: None,
        group_is_optional: false,
    };
    for (text, expected) in [
        ("", own),
        ("socket: {}", own),
        ("socket: {mode: '0600'}", own),
        ("socket: {mode: 660}", SocketAccess { mode: 0o660, ..own }),
        (
            "socket: {group: root}",
            SocketAccess {
                mode: 0o660,
                group: Some(0),
                ..own
            },
        ),
        (
            "socket: {mode: 0660, group: 7}",
            SocketAccess {
                mode: 0o660,
                group: Some(7),
                ..own
            },
        ),
        (
            "socket: {mode: 0666}\ncallers: [{name: a, uids: [1]}]",
            SocketAccess { mode: 0o666, ..own },
        ),
    ] {
        let config = load(text).expect(text);
        assert_eq!(
            config.socket_access.access_at(Path::new("/run/c.sock")),
            expected,
            "{text}"
        );
    }
}
