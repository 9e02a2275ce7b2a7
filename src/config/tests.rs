//! The loader as a table: a file, and every mistake in it.

use super::{Config, Env, Flags, Listener, LogFormat, RootFlag, example, limits, settings};
use crate::domain::{Limits, RootId, Scope};
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn env() -> Env {
    Env { current_dir: Some("/work".into()), temp_dir: "/tmp".into(), ..Env::default() }
}

fn load(text: &str) -> Result<Config, String> {
    load_bytes(text.as_bytes())
}

fn load_bytes(bytes: &[u8]) -> Result<Config, String> {
    let config = Config::from_bytes(Flags::default(), Path::new("f"), bytes.to_vec(), &env());
    config.map_err(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

#[test]
fn mistakes() {
    let deep = "[".repeat(20);
    let long = format!("environment_ids: [{}]", "x".repeat(300));
    for (text, expected) in [
        ("lisen: []", "f:1:1: lisen: is no key here; did you mean `listen`?"),
        (
            "Environment-IDs: [a]",
            "Environment-IDs: is no key here; did you mean `environment_ids`?",
        ),
        ("colour: red", "f:1:1: colour: is no key here; the keys are environment_ids, listen,"),
        (
            "\nlimits:\n  max_dept: 3",
            "f:3:3: limits.max_dept: is no key here; did you mean `max_depth`?",
        ),
        ("limits: {max_depth: 0}", "f:1:21: limits.max_depth: 0 is no whole number from 1 to 1000"),
        ("limits: {max_depth: 1001}", "limits.max_depth: 1001 is no whole number from 1 to 1000"),
        ("limits: {max_depth: -1}", "limits.max_depth: -1 is no whole number"),
        ("limits: {max_depth: 1.5}", "limits.max_depth: 1.5 is no whole number"),
        ("limits: {max_depth: '3'}", "limits.max_depth: \"3\" is no whole number"),
        ("limits: {max_depth: 99999999999999999999}", "is no whole number"),
        ("limits: {max_depth: 3MiB}", "limits.max_depth: \"3MiB\" is no whole number"),
        (
            "limits: {max_file_bytes: 17GiB}",
            "limits.max_file_bytes: \"17GiB\" is no size from 1KiB to 16GiB",
        ),
        ("limits: {max_file_bytes: 1}", "limits.max_file_bytes: 1 is no size from 1KiB"),
        ("limits: {max_file_bytes: big}", "limits.max_file_bytes: \"big\" is no size"),
        ("limits: {max_file_bytes: [1]}", "limits.max_file_bytes: a list is no size"),
        ("limits: {max_warm_roots: 10}", "leaves max_warm_roots, 10, under max_roots, 256"),
        (
            "limits: {max_roots: 2000}",
            "f:1:21: limits.max_roots: 2000 leaves max_warm_roots, 1024, under",
        ),
        ("limits: []", "f:1:9: limits: a list is no mapping; its keys are max_roots,"),
        ("limits:", "f:1:1: limits: says nothing; give a value, or leave the key out"),
        ("log: {filter: inof}", "f:1:15: log.filter: \"inof\" is no log filter:"),
        ("log: {format: xml}", "f:1:15: log.format: \"xml\" is neither text nor json"),
        ("environment_ids: local", "f:1:18: environment_ids: \"local\" is no list; write `[a, b]`"),
        (
            "environment_ids: []",
            "environment_ids: a list names none; leave the key out for `local`",
        ),
        ("environment_ids: [a, a]", "f:1:22: environment_ids[1]: \"a\" is given twice"),
        ("environment_ids: ['']", "environment_ids[0]: \"\" is empty"),
        ("environment_ids: [..]", "environment_ids[0]: \"..\" must not be `.` or `..`"),
        ("environment_ids: [1]", "environment_ids[0]: 1 is no text; put it in quotes"),
        ("environment_ids: [true]", "environment_ids[0]: true is no text"),
        ("environment_ids: [~]", "environment_ids[0]: says nothing"),
        (&long, "… is over 256 bytes"),
        ("listen: []", "listen: a list names none"),
        ("listen: [here]", "listen[0]: \"here\" is neither unix:PATH nor tcp:HOST:PORT"),
        (
            "listen: ['tcp:0.0.0.0:1']",
            "listen[0]: \"tcp:0.0.0.0:1\" would serve without TLS beyond",
        ),
        ("listen: ['tcp:here:1']", "is not tcp:HOST:PORT with an IP address"),
        ("allow: ['']", "allow[0]: \"\" is empty"),
        ("allow: [/dev/null]", "allow[0]: \"/dev/null\" is not a directory"),
        ("allow: [~/x]", "allow[0]: \"~/x\" begins with `~`, which means nothing here"),
        ("allow: [\"a\\0b\"]", "allow[0]: \"a\\0b\" holds a NUL"),
        ("roots: {a: /x}", "roots: a mapping is no list"),
        ("roots: [/x]", "roots[0]: \"/x\" is no mapping; its keys are id, path,"),
        ("roots:\n  - path: /x", "f:2:5: roots[0].id: is missing"),
        ("roots:\n  - id: a", "f:2:5: roots[0].path: is missing"),
        ("roots: [{id: , path: /x}]", "f:1:10: roots[0].id: says nothing"),
        (
            "roots: [{id: a, path: /x, scope: me}]",
            "roots[0].scope: \"me\" is no scope; the scopes are repo,",
        ),
        (
            "roots: [{id: a, path: /x, follow_links: yes}]",
            "roots[0].follow_links: \"yes\" is neither true nor false",
        ),
        (
            "roots: [{id: a, path: /x, scope: system, follow_links: true}]",
            "roots[0].follow_links: true cannot be: links are not followed in scope system",
        ),
        (
            "roots:\n  - {id: a, path: /x}\n  - {id: a, path: /y}",
            "f:3:10: roots[1].id: \"a\" is taken by the root in line 2; give each its own",
        ),
        (
            "roots: [{id: a, path: /x, follow: no}]",
            "roots[0].follow: is no key here; did you mean `follow_links`?",
        ),
        (
            "disabled_skills: [x]",
            "disabled_skills[0]: \"x\" is no mapping; its keys are root, path, name",
        ),
        (
            "disabled_skills: [{}]",
            "disabled_skills[0]: a mapping needs either `name`, or `root` and `path`",
        ),
        ("disabled_skills: [{name: a, root: user}]", "needs either `name`, or `root` and `path`"),
        ("disabled_skills: [{root: user}]", "f:1:19: disabled_skills[0].path: is missing"),
        ("disabled_skills: [{path: a}]", "disabled_skills[0].root: is missing"),
        (
            "disabled_skills: [{root: gone, path: a}]",
            "disabled_skills[0].root: \"gone\" is the id of no published root",
        ),
        (
            "disabled_skills: [{root: user, path: /a}]",
            "disabled_skills[0].path: \"/a\" is no path below the root",
        ),
        ("disabled_skills: [{root: user, path: a/../b}]", "is no path below the root"),
        (
            "disabled_skills: [{root: user, path: 'a[b'}]",
            "\"a[b\" is no glob: unclosed character class",
        ),
        (
            "disabled_skills: [{root: user, path: a/SKILL.md}]",
            "names a file; name the skill's directory",
        ),
        ("disabled_skills: [{name: ' a'}]", "disabled_skills[0].name: \" a\" is no skill's name"),
        (
            "search: {passed_over: [a/b]}",
            "search.passed_over[0]: \"a/b\" is no name of a directory",
        ),
        (
            "search: {own_directories: [..]}",
            "search.own_directories[0]: \"..\" is no name of a directory",
        ),
        ("limits: {}\nlimits: {}", "f:2:1: limits: is given again; it is in line 1 too"),
        ("- a", "f:1:1: a list is no mapping; its keys are environment_ids,"),
        ("a", "f:1:1: \"a\" is no mapping"),
        ("a: [1\nb: 2", "f:2:2: YAML: "),
        ("a: &x 1", "f:1:4: anchors are not used here"),
        (&deep, "f:1:17: is nested too deep"),
    ] {
        let told = load(text).expect_err(text);
        assert!(told.contains(expected), "{text:?}\n  {expected}\n  {told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
}

#[test]
fn every_mistake_at_once_in_the_order_of_the_file() {
    let text = "log: {format: xml}\nlimits:\n  max_depth: none\n  max_reads: 0\nnope: 1\n";
    let flags = Flags { listen: vec!["nonsense".into()], ..Flags::default() };
    let told = Config::from_bytes(flags, Path::new("f"), text.into(), &env()).expect_err("wrong");
    let told: Vec<_> = told.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "f:1:15: log.format: \"xml\" is neither text nor json",
            "f:3:14: limits.max_depth: \"none\" is no whole number from 1 to 1000",
            "f:4:14: limits.max_reads: 0 is no whole number from 1 to 1024",
            "f:5:1: nope: is no key here; the keys are environment_ids, listen, allow, roots, \
             disabled_skills, search, limits, log",
            "--listen \"nonsense\" is neither unix:PATH nor tcp:HOST:PORT",
        ]
    );
    let many = load(&format!("listen: [{}]", "x, ".repeat(1_000))).expect_err("wrong");
    assert_eq!(many.lines().count(), 101, "{many}");
    assert!(many.ends_with("f: 900 mistakes more"), "{many}");
}

#[test]
fn bytes_that_are_no_text() {
    assert_eq!(
        load_bytes(b"log:\n  \xc3\xa4\xff").expect_err("no text"),
        "f:2:4: is not UTF-8 from here on; save the file as UTF-8"
    );
    let large = load_bytes(&vec![b'#'; (1 << 20) + 1]).expect_err("too large");
    assert_eq!(large, "f: is over 1 MiB, too large for a config file");
    assert!(load_bytes(&vec![b'#'; 1 << 20]).is_ok());
}

/// What is in force, in a form that can be compared.
fn in_force(config: &Config) -> String {
    format!("{config:?}")
}

fn default() -> Config {
    Config::from_flags(Flags::default(), &env()).expect("the default")
}

#[test]
fn a_file_that_says_nothing_changes_nothing() {
    for text in
        ["", "# nothing\n", "---\n", "{}", "\u{feff}", "limits: {}", "search: {}\r\nlog: {}"]
    {
        assert_eq!(in_force(&load(text).expect(text)), in_force(&default()), "{text:?}");
    }
}

#[test]
fn everything_that_can_be_said() {
    let config = load(
        "environment_ids: [a, b]\n\
         listen: ['unix:run/c.sock', 'unix:///x.sock', 'tcp:localhost:0', 'tcp:[::1]:1']\n\
         allow: [opt, ./opt/../x]\n\
         roots:\n\
         - {id: z, path: skills}\n\
         - {id: y, path: /sys-skills, scope: system}\n\
         - {id: x, path: /r, scope: repo, follow_links: false}\n\
         disabled_skills: [{root: z, path: 'a/*'}, {name: 'p:n'}]\n\
         search: {passed_over: [], own_directories: [bin]}\n\
         limits: {max_file_bytes: 1 MiB, max_depth: 3}\n\
         log: {filter: caproot=debug, format: json}\n",
    );
    let config = config.expect("good");
    assert_eq!(config.environment_ids, ["a", "b"]);
    assert_eq!(
        config.listeners,
        [
            Listener::Unix("/work/run/c.sock".into()),
            Listener::Unix("/x.sock".into()),
            Listener::Tcp(([127, 0, 0, 1], 0).into()),
            Listener::Tcp("[::1]:1".parse().expect("an address")),
        ]
    );
    let dirs = ["/r", "/work/skills", "/sys-skills", "/work/opt", "/work/opt/../x"];
    assert_eq!(config.allowed, dirs.map(PathBuf::from));
    let roots: Vec<_> =
        config.published.iter().map(|r| (r.id.as_str(), r.scope, r.follow_links)).collect();
    let expected =
        [("x", Scope::Repo, false), ("z", Scope::User, true), ("y", Scope::System, false)];
    assert_eq!(roots, expected);
    assert!(config.switched_off.has_name("p:n"));
    assert_eq!(config.passed_over.len(), 0);
    assert_eq!(config.own_directories, [Box::from(b"bin".as_slice())]);
    let limits = Limits { max_file_bytes: 1 << 20, max_depth: 3, ..Limits::default() };
    assert_eq!(config.limits, limits);
    assert_eq!((&*config.log.filter, config.log.format), ("caproot=debug", LogFormat::Json));
}

#[test]
fn sizes() {
    for (text, bytes) in
        [("2048", 2_048), ("2KiB", 2_048), ("'2 KiB'", 2_048), ("2kB", 2_000), ("1.5MiB", 3 << 19)]
    {
        let config = load(&format!("limits: {{max_file_bytes: {text}}}")).expect(text);
        assert_eq!(config.limits.max_file_bytes, bytes, "{text}");
    }
}

#[test]
fn relative_paths_begin_where_the_file_is() {
    for (file, expected) in
        [("f", "/work/x"), ("etc/f", "/work/etc/x"), ("../f", "/work/../x"), ("/etc/f", "/etc/x")]
    {
        let text = b"allow: [x]".to_vec();
        let config = Config::from_bytes(Flags::default(), Path::new(file), text, &env());
        assert_eq!(config.expect("good").allowed, [Path::new(expected)], "{file}");
    }
}

#[test]
fn flags_replace_what_the_file_says() {
    let text = "environment_ids: [a]\nlisten: ['tcp:127.0.0.1:1']\nallow: [/a]\n\
                roots: [{id: r, path: /r}]\nlimits: {max_depth: 3}\n\
                disabled_skills: [{root: r, path: x}, {root: tmp, path: x}]\n";
    let with = |flags| {
        let config = Config::from_bytes(flags, Path::new("f"), text.into(), &env());
        config.expect("good")
    };
    let root = RootFlag { id: Some("tmp".into()), dir: "/tmp".into() };
    let flags = Flags { roots: vec![root.clone()], ..Flags::default() };
    let config = with(flags);
    assert_eq!(config.published.len(), 1);
    assert_eq!(config.published[0].id, RootId::new("tmp").expect("an id"));
    assert_eq!(config.allowed, ["/tmp", "/a"].map(PathBuf::from));
    assert_eq!((&*config.environment_ids, config.limits.max_depth), (&["a".to_owned()][..], 3));
    let flags = Flags {
        roots: vec![root],
        allow: vec!["b".into()],
        environment_ids: vec!["e".into()],
        listen: vec!["tcp:127.0.0.1:2".into()],
    };
    let config = with(flags);
    assert_eq!(config.allowed, ["/tmp", "/work/b"].map(PathBuf::from));
    assert_eq!(config.environment_ids, ["e"]);
    assert_eq!(config.listeners, [Listener::Tcp(([127, 0, 0, 1], 2).into())]);
}

#[test]
fn a_root_that_a_flag_names_must_be_a_directory() {
    for (dir, reason) in [
        ("/dev/null", "--root \"/dev/null\" is not a directory"),
        ("/no/such", "--root \"/no/such\" is not there;"),
        ("", "--root \"\" is empty"),
    ] {
        let flags =
            Flags { roots: vec![RootFlag { id: None, dir: dir.into() }], ..Flags::default() };
        let told = Config::from_flags(flags, &env()).expect_err(dir);
        assert!(told[0].to_string().starts_with(reason), "{told:?}");
    }
    assert!(load("roots: [{id: a, path: /no/such}]").is_ok(), "a file's root may come later");
}

/// The example with what is commented out taken in.
fn whole_example() -> String {
    let lines = example::TEXT.lines().map(|line| match line.strip_prefix('#') {
        Some(rest) if !rest.starts_with([' ', '#']) || rest.starts_with("  ") => rest,
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_example_is_the_default() {
    assert_eq!(in_force(&load(example::TEXT).expect("good")), in_force(&default()));
    let whole = load(&whole_example()).expect("good too");
    assert_eq!((whole.published.len(), whole.listeners.len(), whole.allowed.len()), (1, 2, 2));
    assert!(whole.switched_off.has_name("deploy-plugin:roll-back"));
}

#[test]
fn the_example_has_every_key_and_the_bounds_of_every_limit() {
    let whole = whole_example();
    let keys: Vec<&str> = whole
        .lines()
        .map(|line| line.trim_start().trim_start_matches("- "))
        .filter_map(|line| line.split_once(':').map(|(key, _)| key))
        .collect();
    for (section, known) in settings::SECTIONS {
        for key in known {
            assert!(keys.contains(key), "{section} {key}");
        }
    }
    for limit in limits::ALL {
        let show = |n| if limit.bytes { super::section::size(n) } else { n.to_string() };
        let bounds = format!("{} to {}", show(limit.least), show(limit.most));
        let mut before = "";
        let comment = whole.lines().find_map(|line| {
            let found = line.trim_start().starts_with(&format!("{}:", limit.key));
            let comment = std::mem::replace(&mut before, line);
            found.then_some(comment)
        });
        assert!(comment.is_some_and(|c| c.contains(&bounds)), "{}: {bounds}", limit.key);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_are_a_panic_or_take_long(
        lines in prop::collection::vec(
            (
                0..4_usize,
                prop::sample::select(vec![
                    "environment_ids", "listen", "allow", "roots", "disabled_skills", "search",
                    "limits", "log", "id", "path", "scope", "follow_links", "root", "name",
                    "passed_over", "max_depth", "max_file_bytes", "filter", "format", "-", "- id",
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
        let begun = Instant::now();
        drop(load_bytes(&bytes));
        bytes.splice(at..at, junk);
        drop(load_bytes(&bytes));
        prop_assert!(begun.elapsed() < Duration::from_secs(5));
    }
}
