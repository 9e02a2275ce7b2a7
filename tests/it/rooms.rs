//! The rooms of `src` and the arrows between them: which room may name which, and which libraries a
//! room must not know. Reads the sources as text; an arrow that is not in the table does not exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::readme;

/// Each room, and what it may name: a room (`disk`), or single items of one (`disk::Body`).
const ARROWS: &[(&str, &[&str])] = &[
    (
        "server",
        &[
            "bearer",
            "certs",
            "config",
            "domain",
            "file_watch",
            "catalog",
            "proto",
            "grpc",
            "telemetry",
        ],
    ),
    ("bearer", &[]),
    ("certs", &[]),
    (
        "cli",
        &[
            "server",
            "check",
            "client",
            "config",
            "disk::ScanProgress",
            "disk::ScanTarget",
            "domain",
            "endpoint",
            "file_watch",
            "locate",
            "mcp",
            "proto",
            "sandbox",
            "session",
            "telemetry::logs",
        ],
    ),
    ("client", &["certs", "yaml_document", "endpoint", "proto"]),
    ("check", &["disk", "domain"]),
    (
        "config",
        &[
            "bearer::TokenFile",
            "certs",
            "yaml_document",
            "domain",
            "endpoint",
            "catalog::FaultInjector",
            "catalog::OpenMethod",
            "catalog::WatchTiming",
        ],
    ),
    ("disk", &["domain"]),
    ("yaml_document", &[]),
    ("domain", &["hidden_chars"]),
    ("endpoint", &[]),
    ("file_watch", &[]),
    ("hidden_chars", &[]),
    ("host", &["yaml_document", "proto", "session"]),
    ("catalog", &["disk", "domain", "watch"]),
    ("lib", &[]),
    ("local", &["server::EmbeddedDaemon", "client", "config", "endpoint", "proto", "session"]),
    ("locate", &["disk", "domain"]),
    ("main", &["cli", "endpoint"]),
    ("mcp", &["client", "hidden_chars", "proto", "session"]),
    ("proto", &[]),
    (
        "grpc",
        &[
            "bearer::TokenDigest",
            "bearer::RuleTokens",
            "disk::PageBody",
            "disk::ListedFile",
            "disk::FileReadError",
            "domain",
            "catalog",
            "proto",
        ],
    ),
    ("sandbox", &["domain"]),
    ("session", &["client", "hidden_chars", "proto"]),
    (
        "telemetry",
        &[
            "config::LogConfig",
            "config::LogFormat",
            "config::TraceConfig",
            "domain",
            "catalog::PollReason",
            "catalog::CatalogStats",
            "catalog::CatalogStore",
            "catalog::RootState",
            "catalog::WatchMode",
            "proto",
        ],
    ),
    ("watch", &[]),
];

const UNKNOWN: &[(&str, &[&str])] = &[
    (
        "domain",
        &[
            "tokio",
            "tonic",
            "prost",
            "rustix",
            "inotify::",
            "std::fs",
            "std::io",
            "std::net",
            "std::env",
            "std::process",
            "Instant",
            "SystemTime",
        ],
    ),
    ("disk", &["tokio", "tonic", "prost", "inotify::"]),
    ("catalog", &["tonic", "prost", "rustix", "std::fs", "inotify::"]),
    ("grpc", &["rustix", "std::fs", "inotify::"]),
    ("client", &["rustix", "std::fs", "inotify::"]),
    ("session", &["rustix", "std::fs", "std::net", "inotify::", "Path"]),
    ("mcp", &["rustix", "std::fs", "inotify::"]),
    ("local", &["rustix", "std::fs", "inotify::"]),
    ("host", &["rustix", "std::fs", "inotify::"]),
];

/// One source file without its comments, and the room that it belongs to.
struct Source {
    path: PathBuf,
    room: String,
    /// How many `super` lead from the file's own module to the room's.
    depth: usize,
    code: String,
}

fn sources() -> Vec<Source> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    let mut dirs = vec![src.clone()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).expect("a directory of src") {
            let path = entry.expect("an entry of src").path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files.into_iter().map(|path| source(&src, &path)).collect()
}

fn source(src: &Path, path: &Path) -> Source {
    let below = path.strip_prefix(src).expect("a file below src").with_extension("");
    let mut modules: Vec<_> = below.iter().map(|s| s.to_string_lossy().into_owned()).collect();
    modules.pop_if(|last| last == "mod");
    let text = fs::read_to_string(path).expect("a source file");
    let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    Source {
        path: Path::new("src").join(path.strip_prefix(src).expect("a file below src")),
        room: modules[0].clone(),
        depth: modules.len() - 1,
        code: code.collect::<Vec<_>>().join("\n"),
    }
}

impl Source {
    /// What the file names outside its own room: `room`, or `room::item` where it names an item.
    fn references(&self) -> BTreeSet<String> {
        // The binary sees the library from outside.
        let crate_name = if self.room == "main" { "caproot" } else { "crate" };
        let paths = words(&self.code, crate_name).filter_map(|at| {
            let before = &self.code[..at];
            let rest = self.code[at + crate_name.len()..].strip_prefix("::")?;
            (!before.ends_with("::")).then(|| paths(rest))
        });
        let own = format!("{}::", self.room);
        paths.flatten().filter(|path| *path != self.room && !path.starts_with(&own)).collect()
    }

    /// Whether a chain of `super` leads out of the room. An indented chain may be in a `mod tests`
    /// of the file, one level further down.
    fn climbs_out(&self) -> bool {
        self.code.lines().any(|line| {
            let inside = usize::from(line.starts_with(' '));
            line.match_indices("super::").any(|(at, _)| {
                let chain = line[at..].split("::").take_while(|s| *s == "super").count();
                chain > self.depth + inside
            })
        })
    }

    /// The code before the file's tests; none of a file of tests.
    fn without_tests(&self) -> &str {
        if self.path.ends_with("tests.rs") {
            return "";
        }
        self.code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default()
    }
}

/// Where a name stands in a text as a word of its own.
fn words<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = usize> + 'a {
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name).map(|(at, _)| at).filter(move |at| {
        !text[..*at].ends_with(in_word) && !text[at + name.len()..].starts_with(in_word)
    })
}

/// The paths that a use tree or a path in code begins with, at most two segments of each.
fn paths(text: &str) -> Vec<String> {
    if let Some(group) = text.strip_prefix('{') {
        return members(group).into_iter().flat_map(paths).collect();
    }
    let room = ident(text);
    let Some(rest) = text[room.len()..].strip_prefix("::") else { return vec![room.to_owned()] };
    let items = match rest.strip_prefix('{') {
        Some(group) => members(group).into_iter().map(ident).collect(),
        None => vec![ident(rest)],
    };
    items.into_iter().map(|item| format!("{room}::{item}")).collect()
}

fn ident(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// The members of a group whose `{` is gone, each from its beginning.
fn members(group: &str) -> Vec<&str> {
    let mut members = vec![group.trim_start()];
    let mut depth = 0_usize;
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => members.push(group[at + 1..].trim_start()),
            _ => {}
        }
    }
    members.retain(|member| !ident(member).is_empty());
    members
}

fn is_allowed(path: &str, arrows: &[&str]) -> bool {
    let room = ident(path);
    arrows.iter().any(|arrow| *arrow == room || *arrow == path)
}

#[test]
fn every_arrow_is_in_the_table() {
    let table: BTreeMap<_, _> = ARROWS.iter().copied().collect();
    let mut wrong = Vec::new();
    let mut unused: BTreeSet<(&str, &str)> =
        ARROWS.iter().flat_map(|(from, to)| to.iter().map(|to| (*from, *to))).collect();
    for source in sources() {
        let file = source.path.display();
        let Some(arrows) = table.get(source.room.as_str()) else {
            wrong.push(format!("{file}: the room `{}` is not in the table", source.room));
            continue;
        };
        for path in source.references() {
            unused.retain(|(from, to)| *from != source.room || !is_allowed(&path, &[to]));
            if !is_allowed(&path, arrows) {
                wrong.push(format!("{file}: `{}` may not name `{path}`", source.room));
            }
        }
        if source.climbs_out() {
            wrong.push(format!("{file}: `super` leads out of the room; name it by `crate::`"));
        }
    }
    wrong.extend(unused.iter().map(|(from, to)| format!("the table: `{from}` names no `{to}`")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_room_knows_what_it_must_not() {
    let mut wrong = Vec::new();
    for source in sources() {
        let code = source.without_tests();
        let unknown = UNKNOWN.iter().filter(|(room, _)| *room == source.room);
        for name in unknown.flat_map(|(_, names)| names.iter()) {
            if words(code, name).next().is_some() {
                wrong.push(format!("{}: names `{name}`", source.path.display()));
            }
        }
        let library = words(code, "serde_yaml").next().is_some();
        if library && !source.path.ends_with("domain/yaml.rs") {
            wrong.push(format!("{}: names `serde_yaml`", source.path.display()));
        }
        let is_notify = words(code, "notify").any(|at| code[at..].starts_with("notify::"));
        if is_notify && source.room != "file_watch" {
            wrong.push(format!("{}: names `notify`", source.path.display()));
        }
        if code.contains("landlock::") && !source.path.ends_with("sandbox/ruleset.rs") {
            wrong.push(format!("{}: names `landlock`", source.path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_readme_draws_the_same_arrows() {
    let drawn: BTreeMap<String, BTreeSet<String>> = readme::table("| room | may name |")
        .into_iter()
        .map(|row| {
            (readme::ticked(&row[0]).concat(), readme::ticked(&row[1]).into_iter().collect())
        })
        .collect();
    let rooms = |arrows: &[&str]| arrows.iter().map(|arrow| ident(arrow).to_owned()).collect();
    let real = ARROWS.iter().filter(|(room, _)| *room != "lib");
    let real: BTreeMap<String, BTreeSet<String>> =
        real.map(|(room, arrows)| ((*room).to_owned(), rooms(arrows))).collect();
    assert_eq!(drawn, real);
}

#[test]
fn how_references_are_read() {
    let read = |code: &str| {
        let source =
            Source { path: PathBuf::new(), room: "grpc".into(), depth: 1, code: code.to_owned() };
        source.references().into_iter().collect::<Vec<_>>()
    };
    assert_eq!(read("use crate::disk::Body;"), ["disk::Body"]);
    assert_eq!(read("use crate::proto::caproot::v1 as pb;"), ["proto::caproot"]);
    assert_eq!(read("use crate::catalog;"), ["catalog"]);
    assert_eq!(read("use crate::grpc::limits; my_crate::disk::x()"), [""; 0]);
    assert_eq!(
        read("use crate::{\n    disk::{read::{A, B}, Body},\n    catalog::{self, View},\n};"),
        ["disk::Body", "disk::read", "catalog::View", "catalog::self"]
    );
    assert_eq!(read("let x = *y == crate::domain::main_file();"), ["domain::main_file"]);
}
