//! Tests of loading files and flags, and of the example file.

mod callers;
mod reload;

use super::{
    Config, ListenAddress, LogFormat, ProcessEnv, RootFlag, ServeFlags, TlsFlags, config_keys,
    example_file, keys, top_keys,
};
use crate::daemon::model::{LandlockMode, Limits, RootScope};
use caproot_core::wire::RootId;
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn env() -> ProcessEnv {
    ProcessEnv {
        current_dir: Some("/base".into()),
        temp_dir: "/tmp".into(),
        ..ProcessEnv::default()
    }
}

fn load(text: &str) -> Result<Config, String> {
    load_bytes(text.as_bytes())
}

fn load_bytes(bytes: &[u8]) -> Result<Config, String> {
    let config = Config::from_bytes(
        ServeFlags::default(),
        Path::new("f"),
        bytes.to_vec(),
        &env(),
    );
    config.map_err(|all| {
        all.iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    })
}

#[test]
fn all_errors_are_reported_in_the_order_of_the_file() {
    let text = "log: {format: xml}\nlimits:\n  max_depth: none\n  max_reads_per_root: 0\nnope: 1\n";
    let flags = ServeFlags {
        listen: vec!["nonsense".into()],
        ..ServeFlags::default()
    };
    let errors = Config::from_bytes(flags, Path::new("f"), text.into(), &env()).expect_err("wrong");
    let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
    let keys: Vec<_> = keys::names(&top_keys::KEYS).collect();
    assert_eq!(
        errors,
        [
            "f:1:15: log.format: invalid value \"xml\": expected text, json or journald",
            "f:3:14: limits.max_depth: invalid value \"none\": expected a whole number from 1 to 1000",
            "f:4:23: limits.max_reads_per_root: invalid value 0: expected a whole number from 1 to 1024",
            &format!("f:5:1: nope: unknown key; the keys are {}", keys.join(", ")),
            "--listen: invalid value \"nonsense\": expected unix:PATH or tcp:HOST:PORT",
        ]
    );
    let many = load(&format!("listen: [{}]", "x, ".repeat(1_000))).expect_err("wrong");
    assert_eq!(many.lines().count(), 101, "{many}");
    assert!(many.ends_with("f: 900 more errors"), "{many}");
}

/// Formats a configuration, so that it can be compared.
fn debug_text(config: &Config) -> String {
    format!("{config:?}")
}

fn default() -> Config {
    Config::from_flags(ServeFlags::default(), &env()).expect("the default")
}

#[test]
fn an_empty_file_is_the_default() {
    for text in [
        "",
        "# nothing\n",
        "---\n",
        "{}",
        "\u{feff}",
        "limits: {}",
        "search: {}\r\nlog: {}",
    ] {
        assert_eq!(
            debug_text(&load(text).expect(text)),
            debug_text(&default()),
            "{text:?}"
        );
    }
}

#[test]
fn every_key_is_read() {
    let config = load(
        "environment_ids: [a, b]\n\
         listen: ['unix:run/c.sock', 'unix:///x.sock', 'tcp:localhost:0', 'tcp:[::1]:1']\n\
         allow: [opt, ./opt/../x]\n\
         roots:\n\
         - {id: z, path: skills}\n\
         - {id: y, path: /sys-skills, scope: system}\n\
         - {id: x, path: /r, scope: repo, follow_links: false}\n\
         disabled_skills: [{root: z, path: 'a/*'}, {name: 'p:n'}]\n\
         search: {excluded_dirs: [], resource_dirs: [bin]}\n\
         limits: {max_file_bytes: 1 MiB, max_depth: 3}\n\
         watch: {debounce: 0ms, max_debounce: 1s}\n\
         sandbox: {landlock: required}\n\
         log: {filter: caproot=debug, format: json}\n",
    );
    let config = config.expect("good");
    assert_eq!(config.environment_ids, ["a", "b"]);
    assert_eq!(
        config.listeners,
        [
            ListenAddress::Unix("/base/run/c.sock".into()),
            ListenAddress::Unix("/x.sock".into()),
            ListenAddress::Tcp(([127, 0, 0, 1], 0).into()),
            ListenAddress::Tcp("[::1]:1".parse().expect("an address")),
        ]
    );
    let dirs = [
        "/r",
        "/base/skills",
        "/sys-skills",
        "/base/opt",
        "/base/opt/../x",
    ];
    assert_eq!(config.allowed_dirs, dirs.map(PathBuf::from));
    let roots: Vec<_> = config
        .published_roots
        .iter()
        .map(|r| (r.id.as_str(), r.scope, r.follow_links))
        .collect();
    let expected = [
        ("x", RootScope::Repo, false),
        ("z", RootScope::User, true),
        ("y", RootScope::System, false),
    ];
    assert_eq!(roots, expected);
    assert!(config.disabled_skills.matches_name("p:n"));
    assert_eq!(config.excluded_dirs.len(), 0);
    assert_eq!(config.resource_dirs, [Box::from(b"bin".as_slice())]);
    let limits = Limits {
        max_file_bytes: 1 << 20,
        max_depth: 3,
        ..Limits::default()
    };
    assert_eq!(config.limits, limits);
    let timing = (config.timing.debounce, config.timing.max_debounce);
    assert_eq!(timing, (Duration::ZERO, Duration::from_secs(1)));
    assert_eq!(config.landlock, LandlockMode::Required);
    assert_eq!(
        (&*config.log.filter, config.log.format),
        ("caproot=debug", LogFormat::Json)
    );
}

/// A table with a key that no reader reads would document a key without effect.
#[test]
fn every_key_of_the_tables_reports_a_wrong_type() {
    for key in config_keys() {
        let wrong = if key.is_section { "1" } else { "{}" };
        let text = match key.path.split_once('.') {
            None => format!("{}: {wrong}", key.path),
            Some(("callers[]", name)) if name != "name" => {
                format!("callers: [{{name: n, {name}: {wrong}}}]")
            }
            Some((section, name)) => match section.strip_suffix("[]") {
                Some(section) => format!("{section}: [{{{name}: {wrong}}}]"),
                None => format!("{section}: {{{name}: {wrong}}}"),
            },
        };

        let errors = load(&text).expect_err(&text);
        let named = format!(": {}: ", key.path.replace("[]", "[0]"));
        let found = errors
            .lines()
            .any(|error| error.contains(&named) && error.contains("expected "));
        assert!(found, "{text}: {errors}");
    }
}

#[test]
fn sizes_have_units() {
    for (text, bytes) in [
        ("2048", 2_048),
        ("2KiB", 2_048),
        ("'2 KiB'", 2_048),
        ("2kB", 2_000),
        ("1.5MiB", 3 << 19),
    ] {
        let config = load(&format!("limits: {{max_file_bytes: {text}}}")).expect(text);
        assert_eq!(config.limits.max_file_bytes, bytes, "{text}");
    }
}

#[test]
fn relative_paths_start_at_the_directory_of_the_file() {
    for (file, expected) in [
        ("f", "/base/x"),
        ("etc/f", "/base/etc/x"),
        ("../f", "/base/../x"),
        ("/etc/f", "/etc/x"),
    ] {
        let text = b"allow: [x]".to_vec();
        let config = Config::from_bytes(ServeFlags::default(), Path::new(file), text, &env());
        assert_eq!(
            config.expect("good").allowed_dirs,
            [Path::new(expected)],
            "{file}"
        );
    }
}

#[test]
fn flags_replace_keys_of_the_file() {
    let text = "environment_ids: [a]\nlisten: ['tcp:127.0.0.1:1']\nallow: [/a]\n\
                roots: [{id: r, path: /r}]\nlimits: {max_depth: 3}\n\
                disabled_skills: [{root: r, path: x}, {root: tmp, path: x}]\n";
    let with = |flags| {
        let config = Config::from_bytes(flags, Path::new("f"), text.into(), &env());
        config.expect("good")
    };
    let root = RootFlag {
        id: Some("tmp".into()),
        dir: "/tmp".into(),
    };
    let flags = ServeFlags {
        roots: vec![root.clone()],
        ..ServeFlags::default()
    };
    let config = with(flags);
    assert_eq!(config.published_roots.len(), 1);
    assert_eq!(
        config.published_roots[0].id,
        RootId::new("tmp").expect("an id")
    );
    assert_eq!(config.allowed_dirs, ["/tmp", "/a"].map(PathBuf::from));
    assert_eq!(
        (&*config.environment_ids, config.limits.max_depth),
        (&["a".to_owned()][..], 3)
    );
    let flags = ServeFlags {
        roots: vec![root],
        allow: vec!["b".into()],
        environment_ids: vec!["e".into()],
        listen: vec!["tcp:127.0.0.1:2".into()],
        audit: true,
        ..ServeFlags::default()
    };
    let config = with(flags);
    assert_eq!(config.allowed_dirs, ["/tmp", "/base/b"].map(PathBuf::from));
    assert_eq!(config.environment_ids, ["e"]);
    assert_eq!(
        config.listeners,
        [ListenAddress::Tcp(([127, 0, 0, 1], 2).into())]
    );
    assert!(config.audit);
}

#[test]
fn remote_tcp_without_tls_needs_insecure_tcp() {
    let listen =
        "listen: ['tcp:0.0.0.0:1', 'tcp:[::1]:1', 'tcp:[::]:2', 'tcp:[::ffff:127.0.0.1]:3']\n";
    let errors = load(listen).expect_err("without TLS");
    assert_eq!(errors.lines().count(), 2, "{errors}");
    let asked = load(&format!("{listen}insecure_tcp: true")).expect("asked for");
    assert_eq!(
        (asked.listeners.len(), asked.warnings.len()),
        (4, 3),
        "{:?}",
        asked.warnings
    );
    assert!(
        asked.warnings[1].contains("tcp:[::]:2 without TLS"),
        "{:?}",
        asked.warnings
    );
    let published = load("roots: [{id: a, path: /no/such}]").expect("good");
    assert_eq!(published.warnings, [""; 0]);
    let [nothing] = &default().warnings[..] else {
        panic!("one warning")
    };
    assert!(nothing.starts_with("nothing is published"), "{nothing}");

    let flags = |tls: TlsFlags| ServeFlags {
        listen: vec!["tcp:10.0.0.1:1".into()],
        tls,
        ..ServeFlags::default()
    };
    let errors = Config::from_flags(flags(TlsFlags::default()), &env()).expect_err("without TLS");
    assert!(
        errors[0]
            .to_string()
            .starts_with("--listen: invalid value \"tcp:10.0.0.1:1\""),
        "{errors:?}"
    );
    let insecure = TlsFlags {
        insecure_tcp: true,
        ..TlsFlags::default()
    };
    assert!(Config::from_flags(flags(insecure), &env()).is_ok());
    let text = b"insecure_tcp: true".to_vec();
    let flags = flags(TlsFlags::default());
    assert!(Config::from_bytes(flags, Path::new("f"), text, &env()).is_ok());
}

#[test]
fn empty_paths_of_flags_are_invalid() {
    let roots = vec![RootFlag {
        id: None,
        dir: "".into(),
    }];
    let tls = TlsFlags {
        client_ca: Some("".into()),
        ..TlsFlags::default()
    };
    let flags = ServeFlags {
        roots,
        tls,
        ..ServeFlags::default()
    };
    let errors = Config::from_flags(flags, &env()).expect_err("empty paths");
    let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
    for flag in ["--root", "--tls-client-ca"] {
        let expected = format!("{flag}: invalid value \"\": must not be empty");
        assert!(
            errors.iter().any(|error| error.starts_with(&expected)),
            "{errors:?}"
        );
    }
}

/// Returns the example with all optional keys.
fn whole_example() -> String {
    let example = example_file();
    let lines = example.lines().map(|line| match line.strip_prefix('#') {
        Some(rest) if !rest.starts_with([' ', '#']) || rest.starts_with("  ") => rest,
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_example_is_the_default() {
    assert_eq!(
        debug_text(&load(&example_file()).expect("good")),
        debug_text(&default())
    );
    let token = callers::token(0o600);
    // The file and the group may not exist on this machine.
    let path = token.path().to_str().expect("UTF-8");
    let whole = whole_example().replace("/etc/caproot/token", path);
    let whole = whole.replace("group: caproot", "group: root");
    let lock = callers::empty_lock();
    let whole = whole.replace(
        "lock: caproot.lock",
        &format!("lock: {}", lock.path().display()),
    );
    // The certificates and keys in the example do not exist.
    let of_tls = [
        "tls:",
        "  certificate:",
        "  key:",
        "  client_ca:",
        "  signers:",
    ];
    let rest = whole
        .lines()
        .filter(|line| !of_tls.iter().any(|key| line.starts_with(key)));
    let whole = load(&rest.collect::<Vec<_>>().join("\n")).expect("good too");
    assert_eq!(
        (
            whole.published_roots.len(),
            whole.listeners.len(),
            whole.allowed_dirs.len()
        ),
        (1, 2, 2)
    );
    assert_eq!(
        whole.callers.map(|callers| callers.token_files.len()),
        Some(1)
    );
    assert!(
        whole
            .disabled_skills
            .matches_name("deploy-plugin:roll-back")
    );
}

#[test]
fn every_key_has_its_section_and_a_meaning() {
    let keys = config_keys();
    for key in &keys {
        let section = key
            .path
            .rsplit_once('.')
            .map(|(section, _)| section.trim_end_matches("[]"));
        let parent = section.and_then(|name| keys.iter().find(|key| key.path == name));
        assert_eq!(
            parent.is_some_and(|parent| parent.is_section),
            section.is_some(),
            "{key:?}"
        );
        assert!(
            key.meaning.ends_with('.') && !key.reload.is_empty(),
            "{key:?}"
        );
        assert!(key.is_section || key.default.is_some(), "{key:?}");
    }
}

#[test]
fn every_choice_is_valid_and_another_is_not() {
    for (path, before, after) in [
        ("sandbox.landlock", "sandbox: {landlock: ", "}"),
        ("log.format", "log: {format: ", "}"),
        ("roots[].scope", "roots: [{id: a, path: /a, scope: ", "}]"),
        ("socket.mode", "socket: {mode: ", "}"),
    ] {
        let keys = top_keys::KEYS.iter().flat_map(keys::ConfigKey::keys);
        let value = keys.clone().find(|key| key.path == path).expect(path).value;
        let keys::KeyValue::Choice(names) = value else {
            panic!("{path}")
        };
        for name in names {
            // A mode for every user needs `callers`; nothing else is wrong.
            let error = load(&format!("{before}{name}{after}")).err();
            let is_open_mode = |error: &String| error.contains("add `callers`");
            assert!(
                error.as_ref().is_none_or(is_open_mode),
                "{path} {name}: {error:?}"
            );
        }
        assert!(load(&format!("{before}other{after}")).is_err(), "{path}");
    }
}

#[test]
fn values_are_valid_up_to_their_bounds() {
    for key in &super::limits::KEYS {
        let (keys::KeyValue::Count { min, max } | keys::KeyValue::Size { min, max }) = key.value
        else {
            panic!("{key:?}")
        };
        // The caches of catalogs must hold the roots of one request.
        let with = if key.name() == "max_cached_roots" {
            "max_roots: 1, "
        } else {
            ""
        };
        let with = if key.name() == "max_roots" {
            "max_cached_roots: 65536, "
        } else {
            with
        };
        let set = |n: u64| load(&format!("limits: {{{with}{}: {n}}}", key.name()));
        assert!(set(min).is_ok() && set(max).is_ok(), "{key:?}");
        assert!(set(min - 1).is_err() && set(max + 1).is_err(), "{key:?}");
    }
    let max = top_keys::LONGEST_DEBOUNCE.as_millis();
    for others in ["max_debounce: 10s, debounce", "debounce: 0ms, max_debounce"] {
        let set = |ms: u128| load(&format!("watch: {{{others}: {ms}ms}}"));
        assert!(
            set(0).is_ok() && set(max).is_ok() && set(max + 1).is_err(),
            "{others}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn random_files_do_not_panic(
        lines in prop::collection::vec(
            (
                0..4_usize,
                prop::sample::select(vec![
                    "environment_ids", "listen", "allow", "roots", "disabled_skills", "search",
                    "limits", "sandbox", "landlock", "log", "id", "path", "scope", "follow_links", "root", "name",
                    "excluded_dirs", "max_depth", "max_file_bytes", "filter", "format", "-", "- id",
                ]),
                prop::sample::select(vec![
                    "", "1", "x", "[]", "{}", "[a, b]", "{id: a, path: b}", "~", "true", "256MiB",
                    "'", "\"\\", "- a", "&a", "*a", "[{root: user, path: '{a,b}**[!x]'}]", "99e999",
                    "0x", "a=b[c{d}]=e", "1e30GiB", "-1KiB", "unix:", "tcp::", "|", "# x",
                ]),
            ),
            0..12,
        ),
        junk in prop::collection::vec(any::<u8>(), 0..20),
        at in any::<prop::sample::Index>(),
    ) {
        let lines = lines.iter().map(|(by, key, value)| format!("{}{key}: {value}\n", "  ".repeat(*by)));
        let mut bytes = lines.collect::<String>().into_bytes();
        let at = at.index(bytes.len() + 1);
        drop(load_bytes(&bytes));
        bytes.splice(at..at, junk);
        drop(load_bytes(&bytes));
    }
}
