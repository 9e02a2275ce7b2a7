//! Constructions that make comments, messages and documentation hard to read do not occur. Reads
//! comments and string literals line by line, so a construction that is split over two lines passes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use fancy_regex::Regex;

/// Each construction, and the pattern that finds it. Every alternative begins with `\b`, so that no
/// pattern finds itself.
const CONSTRUCTIONS: &[(&str, &str)] = &[
    (
        "a clause as a noun",
        concat!(
            r"\b(?:who|whom|what)ever\b|\bwhat (?:is|was|are|were|has|had|does|lies|comes|goes|stands",
            r"|makes|needs|becomes)\b",
            r"|(?:^|[,;:(] |\b(?:one|those|all|of|to|for|from|by|with|says?|said|tells?|told|and) )",
            r"who (?:is|was|are|were|has|had|does|comes|goes|stands|makes|needs)\b",
        ),
    ),
    (
        "a person who is not named",
        r"\b(?:no|some)body\b|\bstrangers?\b",
    ),
    (
        "an old word",
        concat!(
            r"\banew\b|\bbeside (?:it|that|these|them|this)\b|(?<!there )\b(?:is|are) none\b",
            r"|\bgo(?:es)? by (?:the|its|their|this|that|these|those|what)\b",
            r"|\bas it was\b(?! (?:when|before|defined|written|read)\b)",
            r"|\bthe very same\b|\bby a defect\b",
        ),
    ),
    (
        "a sentence that begins with `of`",
        r"(?:^|[.;:] )Of (?!course\b)[a-z`]|\bof (?:which|these|those)\b,",
    ),
    (
        "a list of what a module leaves to others",
        r"\b[Ll]eaves (?:\S+ ){1,12}to `",
    ),
];

/// Beginnings of a doc comment that do not name its subject.
const HEADLESS: &str =
    r"^(?:What|Where|Why|The same|One that|Those that|How(?! (?:many|often|long|much)\b))\b";

/// Files that have such constructions still, and how many. The list may only shrink.
const KNOWN: &[(&str, usize)] = &[];

/// A line of prose, and whether it stands in a doc comment.
struct Line {
    text: String,
    in_doc: bool,
}

/// Returns the prose of a line of a file: of Rust its comment or its string literals of 12 or more
/// characters, of a proto file its comment, of Markdown the line, and elsewhere a comment after `#`.
fn prose(path: &Path, line: &str, literal: &Regex) -> Option<Line> {
    let line = line.trim();
    let (text, in_doc) = match path.extension().and_then(|e| e.to_str()) {
        Some("rs") => {
            if let Some(doc) = line
                .strip_prefix("//!")
                .or_else(|| line.strip_prefix("///"))
            {
                (doc.trim().to_owned(), true)
            } else if let Some(comment) = line.strip_prefix("//") {
                (comment.trim().to_owned(), false)
            } else {
                (string_literals(line, literal), false)
            }
        }
        Some("proto") => (line.strip_prefix("//")?.trim().to_owned(), true),
        Some("md") if line.starts_with(['|', '#', '$']) || line.starts_with("<!--") => return None,
        Some("md") => (line.to_owned(), false),
        _ if line.starts_with("#!") => return None,
        _ => (line.strip_prefix('#')?.trim().to_owned(), false),
    };
    (!text.is_empty()).then_some(Line { text, in_doc })
}

/// Returns the string literals of a line of code, with the part of one that goes on in the next line.
fn string_literals(line: &str, literal: &Regex) -> String {
    let found = literal.captures_iter(line).filter_map(Result::ok);
    let mut texts: Vec<String> = found
        .filter_map(|found| Some(found.get(1)?.as_str().to_owned()))
        .collect();
    if let Some(unfinished) = line.strip_suffix('\\') {
        texts.push(unfinished.rsplit('"').next().unwrap_or_default().to_owned());
    }
    texts.join(" ")
}

/// Returns the files whose prose is read, relative to the package's directory.
fn find_files_with_prose() -> Vec<PathBuf> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = vec![];
    let mut left: Vec<PathBuf> = [
        "src",
        "crates",
        "tests",
        "examples",
        "benches",
        "fuzz",
        "proto",
        "python",
        "js",
        "systemd",
        ".ci",
        "build.rs",
        "Cargo.toml",
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "docs",
    ]
    .map(PathBuf::from)
    .into();
    while let Some(path) = left.pop() {
        let generated = [
            "tests/trees",
            "tests/snapshots",
            "fuzz/corpus",
            "fuzz/artifacts",
            "fuzz/target",
            "js/dist",
            "js/node_modules",
            "js/packages",
            "js/schema",
            "js/src/lines.ts",
            "python/caproot/_line_types.py",
            "python/dist",
        ];
        if generated.iter().any(|dir| path.starts_with(dir)) {
            continue;
        }
        if package.join(&path).is_symlink() {
            // A part of a package that the list has at its own place.
            continue;
        }
        if package.join(&path).is_dir() {
            let entries = fs::read_dir(package.join(&path)).expect("a directory of the package");
            left.extend(entries.map(|entry| path.join(entry.expect("an entry").file_name())));
        } else if has_prose(&path) {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn has_prose(path: &Path) -> bool {
    let extensions = [
        "rs", "md", "proto", "sh", "py", "yaml", "yml", "toml", "service", "socket",
    ];
    path.starts_with(".ci")
        || path.starts_with("systemd")
        || path
            .extension()
            .is_some_and(|e| extensions.iter().any(|known| e == *known))
}

/// Compiled patterns.
struct Patterns {
    constructions: Vec<(&'static str, Regex)>,
    headless: Regex,
    literal: Regex,
}

impl Patterns {
    fn compile() -> Self {
        let compile = |pattern| Regex::new(pattern).expect("a pattern");
        let constructions = CONSTRUCTIONS.iter();
        Self {
            constructions: constructions
                .map(|(name, pattern)| (*name, compile(pattern)))
                .collect(),
            headless: compile(HEADLESS),
            literal: compile(r#""((?:[^"\\]|\\.){12,})""#),
        }
    }
}

/// Returns each construction of a text as `line: construction: text`.
fn findings(path: &Path, text: &str) -> Vec<String> {
    static PATTERNS: LazyLock<Patterns> = LazyLock::new(Patterns::compile);
    let mut found = vec![];
    let mut last_doc_line = None;
    let mut in_fence = false;
    for (number, line) in (1..).zip(text.lines()) {
        let opens_or_closes = line.trim_start().starts_with("```");
        in_fence ^= opens_or_closes && path.extension().is_some_and(|e| e == "md");
        if in_fence || opens_or_closes {
            continue;
        }
        let Some(prose) = prose(path, line, &PATTERNS.literal) else {
            continue;
        };
        let begins_doc = prose.in_doc && last_doc_line != Some(number - 1);
        if prose.in_doc {
            last_doc_line = Some(number);
        }
        let has = |pattern: &Regex| pattern.is_match(&prose.text).expect("a search that ends");
        let named = PATTERNS
            .constructions
            .iter()
            .filter(|(_, pattern)| has(pattern))
            .map(|(name, _)| *name);
        let headless =
            (begins_doc && has(&PATTERNS.headless)).then_some("a doc comment without its subject");
        let named: Vec<_> = named.chain(headless).collect();
        found.extend(
            named
                .iter()
                .map(|name| format!("{number}: {name}: {}", prose.text)),
        );
    }
    found
}

#[test]
fn comments_and_messages_have_no_banned_construction() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let known: BTreeMap<_, _> = KNOWN
        .iter()
        .map(|(path, count)| (PathBuf::from(path), *count))
        .collect();
    let mut wrong = vec![];
    for path in find_files_with_prose() {
        let text = fs::read(package.join(&path)).expect("a file of the package");
        let found = findings(&path, &String::from_utf8_lossy(&text));
        let allowed = known.get(&path).copied().unwrap_or_default();
        if found.len() > allowed {
            wrong.extend(
                found
                    .iter()
                    .map(|found| format!("{}:{found}", path.display())),
            );
        } else if found.len() < allowed {
            wrong.push(format!(
                "{}: write {} instead of {allowed} in KNOWN",
                path.display(),
                found.len()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn constructions_are_recognized() {
    let count = |path: &str, text: &str| findings(Path::new(path), text).len();
    let banned = [
        concat!("/// Wh", "at the daemon keeps."),
        concat!("// The caller is who", "ever asks."),
        concat!("let x = \"no", "body may call this\";"),
        concat!("// Two files. O", "f these two, the first is read."),
        concat!("// The file is read an", "ew."),
    ];
    for text in banned {
        assert_eq!(count("src/x.rs", text), 1, "{text}");
    }
    assert_eq!(
        count(
            "src/x.rs",
            "/// Returns the root.\n/// What follows is no beginning.\n"
        ),
        0
    );
    assert_eq!(
        count("README.md", concat!("```text\nwho", "ever\n```\n")),
        0
    );
    assert_eq!(
        count(
            "src/x.rs",
            "/// How many roots are open.\n/// How long a call waits.\n"
        ),
        0
    );
}
