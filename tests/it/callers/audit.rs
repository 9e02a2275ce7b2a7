//! The audit log of the real binary: rejected calls and, if enabled, every call.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use caproot_core::proto::caproot::v1::{
    GetExecutorRequest, ListRootsRequest, ReadResourceRequest, SelectedCapabilityRoot,
    WatchSkillsRequest,
};
use prost::Message as _;
use rustix::process::Signal;
use serde_json::Value;
use tonic::{Code, Request};

use super::{with_token, write_token};
use crate::harness::fixture::Fixture;
use crate::harness::process::ConfiguredDaemon;
use crate::harness::{
    Client, connect, files_request, in_time, list_request, located, read_request, selected,
};

/// Hostile text in the place of an id. No log may contain it unescaped.
const HOSTILE: &str = "x\n2026-01-01T00:00:00Z  INFO caproot::audit: called\x1b[2J\x1b]0;t\x07\u{202e}\u{9b}31m\" \
     outcome=\"OK\"\\";

const RULES: &str = "roots: [{id: mine, path: mine}, {id: theirs, path: theirs}]\n\
    callers: [{name: me, token_file: token, roots: [mine]}]\n";

fn build_audited_tree() -> Fixture {
    let fixture = Fixture::new("skill mine/a\nfile mine/a/x.md\n| the body of x\nskill theirs/b");
    write_token(&fixture, "token", "s3cret");
    fixture
}

/// Returns the next line of the log, without the lines of the start.
async fn audit_line(logging: &mut ConfiguredDaemon) -> String {
    loop {
        let line = logging.process.log_line().await;
        if !line.contains("caproot::cli::operate::serve") {
            return line;
        }
    }
}

/// Returns this many lines of the log and, after killing the daemon, the other lines.
async fn read_log(mut logging: ConfiguredDaemon, count: usize) -> (Vec<String>, Vec<String>) {
    let mut lines = Vec::new();
    while lines.len() < count {
        lines.push(audit_line(&mut logging).await);
    }
    let rest = logging.process.exit_on(Signal::KILL).await.stderr;
    (lines, rest.lines().map(str::to_owned).collect())
}

/// Makes accepted and rejected calls of every kind, one after the other. Returns the size of the
/// list of skills in bytes.
async fn make_calls(client: &mut Client, fixture: &Fixture) -> usize {
    let mine = located("mine", "published:mine");
    let theirs = selected("theirs", fixture.path("theirs"));
    let roots = [mine.clone(), theirs.clone()];
    client
        .get_executor(with_token("wr0ng", GetExecutorRequest {}))
        .await
        .expect_err("rejected");
    client
        .list_roots(with_token("s3cret", ListRootsRequest {}))
        .await
        .expect("accepted");
    let list = client
        .list_skills(with_token("s3cret", list_request(&roots)))
        .await
        .expect("accepted");
    let read = read_request(&mine, "skill://mine/a", "skill://mine/a/x.md");
    client
        .read_resource(with_token("s3cret", read))
        .await
        .expect("accepted");
    let read = read_request(&theirs, "skill://theirs/b", "");
    client
        .read_resource(with_token("s3cret", read))
        .await
        .expect_err("rejected");
    let files = files_request(&mine, "skill://mine/a");
    client
        .list_resources(with_token("s3cret", files))
        .await
        .expect("accepted");
    list.get_ref().encoded_len()
}

#[tokio::test]
async fn every_call_is_logged_as_json() {
    let fixture = build_audited_tree();
    let config = format!("{RULES}audit: true\nlog: {{format: json}}");
    let mut logging = ConfiguredDaemon::start(&fixture, &config).await;
    let list_bytes = in_time(make_calls(&mut logging.daemon.client, &fixture)).await;
    let (lines, rest) = read_log(logging, 8).await;
    let lines: Vec<_> = lines.iter().map(|line| parse_audit_line(line)).collect();
    assert!(rest.iter().all(|line| !line.contains("audit")), "{rest:?}");
    let field = |at: usize, key: &str| lines[at]["fields"].get(key).cloned().unwrap_or(Value::Null);
    let keys = ["message", "method", "root", "outcome", "reason"];
    let summaries: Vec<_> = (0..8).map(|at| keys.map(|key| field(at, key))).collect();
    let null = || Value::Null;
    assert_eq!(
        summaries,
        [
            [
                "access denied".into(),
                "GetExecutor".into(),
                null(),
                null(),
                "CALLER_UNKNOWN".into()
            ],
            [
                "call".into(),
                "ListRoots".into(),
                null(),
                "OK".into(),
                null()
            ],
            [
                "access denied".into(),
                "ListSkills".into(),
                "theirs".into(),
                null(),
                "NOT_ALLOWED".into()
            ],
            [
                "call".into(),
                "ListSkills".into(),
                "mine,theirs".into(),
                "OK".into(),
                null()
            ],
            [
                "call".into(),
                "ReadResource".into(),
                "mine".into(),
                "OK".into(),
                null()
            ],
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
            [
                "call".into(),
                "ListResources".into(),
                "mine".into(),
                "OK".into(),
                null()
            ],
        ]
    );
    assert_eq!(
        (field(0, "rules"), field(1, "rules")),
        (null(), "me".into())
    );
    for at in 0..8 {
        let address = field(at, "address");
        assert!(
            address
                .as_str()
                .is_some_and(|text| text.starts_with("127.0.0.1:")),
            "{address}"
        );
    }
    assert_eq!(
        (field(4, "package"), field(4, "resource")),
        ("skill://mine/a".into(), "skill://mine/a/x.md".into())
    );
    assert_eq!(
        (field(6, "package"), field(6, "resource")),
        ("skill://theirs/b".into(), null())
    );
    assert_eq!(field(3, "bytes").as_u64(), Some(list_bytes as u64));
    assert!(
        field(4, "bytes").as_u64().is_some_and(|bytes| bytes > 14),
        "{}",
        lines[4]
    );
    assert_eq!(field(6, "bytes"), null());
    let all = format!("{lines:?}{rest:?}");
    let name = fixture
        .top()
        .file_name()
        .and_then(|name| name.to_str())
        .expect("UTF-8");
    for secret in ["s3cret", "wr0ng", "the body", name] {
        assert!(!all.contains(secret), "{secret}: {all}");
    }
}

/// Parses a line of the audit log, and checks its target and level.
fn parse_audit_line(line: &str) -> Value {
    let value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    assert_eq!(value["target"], "caproot::audit", "{line}");
    let level = if value["fields"]["message"] == "call" {
        "INFO"
    } else {
        "WARN"
    };
    assert_eq!(value["level"], level, "{line}");
    value
}

#[tokio::test]
async fn rejected_calls_are_logged_as_text() {
    let fixture = build_audited_tree();
    let mut logging = ConfiguredDaemon::start(&fixture, RULES).await;
    in_time(make_calls(&mut logging.daemon.client, &fixture)).await;
    let (lines, rest) = read_log(logging, 3).await;
    assert!(
        rest.iter().all(|line| !line.contains("audit")),
        "only rejected calls: {rest:?}"
    );
    for (line, expected) in lines.iter().zip([
        "WARN caproot::audit: access denied method=\"GetExecutor\" address=\"127.0.0.1:",
        "WARN caproot::audit: access denied method=\"ListSkills\" rules=\"me\" address=\"127.0.0.1:",
        "WARN caproot::audit: access denied method=\"ReadResource\" rules=\"me\" address=\"127.0.0.1:",
    ]) {
        assert!(line.contains(expected), "{line}");
    }
    assert!(
        lines[0].ends_with(" reason=\"CALLER_UNKNOWN\""),
        "{}",
        lines[0]
    );
    assert!(
        lines[2].ends_with(" root=\"theirs\" reason=\"ROOT_NOT_ALLOWED\""),
        "{}",
        lines[2]
    );
}

/// The flag works even if the log is for errors only, or off.
#[tokio::test]
async fn the_audit_flag_logs_every_call() {
    let fixture = Fixture::new("dir root");
    for log in ["error", "off"] {
        let flags = ["--audit", "--log", log];
        let mut logging = ConfiguredDaemon::start_with(&fixture, "allow: [root]", &flags).await;
        let answer = in_time(logging.daemon.client.get_executor(GetExecutorRequest {})).await;
        answer.expect("accepted without rules");
        let line = audit_line(&mut logging).await;
        let expected = "INFO caproot::audit: call method=\"GetExecutor\" address=\"127.0.0.1:";
        assert!(line.contains(expected), "{line}");
    }
}

/// Makes calls whose texts would break or forge log lines if they were written unescaped.
async fn make_hostile_calls(client: &mut Client, token: &str) {
    let long = "\u{202e}".repeat(40_000);
    let root = |id: &str| SelectedCapabilityRoot {
        id: id.into(),
        ..located("", HOSTILE)
    };
    for text in [HOSTILE, &long] {
        let list = list_request(&[root(text), root("a\u{202e}b")]);
        client
            .list_skills(with_token(token, list))
            .await
            .expect_err("invalid or rejected");
        let read = ReadResourceRequest {
            cursor: text.into(),
            if_none_match: text.into(),
            ..read_request(&root(text), text, text)
        };
        client
            .read_resource(with_token(token, read))
            .await
            .expect_err("invalid or rejected");
        let files = files_request(&root(text), text);
        client
            .list_resources(with_token(token, files))
            .await
            .expect_err("invalid or rejected");
        let watch = WatchSkillsRequest {
            selected_capability_roots: vec![root(text)],
            resume_token: text.into(),
            ..Default::default()
        };
        client
            .watch_skills(with_token(token, watch))
            .await
            .expect_err("invalid or rejected");
    }
    // The id is valid, the location is not.
    let root = SelectedCapabilityRoot {
        id: "\u{202e}\" x=\"".into(),
        ..located("", "/etc")
    };
    drop(
        client
            .list_skills(with_token(token, list_request(&[root])))
            .await,
    );
}

#[tokio::test]
async fn hostile_texts_break_no_log_line() {
    for format in ["text", "json"] {
        let fixture = build_audited_tree();
        let config = format!("{RULES}audit: true\nlog: {{format: {format}}}");
        let mut logging = ConfiguredDaemon::start(&fixture, &config).await;
        in_time(make_hostile_calls(&mut logging.daemon.client, "s3cret")).await;
        in_time(make_hostile_calls(&mut logging.daemon.client, "\\x1b[2J")).await;
        // 9 calls with a valid token, one of them with a denied root, and 9 rejected calls.
        let (lines, rest) = read_log(logging, 19).await;
        for line in lines.iter().chain(&rest) {
            assert!(
                !line.contains(caproot_core::text::is_misleading),
                "{line:?}"
            );
            assert!(line.len() < 8_192, "{} bytes: {line}", line.len());
            if format == "json" {
                parse_audit_line(line);
            } else {
                // All text is quoted and escaped: outside the quotes are only names and separators.
                let (_, fields) = line.split_once(" caproot::audit: ").expect("the target");
                let fields = fields.replace(r"\\", "").replace(r#"\""#, "");
                let outside: String = fields.split('"').step_by(2).collect();
                let plain = |c: char| c.is_ascii_alphanumeric() || " =_".contains(c);
                assert!(outside.chars().all(plain), "{outside}: {line}");
            }
        }
    }
}

/// How many calls a line reports as denied but not logged.
fn suppressed_count(line: &str) -> u64 {
    let (_, number) = line.split_once("suppressed").expect("a count");
    let digits: String = number
        .chars()
        .skip_while(|c| !c.is_ascii_digit())
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().expect("a number")
}

#[tokio::test]
async fn a_flood_of_rejected_calls_is_counted() {
    const CALLS: u64 = 1_000;
    let fixture = build_audited_tree();
    let mut logging = ConfiguredDaemon::start(&fixture, RULES).await;
    // Without an accepted call, the connection may have 32 calls in flight.
    let mut client = logging.client.clone();
    in_time(client.list_roots(with_token("s3cret", ListRootsRequest {})))
        .await
        .expect("accepted");
    let begun = Instant::now();
    let calls = (0..CALLS).map(|n| {
        let mut client = logging.client.clone();
        async move {
            let request = match n % 2 {
                0 => Request::new(GetExecutorRequest {}),
                _ => with_token("wr0ng", GetExecutorRequest {}),
            };
            client.get_executor(request).await.expect_err("rejected")
        }
    });
    // The daemon finds the requests of all calls at once.
    logging.process.send_signal(Signal::STOP);
    let calls = in_time(futures_util::future::join_all(calls));
    let send_requests = async {
        for _ in 0..10 * CALLS {
            tokio::task::yield_now().await;
        }
        logging.process.send_signal(Signal::CONT);
    };
    let (statuses, ()) = tokio::join!(calls, send_requests);
    // Each call gets its own status: no connection is closed.
    for status in &statuses {
        assert_eq!(status.code(), Code::Unauthenticated, "{status:?}");
    }
    let (mut logged, mut suppressed) = (0, 0);
    while logged + suppressed < CALLS {
        let line = audit_line(&mut logging).await;
        assert!(line.contains("WARN caproot::audit: "), "{line}");
        if line.contains("further denied calls not logged") {
            suppressed += suppressed_count(&line);
        } else {
            logged += 1;
        }
    }
    assert_eq!(logged + suppressed, CALLS);
    // The log takes 10 lines in each second begun, however slow this machine is.
    let max_logged = 10 * (begun.elapsed().as_secs() + 1);
    assert!(
        (10..=max_logged).contains(&logged),
        "{logged} of {CALLS} calls were logged, at most {max_logged} are allowed"
    );
    // An accepted caller is served during the flood.
    let mut client = logging.client.clone();
    in_time(client.list_roots(with_token("s3cret", ListRootsRequest {})))
        .await
        .expect("accepted");
}

#[tokio::test]
async fn a_flood_of_wrong_tokens_does_not_hide_the_denied_calls_of_another_caller() {
    let fixture = build_audited_tree();
    let mut logging = ConfiguredDaemon::start(&fixture, RULES).await;
    let address = logging.process.address().to_owned();
    let (rejected, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let floods = (0..4).map(|_| async {
        let mut client = connect(&address).await;
        while !is_over.load(Ordering::Relaxed) {
            let request = with_token("wr0ng", GetExecutorRequest {});
            client.get_executor(request).await.expect_err("rejected");
            rejected.fetch_add(1, Ordering::Relaxed);
        }
    });
    let other_caller = async {
        let mut client = connect(&address).await;
        let theirs = selected("theirs", fixture.path("theirs"));
        for n in 1..=5 {
            // The flood uses up its own lines before each call.
            while rejected.load(Ordering::Relaxed) < 50 * n {
                tokio::task::yield_now().await;
            }
            let read = read_request(&theirs, "skill://theirs/b", "");
            client
                .read_resource(with_token("s3cret", read))
                .await
                .expect_err("rejected");
        }
        is_over.store(true, Ordering::Relaxed);
    };
    in_time(futures_util::future::join(
        futures_util::future::join_all(floods),
        other_caller,
    ))
    .await;

    let rejected = rejected.load(Ordering::Relaxed) as u64;
    let (mut logged, mut suppressed, mut others) = (0, 0, 0);
    while logged + suppressed < rejected || others < 5 {
        let line = audit_line(&mut logging).await;
        if line.contains("further denied calls not logged") {
            assert!(line.ends_with(" address=\"loopback\""), "{line}");
            suppressed += suppressed_count(&line);
        } else if line.contains("rules=\"me\"") {
            others += 1;
        } else {
            logged += 1;
        }
    }
    assert_eq!((logged + suppressed, others), (rejected, 5));
    assert!(suppressed > 0, "{rejected} calls are no flood");
}
