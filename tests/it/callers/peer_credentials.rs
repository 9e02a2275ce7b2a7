//! Rules that match the uid and gids of a process, as the kernel reports them.

use caproot_core::proto::caproot::v1::capability_service_client::CapabilityServiceClient;
use caproot_core::proto::caproot::v1::{
    GetExecutorRequest, ListResourcesRequest, ListRootsRequest, SelectedCapabilityRoot,
    WatchSkillsRequest,
};
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;

use super::{ProcessUser, can_switch_user, reachable_fixture, start_configured_daemon};
use crate::harness::fixture::Fixture;
use crate::harness::process::{caproot, run_command, wrap_command};
use crate::harness::{
    Client, Daemon, assert_rpc_error, files_request, in_time, list_request, located, read_request,
    resolve_request, selected,
};

const USER: ProcessUser = ProcessUser {
    uid: 7_001,
    gid: 7_001,
    groups: &[],
};
const OTHER_USER: ProcessUser = ProcessUser {
    uid: 7_002,
    gid: 7_002,
    groups: &[5],
};

const RULES: &str = "socket: {mode: '0666'}\nlisten: ['unix:run/c.sock', 'tcp:127.0.0.1:0']\n\
    roots: [{id: r, path: root}]\n\
    callers: [{name: users, uids: [7001]}, {name: group, gids: [7100]}]\n";

/// Serves `root` with [`RULES`] and further config lines.
async fn start_with_rules(more: &str) -> (Fixture, Daemon) {
    let fixture = reachable_fixture("skill root/a");
    let daemon = start_configured_daemon(&fixture, &format!("{RULES}{more}")).await;
    (fixture, daemon)
}

async fn open_channel(fixture: &Fixture, user: ProcessUser) -> Channel {
    user.open_channel(&fixture.path("run/c.sock")).await
}

#[tokio::test]
async fn rules_match_users_and_groups() {
    if !can_switch_user() {
        return;
    }
    let (fixture, daemon) = start_with_rules("").await;
    let in_group = |gid, groups| ProcessUser {
        uid: 7_002,
        gid,
        groups,
    };
    for (user, is_allowed) in [
        (USER, true),
        (in_group(7_100, &[]), true),
        (in_group(7_002, &[1, 7_100, 9]), true),
        (OTHER_USER, false),
        // A uid does not match a rule for the gid of the same number.
        (
            ProcessUser {
                uid: 7_100,
                gid: 7_001,
                groups: &[7_001],
            },
            false,
        ),
        // The daemon's own user gets no exception.
        (
            ProcessUser {
                uid: 0,
                gid: 0,
                groups: &[],
            },
            false,
        ),
    ] {
        let mut client = CapabilityServiceClient::new(open_channel(&fixture, user).await);
        let roots = [located("r", "published:r")];
        let answer = in_time(client.list_skills(list_request(&roots))).await;
        if is_allowed {
            assert_eq!(
                answer.expect("allowed").into_inner().skills.len(),
                1,
                "{user:?}"
            );
        } else {
            assert_rpc_error(answer, Code::PermissionDenied, "CALLER_NOT_ALLOWED", None);
        }
    }
    daemon.stop().await;
}

/// Makes every call about a root, and checks that each is rejected.
async fn collect_rejections(client: &mut Client, root: &SelectedCapabilityRoot) -> Vec<Status> {
    let roots = vec![root.clone()];
    let resolve = resolve_request(&roots);
    let watch = WatchSkillsRequest {
        selected_capability_roots: roots.clone(),
        ..Default::default()
    };
    let files = files_request(root, "skill://r/a");
    let bad = ListResourcesRequest {
        page_size: -1,
        ..files.clone()
    };
    let read = read_request(root, "skill://r/a", "");
    let rejected = "rejected";
    vec![
        client
            .get_executor(GetExecutorRequest {})
            .await
            .expect_err(rejected),
        client
            .list_roots(ListRootsRequest {})
            .await
            .expect_err(rejected),
        client.resolve_roots(resolve).await.expect_err(rejected),
        client
            .list_skills(list_request(&roots))
            .await
            .expect_err(rejected),
        client.watch_skills(watch).await.expect_err(rejected),
        client.list_resources(files).await.expect_err(rejected),
        client.list_resources(bad).await.expect_err(rejected),
        client.read_resource(read).await.expect_err(rejected),
    ]
}

/// Returns the parts of a status that a caller sees.
fn visible_parts(status: &Status) -> (Code, String, Vec<u8>) {
    (
        status.code(),
        status.message().to_owned(),
        status.details().to_vec(),
    )
}

#[tokio::test]
async fn rejections_reveal_nothing_about_roots() {
    if !can_switch_user() {
        return;
    }
    let (fixture, daemon) = start_with_rules("").await;
    let mut client = CapabilityServiceClient::new(open_channel(&fixture, OTHER_USER).await);
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
        all.extend(
            in_time(collect_rejections(&mut client, root))
                .await
                .iter()
                .map(visible_parts),
        );
    }
    assert_eq!(all.len(), 8 * roots.len());
    assert!(all.iter().all(|status| *status == all[0]), "{all:?}");
    // TCP callers have no uid.
    let mut client = daemon.client.clone();
    let unknown: Vec<_> = collect_rejections(&mut client, &roots[0])
        .await
        .iter()
        .map(visible_parts)
        .collect();
    assert!(
        unknown.iter().all(|status| *status == unknown[0]),
        "{unknown:?}"
    );
    assert_eq!(unknown[0].0, Code::Unauthenticated);
    daemon.stop().await;
}

async fn health_status(channel: &Channel) -> Code {
    let mut client = HealthClient::new(channel.clone());
    let answer = in_time(client.check(HealthCheckRequest::default())).await;
    answer.err().map_or(Code::Ok, |status| status.code())
}

async fn reflection_status(channel: &Channel) -> Code {
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
async fn health_and_reflection_follow_their_settings() {
    if !can_switch_user() {
        return;
    }
    let (ok, denied) = (Code::Ok, Code::PermissionDenied);
    for (config, expected) in [
        ("", (ok, denied)),
        ("open_health: false", (denied, denied)),
        ("open_reflection: true", (ok, ok)),
        ("open_health: false\nopen_reflection: true", (denied, ok)),
    ] {
        let (fixture, daemon) = start_with_rules(config).await;
        let other = open_channel(&fixture, OTHER_USER).await;
        let statuses = (health_status(&other).await, reflection_status(&other).await);
        assert_eq!(statuses, expected, "{config}");
        let user = open_channel(&fixture, USER).await;
        assert_eq!(
            (health_status(&user).await, reflection_status(&user).await),
            (ok, ok),
            "{config}"
        );
        daemon.stop().await;
    }
    // Without rules, every client that can connect may call both.
    let fixture = Fixture::new("");
    let daemon = start_configured_daemon(&fixture, "open_health: false").await;
    let endpoint = Channel::from_shared(format!("http://{}", daemon.address)).expect("a URI");
    let channel = in_time(endpoint.connect()).await.expect("a connection");
    assert_eq!(
        (
            health_status(&channel).await,
            reflection_status(&channel).await
        ),
        (ok, ok)
    );
    daemon.stop().await;
}

#[tokio::test]
async fn client_commands_of_other_users_follow_the_rules() {
    let (fixture, daemon) = start_with_rules("").await;
    let socket = fixture.path("run/c.sock");
    let endpoint = socket.to_str().expect("UTF-8").to_owned();
    for (user, code, expected) in [
        (USER, 0, "1 skill in 1 root"),
        (
            ProcessUser {
                groups: &[7_100],
                ..OTHER_USER
            },
            0,
            "1 skill in 1 root",
        ),
        (
            OTHER_USER,
            5,
            "PERMISSION_DENIED CALLER_NOT_ALLOWED: no rule matches this caller",
        ),
    ] {
        let command = caproot(["list", "--endpoint", &endpoint]);
        let skipped = "setpriv(1) cannot run the binary as another user here";
        let Some(command) = wrap_command(user.setpriv(), command, skipped) else {
            return;
        };
        run_command(command).await.exited_with(code, expected);
    }
    daemon.stop().await;
}
