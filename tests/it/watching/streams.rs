//! Streams: resume tokens, resets, bookmarks, limits and shutdown.

use std::time::Duration;

use caproot::daemon::model::Limits;
use caproot_core::proto::caproot::v1::{RemovalReason, ResetReason, SkillView, WatchSkillsRequest};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::harness::fixture::Fixture;
use crate::harness::replica::Replica;
use crate::harness::watch_harness::{WatchHarness, skill_text, watch_request};
use crate::harness::{Daemon, Setup, in_time, rpc_error, selected};

fn retry_delay(status: &Status) -> Option<Duration> {
    status
        .get_error_details()
        .retry_info()
        .and_then(|info| info.retry_delay)
}

async fn start_with_limits(fixture: &Fixture, limits: Limits) -> Daemon {
    Daemon::start(Setup {
        limits,
        ..Setup::allowing([fixture.top().to_owned()])
    })
    .await
}

#[tokio::test]
async fn a_resume_token_gives_only_later_changes() {
    let mut live = WatchHarness::new("skill r/a").await;
    live.replica.resume(&live.daemon).await;
    let step = live.next_change().await;
    assert_eq!(
        (step.reset, step.upserted.len()),
        (None, 0),
        "nothing happened"
    );
    for n in 0..3 {
        live.fixture
            .write(&format!("r/b{n}/SKILL.md"), skill_text("b", "Missed."));
        live.fresh_list().await;
    }
    live.replica.resume(&live.daemon).await;
    let step = live.next_change().await;
    assert_eq!(step.reset, None);
    assert_eq!(
        step.upserted,
        ["skill://r/b0", "skill://r/b1", "skill://r/b2"]
    );
    // The token of a list is equally valid.
    live.replica.token = live.fresh_list().await.resume_token;
    live.replica.resume(&live.daemon).await;
    assert_eq!(live.next_change().await.reset, None);
    live.finish().await;
}

#[tokio::test]
async fn a_token_from_before_a_restart_resets_the_stream() {
    let mut live = WatchHarness::new("skill r/a").await;
    live.daemon.stop().await;
    live.daemon = start_with_limits(&live.fixture, Limits::default()).await;
    live.replica.resume(&live.daemon).await;
    assert_eq!(
        live.next_change().await.reset,
        Some(ResetReason::EpochChanged)
    );
    live.finish().await;
}

#[tokio::test]
async fn a_token_that_is_too_old_resets_the_stream() {
    let fixture = Fixture::new("skill r/a");
    let daemon = start_with_limits(
        &fixture,
        Limits {
            max_history: 3,
            ..Limits::default()
        },
    )
    .await;
    let root = selected("r", fixture.path("r"));
    let mut replica = Replica::synced(&daemon, watch_request(vec![root])).await;
    let (mut early, mut late) = (replica.fork(), replica.fork());
    for n in 0..2 {
        fixture.write("r/a/SKILL.md", skill_text("a", &format!("No. {n}.")));
        replica.next_change().await;
    }
    early.resume(&daemon).await;
    assert_eq!(
        early.next_change().await.reset,
        None,
        "three revisions are kept"
    );
    assert_eq!(early.token, replica.token);
    fixture.write("r/a/SKILL.md", skill_text("a", "One more."));
    replica.next_change().await;
    late.resume(&daemon).await;
    assert_eq!(late.next_change().await.reset, Some(ResetReason::Compacted));
    late.catch_up(&daemon).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_token_is_valid_for_the_same_roots_in_another_order() {
    let fixture = Fixture::new("skill r/a\nskill s/b");
    let daemon = start_with_limits(&fixture, Limits::default()).await;
    let mut roots = vec![
        selected("r", fixture.path("r")),
        selected("s", fixture.path("s")),
    ];
    let mut replica = Replica::synced(&daemon, watch_request(roots.clone())).await;
    roots.reverse();
    let listed = daemon.list(&roots).await.resume_token;
    assert_eq!(listed, replica.token);
    let mut reversed = replica.fork();
    reversed.reverse_roots();
    // As a whole: on a loaded machine, half of a save could be a revision of its own.
    fixture.replace("s/b/SKILL.md", skill_text("b", "Changed."));
    replica.next_change().await;
    reversed.resume(&daemon).await;
    let step = reversed.next_change().await;
    assert_eq!(
        (step.reset, step.upserted),
        (None, vec!["skill://s/b".to_owned()])
    );
    assert_eq!(reversed.token, replica.token);
    reversed.catch_up(&daemon).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_token_of_another_request_resets_the_stream() {
    let live = WatchHarness::new("skill r/a\nskill s/a").await;
    let same = watch_request(vec![selected("r", live.fixture.path("r"))]);
    let other = ResetReason::SelectionChanged;
    let token = &live.replica.token;
    let mut garbage = token.clone();
    garbage.replace_range(4..5, if &garbage[4..5] == "A" { "B" } else { "A" });
    let request = |change: &dyn Fn(&mut WatchSkillsRequest)| {
        let mut request = WatchSkillsRequest {
            resume_token: token.clone(),
            ..same.clone()
        };
        change(&mut request);
        request
    };
    let cases = [
        (request(&|r| r.product = "codex".into()), vec![other]),
        (request(&|r| r.view = SkillView::Basic.into()), vec![other]),
        (
            request(&|r| {
                r.selected_capability_roots = vec![selected("r", live.fixture.path("s"))];
            }),
            vec![other],
        ),
        (
            request(&|r| r.resume_token = "garbage".into()),
            vec![ResetReason::Initial],
        ),
        (
            request(&|r| r.resume_token = "A".repeat(100_000)),
            vec![ResetReason::Initial],
        ),
        // The effect of one changed letter depends on its position in the token.
        (
            request(&|r| r.resume_token.clone_from(&garbage)),
            vec![
                ResetReason::Initial,
                ResetReason::EpochChanged,
                other,
                ResetReason::Compacted,
            ],
        ),
    ];
    for (request, reasons) in cases {
        let token = request.resume_token.clone();
        let mut replica = Replica::open_at(&live.daemon, request, token).await;
        let reset = replica.next_batch().await.reset.expect("a reset");
        assert!(reasons.contains(&reset), "{reset:?}");
        replica.catch_up(&live.daemon).await;
    }
    live.finish().await;
}

#[tokio::test]
async fn bookmarks_are_sent_while_nothing_changes() {
    let live = WatchHarness::new("skill r/a").await;
    let request = WatchSkillsRequest {
        bookmark_interval: Some(prost_types::Duration {
            seconds: 1,
            nanos: 0,
        }),
        ..watch_request(vec![selected("r", live.fixture.path("r"))])
    };
    let mut replica = Replica::open(&live.daemon, request).await;
    let (revision, mut last) = (replica.next_batch().await, tokio::time::Instant::now());
    assert!(!revision.is_bookmark);
    for _ in 0..2 {
        assert!(replica.next_batch().await.is_bookmark);
        let waited = last.elapsed();
        assert!(waited >= Duration::from_millis(900), "{waited:?}");
        last = tokio::time::Instant::now();
    }
    replica.resume(&live.daemon).await;
    assert_eq!(
        replica.next_change().await.reset,
        None,
        "a bookmark's token is valid"
    );
    live.finish().await;
}

#[tokio::test]
async fn changes_outside_the_view_are_not_sent() {
    let live = WatchHarness::new("skill r/a").await;
    let request = WatchSkillsRequest {
        view: SkillView::Basic.into(),
        ..watch_request(vec![selected("r", live.fixture.path("r"))])
    };
    let mut replica = Replica::synced(&live.daemon, request).await;
    let before = live.fresh_list().await.revision;
    let sidecar = "interface:\n  display_name: Anna\n";
    live.fixture.write(
        "r/a/agents/openai.yaml",
        "interface:\n  display_name: Otto\n",
    );
    let before = before.max(live.fresh_list().await.revision);
    replica.catch_up(&live.daemon).await;
    live.fixture.write("out/openai.yaml", sidecar);
    let sidecar_path = live.fixture.path("r/a/agents/openai.yaml");
    std::fs::rename(live.fixture.path("out/openai.yaml"), sidecar_path).expect("rename over it");
    assert!(
        live.fresh_list().await.revision > before,
        "the full view changed"
    );
    live.fixture.write("r/b/SKILL.md", skill_text("b", "Real."));
    assert_eq!(
        replica.next_change().await.upserted,
        ["skill://r/b"],
        "no event before this change"
    );
    live.finish().await;
}

#[tokio::test]
async fn a_skill_for_other_products_is_disabled() {
    let live = WatchHarness::new("skill r/a\ndir r/a/agents").await;
    let request = WatchSkillsRequest {
        product: "codex".into(),
        ..watch_request(vec![selected("r", live.fixture.path("r"))])
    };
    let mut replica = Replica::open(&live.daemon, request).await;
    assert_eq!(replica.next_batch().await.upserted, ["skill://r/a"]);
    live.fixture
        .replace("r/a/agents/openai.yaml", "policy:\n  products: [chatgpt]\n");
    let step = replica.next_change().await;
    assert_eq!(
        step.removed,
        [("skill://r/a".to_owned(), RemovalReason::Disabled)]
    );
    live.fixture
        .replace("r/a/agents/openai.yaml", "policy:\n  products: [codex]\n");
    assert_eq!(replica.next_change().await.upserted, ["skill://r/a"]);
    replica.catch_up(&live.daemon).await;
    live.finish().await;
}

#[tokio::test]
async fn a_slow_reader_gets_the_difference_and_converges() {
    let mut live = WatchHarness::new("dir r").await;
    let fat = |n: usize, round: usize| {
        let head = format!("---\nname: s{n}\ndescription: Round {round}.\nlicense: ");
        head + &"x".repeat(2_000) + "\n---\n"
    };
    let root = selected("r", live.fixture.path("r"));
    let mut slow = Replica::synced(&live.daemon, watch_request(vec![root])).await;
    for round in 0..500 {
        let n = round % 200;
        live.fixture
            .write(&format!("r/s{n:03}/SKILL.md"), fat(n, round));
        if round % 20 == 0 {
            live.fresh_list().await;
        }
    }
    live.replica.catch_up(&live.daemon).await;
    slow.catch_up(&live.daemon).await;
    assert_eq!(slow.skills, live.replica.skills);
    live.finish().await;
}

#[tokio::test]
async fn the_number_of_streams_is_limited() {
    let fixture = Fixture::new("skill r/a");
    let daemon = start_with_limits(
        &fixture,
        Limits {
            max_streams: 3,
            ..Limits::default()
        },
    )
    .await;
    let request = watch_request(vec![selected("r", fixture.path("r"))]);
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(Replica::open(&daemon, request.clone()).await);
    }
    let refused = daemon.watch(request.clone()).await.expect_err("a fourth");
    assert!(retry_delay(&refused).is_some_and(|d| d > Duration::ZERO));
    let refused = rpc_error(&refused);
    assert_eq!(
        (refused.code, &*refused.reason),
        (Code::ResourceExhausted, "TOO_MANY_STREAMS")
    );
    assert_eq!(
        (
            &*refused.metadata["limit_name"],
            &*refused.metadata["limit"]
        ),
        ("max_streams", "3")
    );
    open.pop();
    let again = async {
        // The daemon notices the closed stream asynchronously.
        while daemon.watch(request.clone()).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    in_time(again).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_shutdown_ends_streams_of_unresponsive_clients() {
    let live = WatchHarness::new("skill r/a").await;
    let WatchHarness {
        daemon,
        mut replica,
        fixture,
    } = live;
    let root = selected("r", fixture.path("r"));
    let ignorant = Replica::open(&daemon, watch_request(vec![root])).await;
    let revision = replica.revision;
    let reader = tokio::spawn(async move {
        assert!(replica.next_batch().await.is_bookmark);
        assert_eq!(replica.revision, revision);
        replica
            .try_next_batch()
            .await
            .expect_err("the end")
            .expect("with a status")
    });
    let started = std::time::Instant::now();
    daemon.stop().await;
    assert!(
        started.elapsed() < Duration::from_secs(15),
        "the drain has a time limit"
    );
    let end = reader.await.expect("no panic");
    assert!(retry_delay(&end).is_some_and(|d| d > Duration::ZERO));
    let end = rpc_error(&end);
    assert_eq!(
        (end.code, &*end.reason),
        (Code::Unavailable, "SHUTTING_DOWN")
    );
    drop(ignorant);
}
