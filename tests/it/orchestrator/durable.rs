//! Sessions that are saved, restored, forked and closed, against real daemons.

use std::sync::Arc;
use std::time::Duration;

use caproot_client::{ChangesSince, Fleet};
use caproot_core::proto::caproot::v1::ReadResourceRequest;
use caproot_session::{
    ForkError, ForkScope, MemoryStore, PersistError, RestoreError, Session, SessionOptions,
    SessionStore, StoreError,
};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::session::{call, list_all, parse_result};
use super::{executor, impatient_options, published, read_arguments, serve_tree, start_daemon};
use crate::harness::fixture::Fixture;
use crate::harness::test_servers::{HostileDaemon, hostile_skill, read_response};
use crate::harness::{Daemon, in_time};

fn fleet(executors: &[(&str, &str)]) -> Fleet {
    Fleet::from_executors(
        executors
            .iter()
            .map(|(id, address)| ((*id).to_owned(), executor(address))),
    )
}

#[allow(unreachable_pub, clippy::print_stdout)]
#[path = "../../../examples/durable.rs"]
mod example;

async fn start_session_on(daemons: &[(&str, &Daemon)]) -> (Fleet, Session) {
    let executors: Vec<_> = daemons
        .iter()
        .map(|(id, d)| (*id, d.address.as_str()))
        .collect();
    let (fleet, roots) = (
        fleet(&executors),
        daemons.iter().map(|(id, _)| published(id)).collect(),
    );
    let session = Session::start(&fleet, roots, &impatient_options())
        .await
        .expect("a selection");
    (fleet, session)
}

async fn error_code(session: &Session, tool: &str, arguments: Value) -> Value {
    parse_result(&in_time(session.call(tool, &arguments)).await)["error"]["code"].clone()
}

#[tokio::test]
async fn a_restored_session_reports_the_changes_since_its_save() {
    let mut fixture = Fixture::new("skill r/a\nskill r/b\nskill s/c");
    let r = start_daemon("r", fixture.path("r"), None).await;
    let s = start_daemon("s", fixture.path("s"), None).await;
    let (fleet, session) = start_session_on(&[("r", &r), ("s", &s)]).await;
    let saved = session.save().expect("a small session");
    assert!(
        saved.len() < 2_000 && !saved.contains("Does"),
        "no text of a skill: {saved}"
    );
    let id = session.id().to_owned();
    drop(session);

    fixture.add("skill r/d");
    std::fs::remove_dir_all(fixture.path("r/b")).expect("a directory");
    // The daemon publishes both changes before the session is restored.
    let (_, watching) = start_session_on(&[("r", &r)]).await;
    let mut changes = watching.watch();
    in_time(async {
        while list_all(&watching).await.0 != ["skill://r/a", "skill://r/d"] {
            changes.next().await;
        }
    })
    .await;
    let restored = Session::restore(&fleet, &saved, &impatient_options())
        .await
        .expect("a saved session");
    assert_eq!(
        (restored.session.id(), &restored.warnings[..]),
        (&*id, &[][..])
    );
    let changes_of = |n: usize| {
        restored.changes_since_save[n]
            .changes
            .as_deref()
            .expect("a report")
            .clone()
    };
    let ChangesSince::Known {
        upserted, removed, ..
    } = changes_of(0)
    else {
        panic!("{:?}", restored.changes_since_save)
    };
    assert_eq!(
        (upserted, removed),
        (vec!["skill://r/d".into()], vec!["skill://r/b".into()])
    );
    let ChangesSince::Known {
        upserted, removed, ..
    } = changes_of(1)
    else {
        panic!("{:?}", restored.changes_since_save)
    };
    assert!(
        upserted.is_empty() && removed.is_empty() && !restored.changes_since_save[1].changed_again
    );
    let (listed, _) = list_all(&restored.session).await;
    assert_eq!(listed, ["skill://r/a", "skill://r/d", "skill://s/c"]);

    // One daemon restarts. The other is unavailable at first and comes back later.
    let saved = restored.session.save().expect("a small session");
    drop(restored);
    let (r_address, s_address) = (r.address.clone(), s.address.clone());
    r.stop().await;
    s.stop().await;
    fixture.add("skill r/e");
    let r = start_daemon("r", fixture.path("r"), Some(&r_address)).await;
    let short = SessionOptions {
        start_timeout: Duration::from_millis(500),
        ..impatient_options()
    };
    let restored = Session::restore(&fleet, &saved, &short)
        .await
        .expect("a saved session");
    let gone = restored
        .changes_since_save
        .iter()
        .find(|executor| executor.environment_id == "s");
    assert_eq!(gone.expect("an entry of the executor").changes, None);
    assert!(
        restored.warnings.iter().any(|w| w.contains("\"s\"")),
        "{:?}",
        restored.warnings
    );
    let again = restored.session.save().expect("a small session");
    let token = |text: &str| -> Value {
        serde_json::from_str::<Value>(text).expect("JSON")["executors"][1].clone()
    };
    assert_eq!(token(&again), token(&saved), "the last known state is kept");
    let s = start_daemon("s", fixture.path("s"), Some(&s_address)).await;
    let mut changes = restored.watch;
    in_time(async {
        while restored
            .session
            .changes_since_save()
            .iter()
            .any(|executor| executor.changes.is_none())
        {
            changes.next().await;
        }
    })
    .await;
    let since = restored.session.changes_since_save();
    let changes_of_r = since[0].changes.as_deref().expect("a report");
    let ChangesSince::Unknown { reason, roots } = changes_of_r else {
        panic!("{changes_of_r:?}")
    };
    assert!(reason.contains("restarted") && *roots == ["r"], "{reason}");
    let changes_of_s = since[1].changes.as_deref().expect("a report");
    let ChangesSince::Known { upserted, .. } = changes_of_s else {
        panic!("no changes in this root: {changes_of_s:?}")
    };
    assert!(upserted.is_empty());
    r.stop().await;
    s.stop().await;
}

/// The options of a restored session may differ from those of the saved session.
#[tokio::test]
async fn a_session_restored_with_plugins_reports_exact_changes() {
    let fixture = Fixture::new("skill r/a\nskill r/b");
    let daemon = start_daemon("r", fixture.path("r"), None).await;
    let (fleet, session) = start_session_on(&[("r", &daemon)]).await;
    let mut saved = session.save().expect("a small session");
    let mut changes = session.watch();
    let text = "---\nname: a\ndescription: Changed.\n---\n";
    fixture.replace("r/a/SKILL.md", text);
    in_time(changes.next()).await;
    drop(session);

    for (plugins, expected) in [(true, &["skill://r/a"][..]), (false, &[]), (true, &[])] {
        let options = SessionOptions {
            plugins,
            ..impatient_options()
        };
        let restored = Session::restore(&fleet, &saved, &options)
            .await
            .expect("a saved session");
        let since = restored.changes_since_save[0].changes.as_deref();
        let Some(ChangesSince::Known {
            upserted, removed, ..
        }) = since
        else {
            panic!("{plugins}: {since:?}");
        };
        assert_eq!(upserted[..], *expected, "{plugins}");
        assert!(removed.is_empty(), "{plugins}: {removed:?}");
        saved = restored.session.save().expect("a small session");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn unusable_saved_sessions_are_errors_or_warnings() {
    let (_fixture, daemon) = serve_tree("r", "skill r/a").await;
    let (fleet, session) = start_session_on(&[("r", &daemon)]).await;
    let saved = session.save().expect("a small session");
    for (bad, part) in [
        (saved.replace('}', "]"), "line 1 column"),
        (
            saved.replace("\"executors\"", "\"more\":1,\"executors\""),
            "unknown field `more`",
        ),
        (String::new(), "line 1 column 0"),
        (
            saved.replace(
                "\"selection\":[{\"id\":\"r\"",
                "\"selection\":[{\"id\":\"\"",
            ),
            "root id",
        ),
    ] {
        let error = Session::restore(&fleet, &bad, &impatient_options())
            .await
            .expect_err(part)
            .to_string();
        assert!(error.contains(part), "{error}");
    }
    // If the version is unknown, only the selection is restored, with a warning.
    let newer = saved
        .replace("\"version\":1", "\"version\":9")
        .replace("\"revision\"", "\"at\"");
    let restored = Session::restore(&fleet, &newer, &impatient_options())
        .await
        .expect("a partial session");
    assert_eq!(list_all(&restored.session).await.0, ["skill://r/a"]);
    assert!(
        restored.changes_since_save.is_empty() && restored.warnings.len() == 1,
        "{:?}",
        restored.warnings
    );
    assert!(
        restored.warnings[0].contains("version 9"),
        "{:?}",
        restored.warnings
    );
    // The fleet no longer has the executor.
    let restored = Session::restore(&Fleet::from_executors([]), &saved, &impatient_options())
        .await
        .expect("a partial session");
    assert!(
        restored.warnings[0].contains("no executor is known"),
        "{:?}",
        restored.warnings
    );
    assert_eq!(
        restored.session.save().expect("a small session"),
        saved,
        "nothing is lost"
    );
    // The root no longer exists.
    let gone = saved.replace("published:r", "published:gone");
    let restored = Session::restore(&fleet, &gone, &impatient_options())
        .await
        .expect("a partial session");
    assert!(
        restored.warnings[0].contains("is not ready"),
        "{:?}",
        restored.warnings
    );
    daemon.stop().await;
}

#[tokio::test]
async fn forks_have_some_roots_of_their_own() {
    let fixture = Fixture::new("skill r/a\nskill s/b");
    let r = start_daemon("r", fixture.path("r"), None).await;
    let s = start_daemon("s", fixture.path("s"), None).await;
    let (fleet, session) = start_session_on(&[("r", &r), ("s", &s)]).await;
    let whole = session.fork(ForkScope::All).expect("a fork");
    let narrow = session.fork(ForkScope::Only(&["s"])).expect("a fork");
    let ids = [session.id(), whole.id(), narrow.id()];
    assert!(ids[0] != ids[1] && ids[1] != ids[2]);
    assert_eq!(list_all(&whole).await.0, ["skill://r/a", "skill://s/b"]);
    assert_eq!(list_all(&narrow).await.0, ["skill://s/b"]);
    assert_eq!(
        error_code(
            &narrow,
            "skills.read",
            read_arguments("r", "skill://r/a", "")
        )
        .await,
        "UNKNOWN_AUTHORITY"
    );
    assert_eq!(
        narrow.inject(&"use $a and $b".into()).await.fragments.len(),
        1
    );
    assert_eq!(narrow.executors().len(), 1);
    // A fork cannot have more roots than its parent.
    let wide = narrow
        .fork(ForkScope::Only(&["s", "r"]))
        .expect_err("too many roots");
    assert_eq!(wide, ForkError::NotSelected(vec!["r".to_owned()]));
    assert!(
        list_all(&narrow.fork(ForkScope::Only(&[])).expect("a fork"))
            .await
            .0
            .is_empty()
    );
    assert!(!session.close(false).await.deleted);
    assert_eq!(
        error_code(&session, "skills.list", json!({})).await,
        "SESSION_CLOSED"
    );
    assert_eq!(
        session.fork(ForkScope::All).expect_err("closed"),
        ForkError::Closed
    );
    drop(session);
    call(
        &narrow,
        "skills.read",
        read_arguments("s", "skill://s/b", ""),
    )
    .await;
    call(
        &whole,
        "skills.read",
        read_arguments("r", "skill://r/a", ""),
    )
    .await;
    // A restored fork has the roots of the fork.
    let saved = narrow.save().expect("a small session");
    assert!(!saved.contains("\"r\""), "{saved}");
    let restored = Session::restore(&fleet, &saved, &impatient_options())
        .await
        .expect("a saved session");
    assert_eq!(list_all(&restored.session).await.0, ["skill://s/b"]);
    assert_eq!(restored.changes_since_save.len(), 1);
    r.stop().await;
    s.stop().await;
}

/// Store that fails the first `delete` and then works like `MemoryStore`.
#[derive(Debug, Default)]
struct FailingStore(MemoryStore, std::sync::atomic::AtomicBool);

impl SessionStore for FailingStore {
    fn put<'a>(&'a self, id: &'a str, saved: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        self.0.put(id, saved)
    }

    fn get<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<String>, StoreError>> {
        self.0.get(id)
    }

    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        if self.1.swap(true, std::sync::atomic::Ordering::Relaxed) {
            return self.0.delete(id);
        }
        Box::pin(std::future::ready(Err(StoreError(
            "it does not answer".to_owned(),
        ))))
    }
}

#[tokio::test]
async fn a_session_is_deleted_once_the_store_confirms() {
    let (_fixture, daemon) = serve_tree("r", "skill r/a").await;
    let store = Arc::new(FailingStore::default());
    let named = SessionOptions {
        id: Some("thread-7".to_owned()),
        ..impatient_options()
    };
    let fleet = fleet(&[("r", &daemon.address)]);
    let session = Session::start(&fleet, vec![published("r")], &named)
        .await
        .expect("a selection");
    assert_eq!(session.persist().await, Err(PersistError::NoStore));
    let session = session.with_store(store.clone());
    session.persist().await.expect("a stored session");
    assert_eq!((session.id(), session.is_closed()), ("thread-7", false));
    // The session is not reported as deleted until the store confirms the deletion.
    let closed = session.close(true).await;
    assert!(
        !closed.deleted
            && closed
                .error
                .expect("an error")
                .to_string()
                .contains("does not answer")
    );
    assert!(!session.close(false).await.deleted);
    assert!(store.get("thread-7").await.expect("an answer").is_some());
    let reopened =
        Session::restore_from_store(&fleet, store.clone(), "thread-7", &impatient_options()).await;
    assert_eq!(
        list_all(&reopened.expect("a stored session").session)
            .await
            .0,
        ["skill://r/a"]
    );
    // The second attempt succeeds, and the state stays deleted.
    assert!(session.close(true).await.deleted);
    assert!(session.close(false).await.deleted);
    assert_eq!(store.get("thread-7").await, Ok(None));
    assert_eq!(
        session.persist().await,
        Err(PersistError::Closed),
        "a closed session is not stored again"
    );
    let reopened =
        Session::restore_from_store(&fleet, store, "thread-7", &impatient_options()).await;
    assert_eq!(
        reopened.err(),
        Some(RestoreError::NotStored("thread-7".to_owned()))
    );
    // A closed session lists and reads nothing.
    for tool in ["skills.list", "skills.read", "other"] {
        assert_eq!(
            error_code(&session, tool, json!({})).await,
            "SESSION_CLOSED"
        );
    }
    let instructions = session.instruction_text(8_000);
    assert!(
        instructions.listed == 0 && instructions.warnings == ["the session is closed"],
        "{instructions:?}"
    );
    assert!(session.inject(&"use $a".into()).await.fragments.is_empty());
    let bad = SessionOptions {
        id: Some("two words".to_owned()),
        ..impatient_options()
    };
    let error = Session::start(&fleet, vec![], &bad)
        .await
        .expect_err("no id")
        .to_string();
    assert!(error.contains("visible ASCII"), "{error}");
    daemon.stop().await;
}

/// Calls to a silent executor end when the session is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn closing_a_session_ends_calls_in_flight() {
    let (call_sender, mut calls_received) = tokio::sync::mpsc::unbounded_channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let read = move |request: &ReadResourceRequest| {
        let _ = call_sender.send(());
        // The call blocks until the end of the test.
        let _ = released.lock().expect("no panic").recv();
        read_response(request, "", "")
    };
    let skills = vec![hostile_skill("r", "skill://r/a")];
    let silent = HostileDaemon {
        skills,
        read: Box::new(read),
        ..HostileDaemon::default()
    };
    let address = silent.start().await;
    let fleet = fleet(&[("r", &address)]);
    let session = Session::start(&fleet, vec![published("r")], &impatient_options()).await;
    let session = Arc::new(session.expect("a selection"));
    let calls: Vec<_> = (0..3)
        .map(|_| {
            let session = session.clone();
            tokio::spawn(async move {
                session
                    .call("skills.read", &read_arguments("r", "skill://r/a", ""))
                    .await
            })
        })
        .collect();
    in_time(calls_received.recv())
        .await
        .expect("a call in flight");
    assert!(!session.close(true).await.deleted, "there is no store");
    for call in calls {
        let result = in_time(call).await.expect("no panic");
        assert_eq!(parse_result(&result)["error"]["code"], "SESSION_CLOSED");
    }
    drop(release);
}

#[tokio::test]
async fn a_scope_closes_its_session_on_every_outcome() {
    let (_fixture, daemon) = serve_tree("r", "skill r/a").await;
    let fleet = fleet(&[("r", &daemon.address)]);
    let store = Arc::new(MemoryStore::default());
    let start = async |id: &str| {
        let options = SessionOptions {
            id: Some(id.to_owned()),
            ..impatient_options()
        };
        let session = Session::start(&fleet, vec![published("r")], &options).await;
        session.expect("a selection").with_store(store.clone())
    };
    let is_kept = async |id: &str| store.get(id).await.expect("an answer").is_some();

    // The session is kept or deleted, whether the scope succeeds or fails.
    for outcome in [Ok(1), Err("it failed")] {
        let escaped = Arc::new(std::sync::Mutex::new(None));
        let out = escaped.clone();
        let scope = move |session: Arc<Session>| async move {
            call(
                &session,
                "skills.read",
                read_arguments("r", "skill://r/a", ""),
            )
            .await;
            *out.lock().expect("no panic") = Some(session);
            outcome
        };
        let ended = start("kept").await.run_scope(true, scope).await;
        assert_eq!(
            (ended.value, ended.persisted, ended.close_outcome.deleted),
            (outcome, Some(Ok(())), false)
        );
        assert!(is_kept("kept").await);
        let escaped = escaped
            .lock()
            .expect("no panic")
            .take()
            .expect("the session");
        assert_eq!(
            error_code(&escaped, "skills.list", json!({})).await,
            "SESSION_CLOSED"
        );
        let session =
            Session::restore_from_store(&fleet, store.clone(), "kept", &impatient_options()).await;
        let session = session.expect("a stored session").session;
        let ended = session
            .run_scope(false, move |_| async move { outcome })
            .await;
        assert_eq!(
            (ended.value, ended.persisted, ended.close_outcome.deleted),
            (outcome, None, true)
        );
        assert!(!is_kept("kept").await);
    }

    // If the scope panics or is dropped, the session is closed and the saved state stays.
    for panics in [true, false] {
        let session = start("left").await;
        session.persist().await.expect("a stored session");
        let (session_sender, session_receiver) = oneshot::channel();
        let scope = move |session: Arc<Session>| async move {
            assert!(session_sender.send(session).is_ok());
            assert!(!panics, "a scope may");
            std::future::pending::<()>().await;
        };
        let task = tokio::spawn(async move { drop(session.run_scope(false, scope).await) });
        let session = in_time(session_receiver).await.expect("the session");
        if !panics {
            assert!(!session.is_closed());
            task.abort();
        }
        assert_eq!(in_time(task).await.expect_err("no end").is_panic(), panics);
        assert!(session.is_closed() && is_kept("left").await);
    }
    daemon.stop().await;
}

#[tokio::test]
async fn the_example_runs() {
    let lines = in_time(Box::pin(example::run()))
        .await
        .expect("the example succeeds");
    for part in [
        "kept: Some(Ok(())), deleted: false",
        "the fork reads: {\"resource\":\"skill://mine/triage/SKILL.md\"",
        "skill://mine/triage: read with",
        "since then: new or changed [\"skill://mine/release\"], gone []",
        "deleted: true",
        "SESSION_CLOSED",
    ] {
        assert!(
            lines.iter().any(|line| line.contains(part)),
            "{part}: {lines:#?}"
        );
    }
}
