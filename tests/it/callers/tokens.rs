//! Bearer tokens: over TCP, where the token is a caller's only credential, and on a Unix socket.

use std::fs;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use caproot_core::proto::caproot::v1::GetExecutorRequest;
use caproot_core::proto::caproot::v1::capability_service_client::CapabilityServiceClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Request};
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;

use super::{channel_over, start_configured_daemon, with_token, write_token, write_token_as};
use crate::harness::fixture::Fixture;
use crate::harness::{Client, HANG_TIMEOUT, assert_rpc_error, in_time, rpc_error};

const TOKEN: &str = "correct-horse-battery-staple";

/// Calls with the given header, and returns the gRPC status.
async fn call_status(client: &mut Client, authorization: Option<&str>) -> Code {
    let mut request = Request::new(GetExecutorRequest {});
    if let Some(value) = authorization {
        let value = value.parse().expect("a header's value");
        request.metadata_mut().insert("authorization", value);
    }
    match in_time(client.get_executor(request)).await {
        Ok(_) => Code::Ok,
        Err(status) => {
            let rejection = rpc_error(&status);
            let named = (rejection.code, &*rejection.reason);
            assert_eq!(
                named,
                (Code::Unauthenticated, "CALLER_UNKNOWN"),
                "{authorization:?}"
            );
            let all = format!("{status:?}");
            assert!(!all.contains(TOKEN), "no token is echoed: {all}");
            rejection.code
        }
    }
}

#[tokio::test]
async fn only_valid_tokens_are_accepted() {
    let fixture = Fixture::new("");
    write_token(&fixture, "token", &format!("{TOKEN}\n"));
    write_token(&fixture, "other", "another-token");
    let rules = "callers: [{name: t, token_file: token}, {name: o, token_file: other}, \
                 {name: both, uids: [0], token_file: token}]";
    let daemon = start_configured_daemon(&fixture, rules).await;
    let mut client = daemon.client.clone();
    for (authorization, is_valid) in [
        (format!("Bearer {TOKEN}"), true),
        (format!("bearer   {TOKEN}"), true),
        ("Bearer another-token".to_owned(), true),
        (TOKEN.to_owned(), false),
        (format!("Basic {TOKEN}"), false),
        (format!("Bearer {TOKEN}x"), false),
        (format!("Bearer {TOKEN} {TOKEN}"), false),
        (format!("Bearer {}", &TOKEN[..TOKEN.len() - 1]), false),
        (format!("Bearer {}", TOKEN.to_uppercase()), false),
        (format!("Bearer {}", "x".repeat(8_000)), false),
        ("Bearer ".to_owned(), false),
        ("Bearer".to_owned(), false),
        (String::new(), false),
    ] {
        let is_accepted = call_status(&mut client, Some(&authorization)).await == Code::Ok;
        assert_eq!(is_accepted, is_valid, "{authorization}");
    }
    assert_eq!(call_status(&mut client, None).await, Code::Unauthenticated);
    daemon.stop().await;
}

#[tokio::test]
async fn a_replaced_token_file_is_reread() {
    let fixture = Fixture::new("");
    write_token(&fixture, "token", TOKEN);
    let daemon = start_configured_daemon(&fixture, "callers: [{name: t, token_file: token}]").await;
    let mut client = daemon.client.clone();
    let (old, new) = (format!("Bearer {TOKEN}"), "Bearer new".to_owned());
    let (accepted, rejected) = (Code::Ok, Code::Unauthenticated);
    let mut assert_statuses = async |expected| {
        let statuses = (
            call_status(&mut client, Some(&old)).await,
            call_status(&mut client, Some(&new)).await,
        );
        assert_eq!(statuses, expected);
    };
    assert_statuses((accepted, rejected)).await;
    write_token(&fixture, "token", "new");
    assert_statuses((rejected, accepted)).await;
    // The file is rewritten in place, with as many bytes.
    fs::write(fixture.path("token"), "old").expect("written");
    assert_statuses((rejected, rejected)).await;
    fs::write(fixture.path("token"), "new").expect("written");
    assert_statuses((rejected, accepted)).await;
    // A token that other users can read is no longer a secret.
    write_token_as(&fixture, "token", "new", 0o644);
    assert_statuses((rejected, rejected)).await;
    write_token_as(&fixture, "token", "new", 0o440);
    assert_statuses((rejected, accepted)).await;
    fs::remove_file(fixture.path("token")).expect("removed");
    assert_statuses((rejected, rejected)).await;
    write_token(&fixture, "token", TOKEN);
    assert_statuses((accepted, rejected)).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_rule_with_a_user_and_a_token_needs_both() {
    let fixture = Fixture::new("dir run\nmode 0700 run");
    write_token(&fixture, "token", TOKEN);
    let uid = rustix::process::geteuid().as_raw();
    let config = format!(
        "listen: ['unix:run/c.sock', 'tcp:127.0.0.1:0']\n\
         callers: [{{name: both, uids: [{uid}], token_file: token}}]"
    );
    let daemon = start_configured_daemon(&fixture, &config).await;
    let stream = UnixStream::connect(fixture.path("run/c.sock")).expect("a connection");
    let mut client = CapabilityServiceClient::new(channel_over(stream).await);
    let right = format!("Bearer {TOKEN}");
    assert_eq!(call_status(&mut client, Some(&right)).await, Code::Ok);
    assert_eq!(
        call_status(&mut client, Some("Bearer wrong")).await,
        Code::Unauthenticated
    );
    assert_eq!(call_status(&mut client, None).await, Code::Unauthenticated);
    // The token is valid, but a TCP caller has no uid.
    let mut remote = daemon.client.clone();
    let answer = in_time(remote.get_executor(with_token(TOKEN, GetExecutorRequest {}))).await;
    assert_rpc_error(answer, Code::PermissionDenied, "CALLER_NOT_ALLOWED", None);
    daemon.stop().await;
}

#[tokio::test]
async fn a_rejected_reflection_call_ends_at_once() {
    let fixture = Fixture::new("");
    write_token(&fixture, "token", TOKEN);
    let daemon = start_configured_daemon(&fixture, "callers: [{name: t, token_file: token}]").await;
    let endpoint = Channel::from_shared(format!("http://{}", daemon.address)).expect("a URI");
    let channel = in_time(endpoint.connect()).await.expect("a connection");
    // The client neither sends a request nor ends its side of the call.
    let (_requests, open) = mpsc::channel::<ServerReflectionRequest>(1);
    let mut client = ServerReflectionClient::new(channel);
    // The paused clock stands still while a blocking task runs: a daemon that waits for a timer does
    // not answer before the blocking task ends.
    let (answered, answer) = std::sync::mpsc::channel::<()>();
    let blocking = tokio::task::spawn_blocking(move || answer.recv_timeout(HANG_TIMEOUT));
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    let outcome = client
        .server_reflection_info(ReceiverStream::new(open))
        .await;
    let waited = begun.elapsed();
    tokio::time::resume();
    drop(answered);
    blocking
        .await
        .expect("no panic")
        .expect_err("nothing was sent");
    assert_rpc_error(
        outcome.map(drop),
        Code::Unauthenticated,
        "CALLER_UNKNOWN",
        None,
    );
    assert_eq!(waited, Duration::ZERO);
    drop(client);
    daemon.stop().await;
}
