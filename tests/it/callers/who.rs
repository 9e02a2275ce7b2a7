//! Who is let in, by what the kernel says of a process.

use std::process::Command;

use caproot::proto::caproot::v1::capability_service_client::CapabilityServiceClient;
use caproot::proto::caproot::v1::{
    GetExecutorRequest, ListResourcesRequest, ListRootsRequest, ResolveRootsRequest,
    SelectedCapabilityRoot, WatchSkillsRequest,
};
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;

use super::{As, daemon, may_be_others, reachable};
use crate::fixture::Fixture;
use crate::harness::{
    Client, Daemon, assert_rpc_error, in_time, list_request, located, read_request, selected,
};

const USER: As = As { uid: 7_001, gid: 7_001, groups: &[] };
const STRANGER: As = As { uid: 7_002, gid: 7_002, groups: &[5] };

const RULES: &str = "socket: {mode: '0666'}\nlisten: ['unix:run/c.sock', 'tcp:127.0.0.1:0']\n\
    roots: [{id: r, path: root}]\n\
    callers: [{name: users, uids: [7001]}, {name: group, gids: [7100]}]\n";

async fn serving(more: &str) -> (Fixture, Daemon) {
    let fixture = reachable("skill root/a");
    let daemon = daemon(&fixture, &format!("{RULES}{more}")).await;
    (fixture, daemon)
}

async fn channel_of(fixture: &Fixture, who: As) -> Channel {
    who.channel(&fixture.path("run/c.sock")).await
}

#[tokio::test]
async fn users_and_groups() {
    if !may_be_others() {
        return;
    }
    let (fixture, daemon) = serving("").await;
    let in_group = |gid, groups| As { uid: 7_002, gid, groups };
    for (who, is_let_in) in [
        (USER, true),
        (in_group(7_100, &[]), true),
        (in_group(7_002, &[1, 7_100, 9]), true),
        (STRANGER, false),
        // A user's number is no group's.
        (As { uid: 7_100, gid: 7_001, groups: &[7_001] }, false),
        // The daemon's own user is nobody special.
        (As { uid: 0, gid: 0, groups: &[] }, false),
    ] {
        let mut client = CapabilityServiceClient::new(channel_of(&fixture, who).await);
        let roots = [located("r", "published:r")];
        let answer = in_time(client.list_skills(list_request(&roots))).await;
        if is_let_in {
            assert_eq!(answer.expect("let in").into_inner().skills.len(), 1, "{who:?}");
        } else {
            assert_rpc_error(answer, Code::PermissionDenied, "CALLER_NOT_ALLOWED", None);
        }
    }
    daemon.stop().await;
}

/// Every call about a root; each must be refused.
async fn refusals(client: &mut Client, root: &SelectedCapabilityRoot) -> Vec<Status> {
    let roots = vec![root.clone()];
    let resolve =
        ResolveRootsRequest { selected_capability_roots: roots.clone(), ..Default::default() };
    let watch =
        WatchSkillsRequest { selected_capability_roots: roots.clone(), ..Default::default() };
    let package = "skill://r/a".to_owned();
    let files = ListResourcesRequest { root: Some(root.clone()), package, ..Default::default() };
    let bad = ListResourcesRequest { page_size: -1, ..files.clone() };
    let read = read_request(root, "skill://r/a", "");
    let refused = "refused";
    vec![
        client.get_executor(GetExecutorRequest {}).await.expect_err(refused),
        client.list_roots(ListRootsRequest {}).await.expect_err(refused),
        client.resolve_roots(resolve).await.expect_err(refused),
        client.list_skills(list_request(&roots)).await.expect_err(refused),
        client.watch_skills(watch).await.expect_err(refused),
        client.list_resources(files).await.expect_err(refused),
        client.list_resources(bad).await.expect_err(refused),
        client.read_resource(read).await.expect_err(refused),
    ]
}

/// The parts of a status that a caller sees.
fn seen(status: &Status) -> (Code, String, Vec<u8>) {
    (status.code(), status.message().to_owned(), status.details().to_vec())
}

#[tokio::test]
async fn whoever_is_refused_learns_nothing() {
    if !may_be_others() {
        return;
    }
    let (fixture, daemon) = serving("").await;
    let mut client = CapabilityServiceClient::new(channel_of(&fixture, STRANGER).await);
    let roots = [
        located("r", "published:r"),
        located("r", "published:none"),
        selected("r", fixture.path("root")),
        selected("r", fixture.path("root/none")),
        selected("r", "/etc"),
        located("\n", "relative"),
    ];
    let mut all = Vec::new();
    for root in &roots {
        all.extend(in_time(refusals(&mut client, root)).await.iter().map(seen));
    }
    assert_eq!(all.len(), 8 * roots.len());
    assert!(all.iter().all(|status| *status == all[0]), "{all:?}");
    // By TCP nobody has a uid.
    let mut client = daemon.client.clone();
    let unknown: Vec<_> = refusals(&mut client, &roots[0]).await.iter().map(seen).collect();
    assert!(unknown.iter().all(|status| *status == unknown[0]), "{unknown:?}");
    assert_eq!(unknown[0].0, Code::Unauthenticated);
    daemon.stop().await;
}

async fn health(channel: &Channel) -> Code {
    let mut client = HealthClient::new(channel.clone());
    let answer = in_time(client.check(HealthCheckRequest::default())).await;
    answer.err().map_or(Code::Ok, |status| status.code())
}

async fn reflection(channel: &Channel) -> Code {
    let mut client = ServerReflectionClient::new(channel.clone());
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(
            tonic_reflection::pb::v1::server_reflection_request::MessageRequest::ListServices(
                String::new(),
            ),
        ),
    };
    let answer = in_time(client.server_reflection_info(tokio_stream::once(request))).await;
    answer.err().map_or(Code::Ok, |status| status.code())
}

#[tokio::test]
async fn health_and_reflection() {
    if !may_be_others() {
        return;
    }
    let (ok, denied) = (Code::Ok, Code::PermissionDenied);
    for (config, expected) in [
        ("", (ok, denied)),
        ("open_health: false", (denied, denied)),
        ("open_reflection: true", (ok, ok)),
        ("open_health: false\nopen_reflection: true", (denied, ok)),
    ] {
        let (fixture, daemon) = serving(config).await;
        let stranger = channel_of(&fixture, STRANGER).await;
        let told = (health(&stranger).await, reflection(&stranger).await);
        assert_eq!(told, expected, "{config}");
        let user = channel_of(&fixture, USER).await;
        assert_eq!((health(&user).await, reflection(&user).await), (ok, ok), "{config}");
        daemon.stop().await;
    }
    // Without rules all of it is for whoever can connect.
    let fixture = Fixture::new("");
    let daemon = daemon(&fixture, "open_health: false").await;
    let endpoint = Channel::from_shared(format!("http://{}", daemon.address)).expect("a URI");
    let channel = in_time(endpoint.connect()).await.expect("a connection");
    assert_eq!((health(&channel).await, reflection(&channel).await), (ok, ok));
    daemon.stop().await;
}

/// The client command as another user.
fn as_user(who: As, args: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={}", who.uid), format!("--regid={}", who.gid)]);
    match who.groups {
        [] => command.arg("--clear-groups"),
        groups => {
            let groups: Vec<_> = groups.iter().map(ToString::to_string).collect();
            command.arg(format!("--groups={}", groups.join(",")))
        }
    };
    command.arg(env!("CARGO_BIN_EXE_caproot")).args(args).env_clear();
    command
}

#[tokio::test]
async fn commands_of_other_users() {
    if !as_user(STRANGER, &["--version"]).output().is_ok_and(|done| done.status.success()) {
        println!("SKIPPED: the binary cannot be run as another user here, by setpriv");
        return;
    }
    let (fixture, daemon) = serving("").await;
    let socket = fixture.path("run/c.sock");
    let endpoint = socket.to_str().expect("UTF-8").to_owned();
    for (who, code, says) in [
        (USER, 0, "1 skill in 1 root"),
        (As { groups: &[7_100], ..STRANGER }, 0, "1 skill in 1 root"),
        (STRANGER, 5, "PERMISSION_DENIED CALLER_NOT_ALLOWED: no rule lets this caller in"),
    ] {
        let mut command = as_user(who, &["list", "--endpoint", &endpoint]);
        let done = tokio::task::spawn_blocking(move || command.output());
        let done = in_time(done).await.expect("no panic").expect("it runs");
        let stderr = String::from_utf8(done.stderr).expect("text");
        assert_eq!(done.status.code(), Some(code), "{who:?}: {stderr}");
        assert!(stderr.contains(says), "{who:?}: {stderr}");
    }
    daemon.stop().await;
}
