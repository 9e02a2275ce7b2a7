//! HTTP servers whose token expires: the source requests a token again after 401.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use caproot_session::sources::mcp::{McpEndpoint, McpServerConfig, McpSource, McpToken};
use caproot_session::{Session, SkillSource};
use futures_util::FutureExt as _;

use super::super::session::{list_all, read_all};
use super::{arguments_of_a, read_error, start_session};
use crate::harness::fixture::Fixture;
use crate::harness::test_servers::free_port;
use crate::harness::test_servers::mcp_server::{
    MockOptions, MockServer, contents, entry, page, skill_text, start_with,
};
use crate::harness::{HANG_TIMEOUT, in_time};

/// Starts a server that accepts only the token `t` with the current number.
async fn start_server(accepted: &Arc<AtomicUsize>, challenge: Option<&'static str>) -> MockServer {
    let accepted = accepted.clone();
    let is_authorized =
        move |header: &str| header == format!("Bearer t{}", accepted.load(Ordering::SeqCst));
    let is_authorized = Box::new(is_authorized);
    let options = MockOptions {
        is_authorized,
        challenge,
        ..MockOptions::default()
    };
    start_with(&free_port(), options, |method, params| {
        if method == "skills/list" {
            return Some(page(&[entry("a", &[("x", "text")])], None));
        }
        let uri = params["uri"].as_str()?;
        Some(contents(
            uri,
            if uri.ends_with("/x") { "text" } else { SKILL },
        ))
    })
    .await
}

const SKILL: &str = "---\nname: a\ndescription: Does a.\n---\nServed a.\n";

async fn start_session_with_token(url: &str, token: McpToken) -> Session {
    let endpoint = McpEndpoint::Http {
        url: url.to_owned(),
        headers: Vec::new(),
        token: Some(token),
    };
    let server = McpServerConfig {
        start_timeout: HANG_TIMEOUT,
        ..McpServerConfig::new("s", endpoint)
    };
    let source: Arc<dyn SkillSource> = Arc::new(McpSource::start(server).await.expect("a name"));
    start_session(vec![source]).await
}

#[tokio::test]
async fn an_expired_token_is_renewed() {
    assert_eq!(skill_text("a"), SKILL);
    let fixture = Fixture::new("file token\n| t1");
    let file = fixture.path("token");
    let calls = Arc::new(AtomicUsize::new(0));
    let called = calls.clone();
    let path = file.clone();
    let callback = McpToken::Callback(Arc::new(move || {
        called.fetch_add(1, Ordering::SeqCst);
        let text = std::fs::read_to_string(&path).map_err(|error| error.to_string());
        async move { text.map(|text| text.trim().to_owned()) }.boxed()
    }));
    let command = McpToken::Command {
        program: "cat".to_owned(),
        arguments: vec![file.to_str().expect("text").to_owned()],
    };
    let challenge = Some("Bearer error=\"invalid_token\"");
    for (token, challenge) in [
        (McpToken::File(file.clone()), None),
        (command, challenge),
        (callback, None),
    ] {
        let accepted = Arc::new(AtomicUsize::new(1));
        fixture.write("token", "t1\n");
        let mock = start_server(&accepted, challenge).await;
        let session = start_session_with_token(&mock.url, token).await;
        assert_eq!(list_all(&session).await.0, ["mcp+skill://s/a"]);
        accepted.store(2, Ordering::SeqCst);
        fixture.write("token", "t2\n");
        assert_eq!(read_all(&session, arguments_of_a("")).await, SKILL);
        assert_eq!(
            read_all(&session, arguments_of_a("mcp+skill://s/a/x")).await,
            "text"
        );
    }
    assert_eq!(
        calls.load(Ordering::SeqCst),
        2,
        "one token at the start, one after 401"
    );
}

#[tokio::test]
async fn a_token_that_stays_rejected_makes_the_server_unavailable() {
    let fixture = Fixture::new("file token\n| t1");
    let accepted = Arc::new(AtomicUsize::new(1));
    let mock = start_server(&accepted, None).await;
    let session_ = start_session_with_token(&mock.url, McpToken::File(fixture.path("token"))).await;
    accepted.store(2, Ordering::SeqCst);
    let (code, error) = read_error(&session_, arguments_of_a("")).await;
    assert!(
        code == "SOURCE_UNAVAILABLE" && !error.contains("t1"),
        "{error}"
    );
    // Once there is a new token, the server is used again.
    fixture.write("token", "t2");
    let mut changes = session_.watch();
    in_time(async {
        while !session_
            .call("skills.read", &arguments_of_a(""))
            .await
            .success
        {
            changes.next().await;
        }
    })
    .await;

    let command = |script: &str| McpToken::Command {
        program: "sh".to_owned(),
        arguments: vec!["-c".to_owned(), script.to_owned()],
    };
    for (url, token, part) in [
        (
            mock.url.as_str(),
            McpToken::File(fixture.path("none")),
            "none does not exist",
        ),
        (&mock.url, command("echo t1; exit 3"), "exit status: 3"),
        (&mock.url, command("yes"), "over 8 KiB"),
        (&mock.url, command("true"), "holds no token"),
        (
            &mock.url,
            McpToken::Callback(Arc::new(|| {
                Box::pin(async { Err("a secret of an exception".to_owned()) })
            })),
            "the token function of the program failed; see its log",
        ),
        (
            "http://192.0.2.1/mcp",
            command("echo t2"),
            "only over https",
        ),
    ] {
        let session = start_session_with_token(url, token).await;
        let reason = session.source_states()[0].reason.clone();
        let reason = reason.unwrap_or_default();
        assert!(reason.contains(part), "{part}: {reason}");
        assert!(!reason.contains("a secret"), "{reason}");
    }
}
