//! Hostile responses that are small on the wire and large in memory. The memory of the real commands,
//! of mirrors and of a fleet stays bounded.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use caproot_client::RetryPolicy;
use caproot_core::proto::caproot::v1::{RootState, RootStatus};
use http::{HeaderMap, HeaderValue};
use hyper::body::Bytes;
use prost::Message as _;
use serde_json::json;

use super::call_command::CallProcess;
use super::{client, published};
use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, caproot, program, run_command};
use crate::harness::process_usage::most_anonymous;
use crate::harness::test_servers::{RawDaemon, hostile_skill};
use crate::harness::{in_time, list_request};

/// Size of a hostile message.
const BOMB_BYTES: usize = 1 << 20;
/// Limit of a whole process while it decodes responses.
pub(super) const MAX_PROCESS_KIB: u64 = 64 << 10;

/// Returns a field with a length.
fn field(number: u32, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    prost::encoding::encode_key(
        number,
        prost::encoding::WireType::LengthDelimited,
        &mut bytes,
    );
    prost::encoding::encode_varint(content.len() as u64, &mut bytes);
    bytes.extend_from_slice(content);
    bytes
}

/// Returns an empty field, repeated up to nearly the size of a bomb.
fn repeated(number: u32) -> Vec<u8> {
    let one = field(number, b"");
    one.repeat((BOMB_BYTES - 4_096) / one.len())
}

/// Returns a skill whose frontmatter has a list of empty values.
fn skill_of_values() -> Vec<u8> {
    let value = field(6, &repeated(1));
    let entry = [field(1, b"a"), field(2, &value)].concat();
    let skill = hostile_skill("r", "skill://r/a").encode_to_vec();
    [skill, field(24, &field(1, &entry))].concat()
}

/// Returns bombs in the fields of `ListSkillsResponse`.
fn list_bombs() -> Vec<Vec<u8>> {
    let mut bombs: Vec<_> = (1..=4).map(repeated).collect();
    bombs.push(field(1, &skill_of_values()));
    bombs
}

/// Returns bombs in the events of `WatchSkillsResponse`: a delta, and diagnostics.
fn event_bombs() -> Vec<Vec<u8>> {
    let of_root = |parts: Vec<u8>| [field(1, b"r"), parts].concat();
    let mut events: Vec<_> = (2..=5)
        .map(|part| field(5, &of_root(repeated(part))))
        .collect();
    events.push(field(5, &of_root(field(2, &skill_of_values()))));
    events.push(field(5, &of_root(field(6, &repeated(1)))));
    events.push(field(6, &of_root(repeated(2))));
    events
}

/// Starts a daemon that sends this message in response to each call for its catalog, after a `reset`
/// in a stream.
async fn start_bomber(bomb: Vec<u8>) -> (String, Arc<AtomicUsize>) {
    let bomb = Bytes::from(bomb);
    let respond = move |method: &str| match method {
        "GetExecutor" => vec![Bytes::new()],
        "WatchSkills" => vec![Bytes::from(field(3, b"")), bomb.clone()],
        _ => vec![bomb.clone()],
    };
    RawDaemon::new(respond).start().await
}

/// Command of the binary that is killed if its private memory is over the limit. Besides the limit,
/// the stacks of its threads have memory that is not used.
fn limited(words: &str) -> Command {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let limit = MAX_PROCESS_KIB + 4 * 1_024 * (threads + 2);
    let inner = caproot(words.split_whitespace());
    let mut command = program("sh");
    command
        .arg("-c")
        .arg(format!("ulimit -d {limit} && exec \"$0\" \"$@\""))
        .arg(inner.get_program())
        .args(inner.get_args())
        .env("HOME", "/nonexistent");
    command
}

#[tokio::test]
async fn commands_stop_before_a_response_fills_the_memory() {
    for (words, bombs) in [
        ("list --root published:r", list_bombs()),
        ("list --root published:r --output json", list_bombs()),
        ("watch --root published:r", event_bombs()),
        ("watch --root published:r --output json", event_bombs()),
        ("resolve --published", vec![repeated(1)]),
        ("resolve --root published:r", vec![repeated(1)]),
        (
            "resources --root published:r skill://r/a",
            vec![repeated(1)],
        ),
    ] {
        for (n, bomb) in bombs.into_iter().enumerate() {
            let (address, _) = start_bomber(bomb).await;
            let output = run_command(limited(&format!("{words} --endpoint tcp:{address}"))).await;
            let text = &output.stderr;
            let is_reported = ["too large", "invalid response", "over 1,000"]
                .iter()
                .any(|part| text.contains(part));
            assert!(
                output.code.is_some_and(|code| code != 0) && is_reported,
                "{words}, bomb {n}: {:?} {text}",
                output.code
            );
        }
    }
}

/// The MCP server keeps its last catalog, rejects a bomb, and waits before the next attempt.
#[tokio::test]
async fn the_mcp_server_stays_small() {
    let status = RootStatus {
        id: "r".to_owned(),
        state: RootState::Ready.into(),
        ..RootStatus::default()
    };
    let events = [
        field(3, b""),
        field(4, &status.encode_to_vec()),
        field(7, b""),
        // An empty skill.
        field(5, &[field(1, b"r"), repeated(2)].concat()),
    ]
    .map(Bytes::from);
    let watches = Arc::new(AtomicUsize::new(0));
    let watch_count = watches.clone();
    let daemon = RawDaemon::new(move |method| {
        if method != "WatchSkills" {
            return vec![Bytes::new()];
        }
        watch_count.fetch_add(1, Ordering::Relaxed);
        events.to_vec()
    });
    let (address, _) = daemon.start().await;
    let endpoint = format!("tcp:{address}");
    let mcp = ["mcp", "--endpoint", &endpoint, "--root", "published:r"];
    let mut process = Process::spawn(caproot(mcp));
    process.wait_for_log("too large").await;
    let peak = most_anonymous(process.pid());
    assert!(peak <= MAX_PROCESS_KIB, "{peak} KiB");
    assert_eq!(watches.load(Ordering::Relaxed), 1);
}

/// The mirrors of 100 executors that all send bombs take no more memory than one. The first bomb has
/// the maximum size on the wire. The second is within all limits, and is decoded.
#[tokio::test]
async fn a_fleet_of_hostile_executors_stays_small() {
    let names: Vec<_> = (0..100).map(|n| format!("e{n}")).collect();
    let roots: Vec<_> = names
        .iter()
        .map(|name| {
            let location = json!({"type": "environment", "environmentId": name, "path": "/r"});
            json!({"id": name, "location": location})
        })
        .collect();
    let fixture = Fixture::new("");
    fixture.write("roots.json", json!(roots).to_string());

    for skills in [2_000_000, 12_000] {
        let delta = [field(1, b"r"), field(2, b"").repeat(skills)].concat();
        let (address, calls) = start_bomber(field(5, &delta)).await;
        let executors: Vec<_> = names
            .iter()
            .map(|name| format!("  {name}: {{endpoint: 'tcp:{address}'}}\n"))
            .collect();
        fixture.write("fleet.yaml", format!("executors:\n{}", executors.concat()));
        let mut command = caproot(["call", "--fleet"]);
        command
            .arg(fixture.path("fleet.yaml"))
            .arg("--selected")
            .arg(fixture.path("roots.json"));
        let mut call = CallProcess::start(command);
        let list = call.call("skills.list", &json!({})).await;
        assert_eq!(list["skills"], json!([]), "{list}");
        assert!(calls.load(Ordering::Relaxed) >= 100);
        let peak = most_anonymous(call.pid());
        assert!(peak <= MAX_PROCESS_KIB, "{skills} skills: {peak} KiB");
        println!("{skills} skills: {peak} KiB");
    }
}

/// Hostile executors do not take the budget of responses from a good one.
#[tokio::test]
async fn other_executors_go_on() {
    let bomb = Bytes::from(repeated(1));
    // The response never ends.
    let (hostile, _) = RawDaemon::new(move |_| vec![bomb.clone(), bomb.clone()])
        .start()
        .await;
    let (_fixture, daemon) = super::serve_tree("r", "skill r/a\nskill r/b").await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let mut client = client(&hostile).await.with_retry_policy(RetryPolicy::NONE);
        calls.spawn(async move { client.list_skills(&list_request(&[published("r")])).await });
    }
    let mut client = client(&daemon.address).await;
    for _ in 0..10 {
        let list = in_time(client.list_skills(&list_request(&[published("r")]))).await;
        assert_eq!(list.expect("a list").skills.len(), 2);
    }
    while let Some(outcome) = in_time(calls.join_next()).await {
        outcome.expect("no panic").expect_err("a bomb");
    }
    daemon.stop().await;
}

/// Details of an error are bounded by the size of the headers.
#[tokio::test]
async fn details_of_an_error_are_bounded() {
    for (kib, code) in [(8, "NOT_FOUND"), (32, "")] {
        let details = field(3, b"").repeat(kib << 9);
        let details = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, details);
        let trailers = HeaderMap::from_iter([
            (
                "grpc-status".parse().expect("a name"),
                HeaderValue::from_static("5"),
            ),
            (
                "grpc-status-details-bin".parse().expect("a name"),
                HeaderValue::from_str(&details).expect("a value"),
            ),
        ]);
        let daemon = RawDaemon::new(|_| Vec::new()).with_trailers(trailers);
        let (address, _) = daemon.start().await;
        let mut client = client(&address).await.with_retry_policy(RetryPolicy::NONE);
        let error = in_time(client.get_executor()).await.expect_err("an error");
        assert!(error.to_string().contains(code), "{kib} KiB: {error}");
        assert_eq!(error.reason(), None);
    }
}
