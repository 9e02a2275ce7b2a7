//! Runs the cases in `tests/trees/*.txt`: a tree and the expected list of the daemon, for both
//! methods to open files.
//!
//! ```text
//! == a plain name for the case
//! root ID = DIR       selects DIR of the tree under ID; more lines select more roots, in order.
//!                     Default: `root r = root`
//! allow DIR           an allowed directory; more lines allow more. Default: every selected DIR
//! limit NAME VALUE    one of the daemon's limits, such as `max_depth 6`
//! product NAME        the request's product
//! view BASIC          the request's view
//! show FIELD …        also shows, of a root: kind plugin omitted other_product skipped_directories
//!                     directories entries; of a skill: license compatibility metadata tools
//!                     frontmatter interface dependencies permissions host_capabilities
//!                     plugin_package
//! not-as-root         the case needs files that the user cannot read; skipped as root
//! …                   entries of the tree, as `fixture.rs` describes them
//! expect
//! …                   the canonical list, as `listing.rs` describes it
//! read PACKAGE [RESOURCE] = ANSWER
//! ```
//!
//! Below `expect`, `*` matches any text within a line. A diagnostic may end in ` contains "…"`,
//! which is searched in its message. A `read` line reads a file by its handle in the first root, to
//! the end. Handles accept the escapes of `fixture.rs`. ANSWER is `text "…"`, `data "…"`, or the
//! status and the reason of the error.
//!
//! Empty lines and lines that begin with `#` are ignored. `CAPROOT_BLESS=1 cargo test trees`
//! rewrites the expectations from the output of the daemon. Review the difference afterwards: the
//! files are the specification.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use caproot::daemon::catalog::OpenMethod;
use caproot_core::proto::caproot::v1::read_resource_response::Body;
use caproot_core::proto::caproot::v1::{ListSkillsRequest, SelectedCapabilityRoot, SkillView};
use tonic::Status;

use crate::calls::catalog_digests::assert_digests;
use crate::harness::diff::diff;
use crate::harness::fixture::{Fixture, is_comment, is_root, unescape};
use crate::harness::listing::{self, Line};
use crate::harness::{
    Daemon, Setup, bytes_of, list_request, openers, read_request, rpc_error, selected,
};

#[tokio::test]
async fn discovery() {
    run_cases("discovery").await;
}

#[tokio::test]
async fn namespaces() {
    run_cases("namespaces").await;
}

#[tokio::test]
async fn parsing() {
    run_cases("parsing").await;
}

#[tokio::test]
async fn sidecars() {
    run_cases("sidecars").await;
}

#[tokio::test]
async fn reads() {
    run_cases("reads").await;
}

/// Directives of a case before `expect`.
#[derive(Default)]
struct Case {
    name: String,
    roots: Vec<(String, String)>,
    allow: Vec<String>,
    limits: caproot::daemon::model::Limits,
    product: String,
    basic: bool,
    show: Vec<String>,
    not_as_root: bool,
    tree: String,
    expected: Vec<String>,
}

/// Runs the cases of one file. With `CAPROOT_BLESS`, rewrites the file instead of failing.
async fn run_cases(theme: &str) {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/trees/{theme}.txt"));
    let text = fs::read_to_string(&file).expect("the file of the theme");
    let cases = split_cases(&text);
    assert!(!cases.is_empty(), "no case in {theme}");
    let bless = std::env::var_os("CAPROOT_BLESS").is_some();
    let (mut failures, mut blessed) = (String::new(), text.clone());
    for source in cases {
        let case = parse_case(source);
        if case.not_as_root && is_root() {
            println!("skipped as root: {}", case.name);
            continue;
        }
        let (name, wanted) = (case.name.clone(), case.expected.clone());
        let case = Arc::new(case);
        for opener in openers() {
            // Each case runs on a thread of its own, so that a panic fails only this case. Its own
            // runtime frees all kernel resources of the daemon.
            let case = case.clone();
            let on_its_own = move || {
                let runtime = tokio::runtime::Runtime::new().expect("a runtime");
                runtime.block_on(actual_lines(&case, opener))
            };
            let lines = tokio::task::spawn_blocking(on_its_own).await;
            let Ok(lines) = lines else {
                write!(
                    failures,
                    "\n== {name}, by {opener:?}\nthe case panicked; see above\n"
                )
                .expect("text");
                continue;
            };
            let actual = join_like_expected(&wanted, lines);
            let expected = wanted.join("\n");
            if expected == actual {
                continue;
            }
            if bless {
                let (head, _) = source
                    .split_once("\nexpect\n")
                    .expect("checked by parse_case");
                let tail = if source.ends_with("\n\n") {
                    "\n\n"
                } else {
                    "\n"
                };
                blessed = blessed.replace(source, &format!("{head}\nexpect\n{actual}{tail}"));
                break;
            }
            let difference = diff(&expected, &actual);
            write!(failures, "\n== {name}, by {opener:?}\n{difference}").expect("text");
        }
    }
    if bless {
        fs::write(&file, blessed).expect("the file can be written");
    }
    assert!(
        failures.is_empty(),
        "{theme}: - expected, + actual\n{failures}"
    );
}

/// Returns the text of each case, from its header to the next header.
fn split_cases(text: &str) -> Vec<&str> {
    let mut starts: Vec<usize> = text.match_indices("\n== ").map(|(at, _)| at + 1).collect();
    if text.starts_with("== ") {
        starts.insert(0, 0);
    }
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    starts
        .iter()
        .zip(ends)
        .map(|(start, end)| &text[*start..end])
        .collect()
}

fn parse_case(source: &str) -> Case {
    let (head, expected) = source
        .split_once("\nexpect\n")
        .expect("a case has an `expect` line");
    let expected = expected
        .lines()
        .filter(|l| !is_comment(l))
        .map(str::to_owned)
        .collect();
    let mut case = Case {
        expected,
        ..Case::default()
    };
    for line in head.lines() {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "==" => rest.clone_into(&mut case.name),
            "root" => {
                let (id, dir) = rest.split_once(" = ").expect("root ID = DIR");
                case.roots.push((id.to_owned(), dir.to_owned()));
            }
            "allow" => case.allow.push(rest.to_owned()),
            "limit" => set_limit(&mut case.limits, rest),
            "product" => rest.clone_into(&mut case.product),
            "view" => case.basic = rest == "BASIC",
            "show" => case.show.extend(rest.split(' ').map(str::to_owned)),
            "not-as-root" => case.not_as_root = true,
            _ => writeln!(case.tree, "{line}").expect("text"),
        }
    }
    if case.roots.is_empty() {
        case.roots.push(("r".into(), "root".into()));
    }
    if case.allow.is_empty() {
        case.allow = case.roots.iter().map(|(_, dir)| dir.clone()).collect();
    }
    case
}

fn set_limit(limits: &mut caproot::daemon::model::Limits, rest: &str) {
    let (name, value) = rest.split_once(' ').expect("limit NAME VALUE");
    let value: usize = value.parse().expect("a number");
    match name {
        "max_depth" => limits.max_depth = value,
        "max_directories" => limits.max_directories = value,
        "max_entries" => limits.max_entries = value,
        "max_skills" => limits.max_skills = value,
        "max_file_bytes" => limits.max_file_bytes = value as u64,
        _ => panic!("unknown limit: {name}"),
    }
}

/// Returns the lines that the daemon gives for the tree.
async fn actual_lines(case: &Case, opener: OpenMethod) -> Vec<Line> {
    let fixture = Fixture::new(&case.tree);
    let mut setup = Setup::allowing(case.allow.iter().map(|dir| fixture.path(dir)));
    setup.limits = case.limits.clone();
    setup.opener = Some(opener);
    let daemon = Daemon::start(setup).await;
    let roots: Vec<_> = case
        .roots
        .iter()
        .map(|(id, dir)| selected(id, fixture.path(dir)))
        .collect();

    let view = if case.basic {
        SkillView::Basic
    } else {
        SkillView::Unspecified
    };
    let request = ListSkillsRequest {
        product: case.product.clone(),
        view: view.into(),
        ..list_request(&roots)
    };
    let answer = daemon.try_list(request).await.expect("ListSkills");
    assert!(
        answer.next_page_token.is_empty(),
        "{}: more than one page",
        case.name
    );
    let resolved = daemon.resolve(&roots).await;

    if !case.basic {
        assert_digests(&answer, &resolved.roots);
    }

    let mut lines = listing::canonical_lines(&answer, &resolved.roots, &case.show);
    for line in case.expected.iter().filter(|l| l.starts_with("read ")) {
        let (command, _) = line.split_once(" = ").expect("read … = ANSWER");
        let text = format!(
            "{command} = {}",
            read_outcome(&daemon, &roots[0], command).await
        );
        lines.push(Line {
            text,
            message: String::new(),
        });
    }
    daemon.stop().await;
    lines
}

async fn read_outcome(daemon: &Daemon, root: &SelectedCapabilityRoot, command: &str) -> String {
    let handle = |text: &str| String::from_utf8(unescape(text)).expect("a handle in UTF-8");
    let mut words = command.split(' ').skip(1).map(handle);
    let package = words.next().expect("read PACKAGE [RESOURCE]");
    let request = read_request(root, &package, &words.next().unwrap_or_default());
    let outcome: Result<_, Status> = async {
        let first = daemon.read(request.clone()).await?;
        let all = daemon.read_all(request).await?;
        assert!(all.starts_with(&bytes_of(&first)), "the same file twice");
        let kind = if matches!(first.body, Some(Body::Contents(_))) {
            "text"
        } else {
            "data"
        };
        Ok(format!("{kind} {}", printed(&all)))
    }
    .await;
    outcome.unwrap_or_else(|status| {
        let refused = rpc_error(&status);
        let code = format!("{:?}", refused.code);
        format!("{code} {}", refused.reason)
    })
}

fn printed(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => listing::quote(text),
        Err(_) => format!("\"{}\"", bytes.escape_ascii()),
    }
}

/// Joins the lines of the daemon. A line that matches an expected line is written like that line.
fn join_like_expected(expected: &[String], actual: Vec<Line>) -> String {
    let mut open: Vec<&String> = expected.iter().collect();
    let mut lines = Vec::new();
    for line in actual {
        let found = open.iter().position(|pattern| matches_line(&line, pattern));
        lines.push(found.map_or(line.text, |at| open.remove(at).clone()));
    }
    lines.join("\n")
}

fn matches_line(line: &Line, pattern: &str) -> bool {
    let (pattern, wanted) = match pattern.split_once(" contains \"") {
        Some((pattern, wanted)) => (pattern, wanted.strip_suffix('"').expect("a closing quote")),
        None => (pattern, ""),
    };
    line.message.contains(wanted) && matches(&line.text, pattern)
}

/// Whether `text` matches `pattern`, where `*` matches any text.
fn matches(text: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => text == pattern,
        Some((head, rest)) => text.strip_prefix(head).is_some_and(|tail| {
            tail.char_indices()
                .map(|(at, _)| at)
                .chain([tail.len()])
                .any(|at| matches(&tail[at..], rest))
        }),
    }
}

#[test]
fn patterns_match_whole_lines() {
    assert!(matches(
        "  NOTE ALIAS skill://r/a:1:2",
        "  NOTE ALIAS skill://r/a*"
    ));
    assert!(matches("  ERROR X", "  * X"));
    assert!(!matches("  ERROR X", "  ERROR"));
    assert!(!matches("  ERROR XY", "  * X"));
}
