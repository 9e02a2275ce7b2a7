//! What a daemon that runs takes over of a new file, key by key, as README's table says it.

use super::{callers, load, settings};
use crate::config::{Config, RESTART_KEYS, RestartRequired};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const README: &str = include_str!("../../../README.md");

/// What README says of keys on SIGHUP: the keys of each row, and whether it is that they wait.
fn rows() -> Vec<(Vec<&'static str>, bool)> {
    let (_, table) = README.split_once("\n| key | on SIGHUP |\n").expect("the table");
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let cells = rows.map(|row| row.trim_matches('|').split_once('|').expect("two cells"));
    cells
        .map(|(keys, says)| {
            (keys.split('`').skip(1).step_by(2).collect(), says.trim() == "restart")
        })
        .collect()
}

/// The old file, the new one, and what waits of it.
fn reload_onto(
    old: &str,
    new: &str,
    may_read: impl Fn(&Path) -> bool,
) -> (Config, RestartRequired) {
    let old = load(old).expect("a good file");
    load(new).expect(new).restrict_to_reloadable(&old, may_read)
}

#[test]
fn each_key_does_what_readme_says() {
    let token = callers::token(0o600);
    let path = token.path().display();
    let callers = format!("callers: [{{name: a, token_file: {path}}}]");
    // For each key of the file, one that says something else of it.
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
        ("search", "search: {excluded_dirs: [x], resource_dirs: [y]}"),
        ("limits", "limits: {max_depth: 3}"),
        ("limits.max_connections", "limits: {max_connections: 3}"),
        ("watch", "watch: {debounce: 1ms}"),
        ("watch_config", "watch_config: true"),
        ("sandbox.landlock", "sandbox: {landlock: off}"),
        ("log.filter", "log: {filter: warn}"),
        ("log.format", "log: {format: json}"),
        ("metrics", "metrics: {listen: 'unix:/m'}"),
        ("traces", "traces: {otlp: 'http://127.0.0.1:1'}"),
    ];
    let rows = rows();
    let says = |key: &str| {
        let rows: Vec<_> = rows.iter().filter(|(keys, _)| keys.contains(&key)).collect();
        let [(_, waits)] = rows[..] else {
            panic!("README says {} times what {key} does", rows.len())
        };
        *waits
    };
    for (key, text) in changes {
        let (now, waits) = reload_onto("", text, |_| true);
        let expected: &[&str] = if says(key) { &[key] } else { &[] };
        assert_eq!(waits.keys, expected, "{text}");
        let (old, new) = (load("").expect("good"), load(text).expect("good"));
        let [now, old, new] = [now, old, new].map(|config| format!("{config:?}"));
        // All of the old, or all of the new: these keys are one each.
        assert_eq!(now, if says(key) { old } else { new }, "{text}");
    }
    let mut told: BTreeSet<&str> = changes.iter().map(|(key, _)| *key).collect();
    // Takes files; tested with a daemon.
    assert!(!says("tls"));
    told.insert("tls");
    let in_readme: BTreeSet<&str> = rows.iter().flat_map(|(keys, _)| keys.clone()).collect();
    assert_eq!(in_readme, told);
    let at_start: BTreeSet<&str> = told.iter().copied().filter(|key| says(key)).collect();
    let expected = RESTART_KEYS.into_iter().filter(|key| *key != "tls");
    assert_eq!(at_start, expected.collect());
    for (section, keys) in settings::SECTIONS {
        for key in keys {
            let whole =
                if section.is_empty() { (*key).to_owned() } else { format!("{section}.{key}") };
            let is_named = |name: &&str| *name == section || *name == whole;
            let holds_more = told.iter().any(|name| name.starts_with(&format!("{whole}.")));
            assert!(told.iter().any(is_named) || holds_more, "README says not what {whole} does");
        }
    }
}

#[test]
fn directories_that_the_sandbox_closes_wait() {
    let old = "allow: [/a]\nroots: [{id: r, path: /r}]";
    let new = "allow: [/a, /b/x, /c]\n\
               roots: [{id: r, path: /r}, {id: s, path: /b/s}, {id: t, path: /t}]";
    let may_read = |dir: &Path| dir.starts_with("/b");
    let (taken, waits) = reload_onto(old, new, may_read);
    assert_eq!(waits.keys, ["allow", "roots"]);
    assert_eq!(waits.unreadable_dirs, ["/c", "/t"].map(PathBuf::from));
    assert_eq!(taken.allowed_dirs, ["/r", "/b/s", "/a", "/b/x"].map(PathBuf::from));
    assert_eq!(taken.extra_allowed_dirs(), ["/a", "/b/x"].map(PathBuf::from));
    let ids: Vec<_> = taken.published_roots.iter().map(|root| root.id.as_str()).collect();
    assert_eq!(ids, ["r", "s"]);
    // What was there goes, and comes back, whatever may be read.
    let (fewer, waits) = reload_onto(old, "allow: []", |_| false);
    assert_eq!((fewer.allowed_dirs.len(), waits), (0, RestartRequired::default()));
    let (same, waits) = reload_onto(old, old, |_| false);
    assert_eq!((same.allowed_dirs.len(), waits), (2, RestartRequired::default()));
}
