//! Tests that a reload applies exactly the keys that the table of keys says.

use super::{callers, load};
use crate::daemon::config::{Config, RestartRequired, config_keys};
use std::path::{Path, PathBuf};

/// Loads both files and restricts the new one.
fn reload_onto(
    old: &str,
    new: &str,
    may_read: impl Fn(&Path) -> bool,
) -> (Config, RestartRequired) {
    let old = load(old).expect("a good file");
    load(new).expect(new).restrict_to_reloadable(&old, may_read)
}

/// Text of a configuration without the time when a lock was read.
fn debug_without_times(config: &Config) -> String {
    let text = format!("{config:?}");
    let parts = text.split("loaded_at: ").enumerate();
    parts
        .map(|(number, part)| match part.split_once(' ') {
            Some((_, rest)) if number > 0 => rest,
            _ => part,
        })
        .collect()
}

#[test]
fn keys_are_reloadable_as_documented() {
    let token = callers::token(0o600);
    let path = token.path().display();
    let callers = format!("callers: [{{name: a, token_file: {path}}}]");
    let lock = callers::empty_lock();
    let trust = format!("trust: {{lock: {}, mode: warn}}", lock.path().display());
    // A file with another value for each key.
    let changes = [
        ("environment_ids", "environment_ids: [b]"),
        ("listen", "listen: ['unix:/x']"),
        ("socket", "socket: {mode: '0660'}"),
        ("insecure_tcp", "insecure_tcp: true"),
        ("allow", "allow: [/b]"),
        ("roots", "roots: [{id: b, path: /b}]"),
        ("callers", &callers),
        ("open_health", "open_health: false"),
        ("open_reflection", "open_reflection: true"),
        ("audit", "audit: true"),
        ("disabled_skills", "disabled_skills: [{name: x}]"),
        ("trust", &trust),
        ("readiness", "readiness: {path: [/bin], variables: [A]}"),
        ("search", "search: {excluded_dirs: [x], resource_dirs: [y]}"),
        ("limits", "limits: {max_depth: 3}"),
        ("watch", "watch: {debounce: 1ms}"),
        ("watch_config", "watch_config: true"),
        ("sandbox.landlock", "sandbox: {landlock: off}"),
        ("log.filter", "log: {filter: warn}"),
        ("log.format", "log: {format: json}"),
        ("metrics", "metrics: {listen: 'unix:/m'}"),
        ("traces", "traces: {otlp: 'http://127.0.0.1:1'}"),
    ];
    let keys = config_keys();
    for (key, text) in changes {
        let described = keys
            .iter()
            .find(|described| described.path == key)
            .expect(key);
        let needs_restart = described.reload == "needs a restart";
        let (now, restart) = reload_onto("", text, |_| true);
        let expected: &[&str] = if needs_restart { &[key] } else { &[] };
        assert_eq!(restart.keys, expected, "{text}");
        let (old, new) = (load("").expect("good"), load(text).expect("good"));
        let [now, old, new] = [now, old, new].map(|config| debug_without_times(&config));
        // Each file changes one key, so the result is the old or the new configuration.
        assert_eq!(now, if needs_restart { old } else { new }, "{text}");
    }
    // TLS needs certificate files; a daemon tests it.
    let is_tested = |path: &str| path == "tls" || changes.iter().any(|(key, _)| *key == path);
    for key in keys {
        let section = key.path.split(['.', '[']).next().unwrap_or_default();
        let is_whole_section = matches!(key.path, "sandbox" | "log");
        assert!(
            is_tested(key.path) || is_tested(section) || is_whole_section,
            "{}",
            key.path
        );
    }
}

#[test]
fn directories_outside_the_sandbox_need_a_restart() {
    let old = "allow: [/a]\nroots: [{id: r, path: /r}]";
    let new = "allow: [/a, /b/x, /c]\n\
               roots: [{id: r, path: /r}, {id: s, path: /b/s}, {id: t, path: /t}]";
    let may_read = |dir: &Path| dir.starts_with("/b");
    let (merged, restart) = reload_onto(old, new, may_read);
    assert_eq!(restart.keys, ["allow", "roots"]);
    assert_eq!(restart.unreadable_dirs, ["/c", "/t"].map(PathBuf::from));
    assert_eq!(
        merged.allowed_dirs,
        ["/r", "/b/s", "/a", "/b/x"].map(PathBuf::from)
    );
    assert_eq!(
        merged.extra_allowed_dirs(),
        ["/a", "/b/x"].map(PathBuf::from)
    );
    let ids: Vec<_> = merged
        .published_roots
        .iter()
        .map(|root| root.id.as_str())
        .collect();
    assert_eq!(ids, ["r", "s"]);
    // Known directories can be removed and added again without a check of the sandbox.
    let (fewer, restart) = reload_onto(old, "allow: []", |_| false);
    assert_eq!(
        (fewer.allowed_dirs.len(), restart),
        (0, RestartRequired::default())
    );
    let (same, restart) = reload_onto(old, old, |_| false);
    assert_eq!(
        (same.allowed_dirs.len(), restart),
        (2, RestartRequired::default())
    );
}
