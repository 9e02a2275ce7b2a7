//! The audit log, as the real binary writes it: who was refused, and who asked for what.

use std::time::Instant;

use caproot::proto::caproot::v1::{
    GetExecutorRequest, ListResourcesRequest, ListRootsRequest, ReadResourceRequest,
    SelectedCapabilityRoot, WatchSkillsRequest,
};
use prost::Message as _;
use serde_json::Value;
use tonic::{Code, Request};

use super::logging::Logging;
use super::{by, write_token};
use crate::fixture::Fixture;
use crate::harness::{Client, in_time, list_request, located, read_request, selected};

/// What strangers may write where an id is expected, and in no log as it is.
const HOSTILE: &str = "x\n2026-01-01T00:00:00Z  INFO caproot::audit: called\x1b[2J\x1b]0;t\x07\u{202e}\u{9b}31m\" \
     outcome=\"OK\"\\";

const RULES: &str = "roots: [{id: mine, path: mine}, {id: theirs, path: theirs}]\n\
    callers: [{name: me, token_file: token, roots: [mine]}]\n";

fn fixture() -> Fixture {
    let fixture = Fixture::new("skill mine/a\nfile mine/a/x.md\n| the body of x\nskill theirs/b");
    write_token(&fixture, "token", "s3cret");
    fixture
}

/// Calls of every kind, good and bad: 10 of them, each waited for.
async fn calls(client: &mut Client, fixture: &Fixture) -> usize {
    let mine = located("mine", "published:mine");
    let theirs = selected("theirs", fixture.path("theirs"));
    let roots = [mine.clone(), theirs.clone()];
    client.get_executor(by("wr0ng", GetExecutorRequest {})).await.expect_err("refused");
    client.list_roots(by("s3cret", ListRootsRequest {})).await.expect("let in");
    let list = client.list_skills(by("s3cret", list_request(&roots))).await.expect("let in");
    let read = read_request(&mine, "skill://mine/a", "skill://mine/a/x.md");
    client.read_resource(by("s3cret", read)).await.expect("let in");
    let read = read_request(&theirs, "skill://theirs/b", "");
    client.read_resource(by("s3cret", read)).await.expect_err("refused");
    let package = "skill://mine/a".to_owned();
    let files = ListResourcesRequest { root: Some(mine.clone()), package, ..Default::default() };
    client.list_resources(by("s3cret", files)).await.expect("let in");
    list.get_ref().encoded_len()
}

#[tokio::test]
async fn every_call_as_json() {
    let fixture = fixture();
    let config = format!("{RULES}audit: true\nlog: {{format: json}}");
    let mut logging = Logging::start(&fixture, &config, &[]).await;
    let list_bytes = in_time(calls(&mut logging.client, &fixture)).await;
    let lines: Vec<Value> = (0..8).map(|_| audit_json(&logging.line())).collect();
    let rest = logging.end();
    assert!(rest.iter().all(|line| !line.contains("audit")), "{rest:?}");
    let of = |at: usize, key: &str| lines[at]["fields"].get(key).cloned().unwrap_or(Value::Null);
    let keys = ["message", "method", "root", "outcome", "reason"];
    let told: Vec<_> = (0..8).map(|at| keys.map(|key| of(at, key))).collect();
    let null = || Value::Null;
    assert_eq!(
        told,
        [
            ["access denied".into(), "GetExecutor".into(), null(), null(), "CALLER_UNKNOWN".into()],
            ["call".into(), "ListRoots".into(), null(), "OK".into(), null()],
            [
                "access denied".into(),
                "ListSkills".into(),
                "theirs".into(),
                null(),
                "NOT_ALLOWED".into()
            ],
            ["call".into(), "ListSkills".into(), "mine,theirs".into(), "OK".into(), null()],
            ["call".into(), "ReadResource".into(), "mine".into(), "OK".into(), null()],
            [
                "access denied".into(),
                "ReadResource".into(),
                "theirs".into(),
                null(),
                "ROOT_NOT_ALLOWED".into()
            ],
            [
                "call".into(),
                "ReadResource".into(),
                "theirs".into(),
                "PERMISSION_DENIED".into(),
                "ROOT_NOT_ALLOWED".into()
            ],
            ["call".into(), "ListResources".into(), "mine".into(), "OK".into(), null()],
        ]
    );
    assert_eq!((of(0, "rules"), of(1, "rules")), (null(), "me".into()));
    for at in 0..8 {
        let address = of(at, "address");
        assert!(address.as_str().is_some_and(|text| text.starts_with("127.0.0.1:")), "{address}");
    }
    assert_eq!(
        (of(4, "package"), of(4, "resource")),
        ("skill://mine/a".into(), "skill://mine/a/x.md".into())
    );
    assert_eq!((of(6, "package"), of(6, "resource")), ("skill://theirs/b".into(), null()));
    assert_eq!(of(3, "bytes").as_u64(), Some(list_bytes as u64));
    assert!(of(4, "bytes").as_u64().is_some_and(|bytes| bytes > 14), "{}", lines[4]);
    assert_eq!(of(6, "bytes"), null());
    let all = format!("{lines:?}{rest:?}");
    let name = fixture.top().file_name().and_then(|name| name.to_str()).expect("UTF-8");
    for secret in ["s3cret", "wr0ng", "the body", name] {
        assert!(!all.contains(secret), "{secret}: {all}");
    }
}

/// A line of the log, which is about the audit.
fn audit_json(line: &str) -> Value {
    let value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    assert_eq!(value["target"], "caproot::audit", "{line}");
    let level = if value["fields"]["message"] == "call" { "INFO" } else { "WARN" };
    assert_eq!(value["level"], level, "{line}");
    value
}

#[tokio::test]
async fn refused_calls_as_text() {
    let fixture = fixture();
    let mut logging = Logging::start(&fixture, RULES, &[]).await;
    in_time(calls(&mut logging.client, &fixture)).await;
    let told: Vec<_> = (0..3).map(|_| logging.line()).collect();
    let rest = logging.end();
    assert!(rest.iter().all(|line| !line.contains("audit")), "only refused ones: {rest:?}");
    for (line, says) in told.iter().zip([
        "WARN caproot::audit: access denied method=\"GetExecutor\" address=\"127.0.0.1:",
        "WARN caproot::audit: access denied method=\"ListSkills\" rules=\"me\" address=\"127.0.0.1:",
        "WARN caproot::audit: access denied method=\"ReadResource\" rules=\"me\" address=\"127.0.0.1:",
    ]) {
        assert!(line.contains(says), "{line}");
    }
    assert!(told[0].ends_with(" reason=\"CALLER_UNKNOWN\""), "{}", told[0]);
    assert!(told[2].ends_with(" root=\"theirs\" reason=\"ROOT_NOT_ALLOWED\""), "{}", told[2]);
}

/// By a flag, and even where the log is for errors alone.
#[tokio::test]
async fn by_a_flag() {
    let fixture = Fixture::new("dir root");
    for log in ["error", "off"] {
        let flags = ["--audit", "--log", log];
        let mut logging = Logging::start(&fixture, "allow: [root]", &flags).await;
        let answer = in_time(logging.client.get_executor(GetExecutorRequest {})).await;
        answer.expect("whoever can connect");
        let line = logging.line();
        let says = "INFO caproot::audit: call method=\"GetExecutor\" address=\"127.0.0.1:";
        assert!(line.contains(says), "{line}");
    }
}

/// Calls in which a stranger writes what would be more than one line, or something else, in a log.
async fn hostile_calls(client: &mut Client, token: &str) {
    let long = "\u{202e}".repeat(40_000);
    let root = |id: &str| SelectedCapabilityRoot { id: id.into(), ..located("", HOSTILE) };
    for text in [HOSTILE, &long] {
        let list = list_request(&[root(text), root("a\u{202e}b")]);
        client.list_skills(by(token, list)).await.expect_err("bad or refused");
        let read = ReadResourceRequest {
            cursor: text.into(),
            if_none_match: text.into(),
            ..read_request(&root(text), text, text)
        };
        client.read_resource(by(token, read)).await.expect_err("bad or refused");
        let files = ListResourcesRequest {
            root: Some(root(text)),
            package: text.into(),
            ..Default::default()
        };
        client.list_resources(by(token, files)).await.expect_err("bad or refused");
        let watch = WatchSkillsRequest {
            selected_capability_roots: vec![root(text)],
            resume_token: text.into(),
            ..Default::default()
        };
        client.watch_skills(by(token, watch)).await.expect_err("bad or refused");
    }
    // An id that is one, of a root that is none.
    let fine = SelectedCapabilityRoot { id: "\u{202e}\" x=\"".into(), ..located("", "/etc") };
    drop(client.list_skills(by(token, list_request(&[fine]))).await);
}

#[tokio::test]
async fn hostile_texts() {
    for format in ["text", "json"] {
        let fixture = fixture();
        let config = format!("{RULES}audit: true\nlog: {{format: {format}}}");
        let mut logging = Logging::start(&fixture, &config, &[]).await;
        in_time(hostile_calls(&mut logging.client, "s3cret")).await;
        in_time(hostile_calls(&mut logging.client, "\\x1b[2J")).await;
        // 9 that are let in, one of them with a root that is refused, and 9 that are not let in.
        let lines: Vec<_> = (0..19).map(|_| logging.line()).collect();
        for line in lines.iter().chain(&logging.end()) {
            assert!(!line.contains(caproot::domain::escape::is_misleading), "{line:?}");
            assert!(line.len() < 8_192, "{} bytes: {line}", line.len());
            if format == "json" {
                audit_json(line);
            } else {
                // Quoted, so that no text ends before its field does.
                let (_, told) = line.split_once(" caproot::audit: ").expect("the target");
                let told = told.replace(r"\\", "").replace(r#"\""#, "");
                let outside: String = told.split('"').step_by(2).collect();
                let plain = |c: char| c.is_ascii_alphanumeric() || " =_".contains(c);
                assert!(outside.chars().all(plain), "{outside}: {line}");
            }
        }
    }
}

/// How many calls a line says were refused and not told.
fn untold_of(line: &str) -> u64 {
    let (_, number) = line.split_once("suppressed").expect("a count");
    let digits: String = number
        .chars()
        .skip_while(|c| !c.is_ascii_digit())
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().expect("a number")
}

#[tokio::test]
async fn a_flood_of_refused_calls_is_counted() {
    const CALLS: u64 = 600;
    let fixture = fixture();
    let logging = Logging::start(&fixture, RULES, &[]).await;
    let begun = Instant::now();
    let calls = (0..CALLS).map(|n| {
        let mut client = logging.client.clone();
        async move {
            let request = match n % 2 {
                0 => Request::new(GetExecutorRequest {}),
                _ => by("wr0ng", GetExecutorRequest {}),
            };
            client.get_executor(request).await.expect_err("refused").code()
        }
    });
    let codes = in_time(futures_util::future::join_all(calls)).await;
    // Each is answered, and none by the end of the connection.
    assert!(codes.iter().all(|code| *code == Code::Unauthenticated), "{codes:?}");
    let (mut told, mut untold) = (0, 0);
    while told + untold < CALLS {
        let line = logging.line();
        assert!(line.contains("WARN caproot::audit: "), "{line}");
        if line.contains("further denied calls not logged") {
            untold += untold_of(&line);
        } else {
            told += 1;
        }
    }
    assert_eq!(told + untold, CALLS);
    // As many as begun seconds allow, however slow this machine is.
    let most = 10 * (begun.elapsed().as_secs() + 1);
    assert!((10..=most).contains(&told), "{told} of {CALLS} were told, {most} may be");
    // Whoever may ask is not held up by it.
    let mut client = logging.client.clone();
    in_time(client.list_roots(by("s3cret", ListRootsRequest {}))).await.expect("let in");
}
