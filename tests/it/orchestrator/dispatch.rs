//! A session answers pending calls of an HTTP service that fails in several ways.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use caproot_session::dispatch::{
    AnswerOrigin, CallDispatcher, DispatchError, DispatchOptions, DispatchOutcome, DispatchRecord,
    DrainSummary, HttpManager, HttpManagerConfig, SubmitOutcome,
};
use caproot_session::{MAX_RESULT_BYTES, Session};
use serde_json::{Value, json};

use super::example_dispatch::service::{Fault, Service};
use super::serve_tree;
use super::session::session;
use super::{example_dispatch, read_arguments};
use crate::harness::fixture::Fixture;
use crate::harness::test_servers::unused_address;
use crate::harness::{Daemon, HANG_TIMEOUT, in_time, short_or_long};

/// Daemon, session and service of a test.
struct DispatchSetup {
    // Keeps the files until the end of the test.
    _fixture: Fixture,
    daemon: Daemon,
    session: Arc<Session>,
    service: Service,
    manager: Arc<HttpManager>,
    records: Arc<Mutex<Vec<DispatchRecord>>>,
}

impl DispatchSetup {
    async fn start() -> Self {
        let (fixture, daemon) =
            serve_tree("r", "skill r/a\nskill r/b\nfile r/a/long\n| \\{20000*x}").await;
        let session = Arc::new(session(&[("r", &daemon.address)]).await);
        let service = Service::start().await;
        let records = Arc::new(Mutex::new(Vec::new()));
        let observer = {
            let records = records.clone();
            move |record: &DispatchRecord| records.lock().expect("no panic").push(record.clone())
        };
        let manager = Arc::new(
            http_manager(&service.base_url())
                .await
                .with_observer(observer),
        );
        Self {
            _fixture: fixture,
            daemon,
            session,
            service,
            manager,
            records,
        }
    }

    fn dispatcher(&self) -> CallDispatcher {
        let options = DispatchOptions::default();
        CallDispatcher::new("mine", self.manager.clone(), self.session.clone(), options)
    }

    /// Adds a pending call for the session.
    fn add_call(&self, id: &str, tool: &str, arguments: &Value) {
        self.service.call(id, "mine", tool, arguments);
    }

    /// Returns the result in the answer to a call.
    fn result(&self, id: &str) -> Value {
        self.service.result(id)
    }

    /// Returns the records of ended dispatches.
    fn records(&self) -> Vec<DispatchRecord> {
        self.records.lock().expect("no panic").clone()
    }
}

/// Returns the manager of the session `mine`.
pub(crate) async fn http_manager(base_url: &str) -> HttpManager {
    HttpManager::new(HttpManagerConfig::new(base_url, "mine"))
        .await
        .expect("a manager")
}

fn outcome_counts(drained: &DrainSummary) -> [usize; 4] {
    [
        drained.accepted,
        drained.not_found,
        drained.already_answered,
        drained.failed,
    ]
}

#[tokio::test]
async fn the_example_runs() {
    let (finished, records) = in_time(example_dispatch::run())
        .await
        .expect("the example succeeds");
    assert_eq!(finished.status, "completed");
    let tools: HashMap<&str, (&SubmitOutcome, usize)> = records
        .iter()
        .map(|r| (r.tool.as_str(), (&r.outcome, r.attempts)))
        .collect();
    assert_eq!(
        tools["skills.list"],
        (&SubmitOutcome::AlreadyAnswered, 2),
        "the first answer was lost"
    );
    assert_eq!(tools["skills.read"], (&SubmitOutcome::Accepted, 3));
}

#[tokio::test]
async fn each_submit_outcome_is_handled() {
    let setup = DispatchSetup::start().await;
    let nothing = json!({});
    for (id, faults) in [
        ("good", &[][..]),
        ("lost", &[Fault::Lost]),
        ("once", &[Fault::Error]),
        ("twice", &[Fault::Error, Fault::Lost]),
        ("never", &[Fault::Error; 3]),
        ("gone", &[Fault::Gone]),
        ("taken", &[Fault::Conflict]),
        ("with / and ?&=%25", &[]),
    ] {
        setup.add_call(id, "skills.list", &nothing);
        setup.service.fail(id, faults.iter().copied());
    }
    setup.add_call(
        "read",
        "skills.read",
        &read_arguments("r", "skill://r/a", "skill://r/a/SKILL.md"),
    );
    setup.add_call(
        "long",
        "skills.read",
        &read_arguments("r", "skill://r/a", "skill://r/a/long"),
    );
    setup.add_call("wrong", "skills.read", &json!({"more": 1}));
    setup.add_call("unknown", "own.tool", &json!({}));
    setup
        .service
        .call("theirs", "another", "skills.list", &nothing);
    setup.service.ask(
        "mine",
        json!({"request_id": "approval", "kind": "approval"}),
    );

    let dispatcher = setup.dispatcher();
    let drained = in_time(dispatcher.drain()).await.expect("a drain");
    assert_eq!(outcome_counts(&drained), [7, 1, 3, 1]);
    // Only the program can answer the approval.
    assert_eq!(
        (drained.ignored, drained.unread, drained.complete),
        (0, 1, false)
    );
    let [failure] = &drained.failures[..] else {
        panic!("one: {drained:?}")
    };
    assert_eq!(
        (failure.request_id.as_str(), failure.attempts),
        ("never", 3)
    );
    let SubmitOutcome::Failed(why) = &failure.outcome else {
        panic!("{failure:?}")
    };
    assert!(why.contains("500"), "{why}");
    assert_eq!(setup.service.pending(), ["approval", "never", "theirs"]);

    assert_eq!(setup.result("good")["skills"][0]["package"], "skill://r/a");
    assert_eq!(setup.result("lost"), setup.result("good"));
    assert!(
        setup.result("read")["contents"]
            .as_str()
            .expect("text")
            .contains("Does a.")
    );
    assert_eq!(setup.result("long")["truncated"], true);
    assert_eq!(setup.result("wrong")["error"]["code"], "INVALID_ARGUMENTS");
    assert_eq!(setup.result("unknown")["error"]["code"], "UNKNOWN_TOOL");
    assert!(setup.records().iter().all(|r| r.bytes <= MAX_RESULT_BYTES));

    // Only the rejected answer is sent again.
    let drained = in_time(dispatcher.drain()).await.expect("a drain");
    assert_eq!(outcome_counts(&drained), [1, 0, 0, 0]);
    let last = setup.records().pop().expect("a record");
    assert_eq!(
        (last.request_id.as_str(), last.origin),
        ("never", AnswerOrigin::Resent)
    );
    assert_eq!(setup.service.pending(), ["approval", "theirs"]);
    assert_eq!(setup.service.repeated(), [""; 0]);
    setup.daemon.stop().await;
}

#[tokio::test]
async fn thousands_of_pending_calls_are_answered_once() {
    let calls = short_or_long(2_000, 10_000);
    let setup = DispatchSetup::start().await;
    for n in 0..calls {
        let id = format!("call {n:05}");
        match n % 20 {
            0 => setup.add_call(
                &id,
                "skills.read",
                &read_arguments("r", "skill://r/a", "skill://r/a/SKILL.md"),
            ),
            _ => setup.add_call(&id, "skills.list", &json!({})),
        }
        match n % 97 {
            0 => setup.service.fail(&id, [Fault::Lost]),
            1 => setup.service.fail(&id, [Fault::Error]),
            _ => {}
        }
    }
    for n in 0..300 {
        setup.service.call(
            &format!("call {n:05} of another"),
            "another",
            "skills.list",
            &json!({}),
        );
    }
    let dispatcher = setup.dispatcher();
    // The first drain is cancelled. No call is lost, and no tool runs twice.
    let first = tokio::time::timeout(Duration::from_millis(50), dispatcher.drain()).await;
    drop(first);
    let drained = tokio::time::timeout(HANG_TIMEOUT * 4, dispatcher.drain())
        .await
        .expect("an end");
    let drained = drained.expect("a drain");
    assert_eq!(
        (drained.failed, drained.ignored, drained.complete),
        (0, 0, true)
    );
    assert_eq!(setup.service.answers().len(), calls);
    assert_eq!(setup.service.pending().len(), 300);
    assert_eq!(setup.service.repeated(), [""; 0]);
    let records = setup.records();
    assert_eq!(records.len(), calls);
    let ids: std::collections::HashSet<_> = records.iter().map(|r| &r.request_id).collect();
    assert_eq!(ids.len(), calls, "each tool ran once");
    assert!(
        records
            .iter()
            .all(|r| r.success && r.origin == AnswerOrigin::Fresh)
    );
    assert_eq!(dispatcher.remembered_count(), calls);
    setup.daemon.stop().await;
}

#[tokio::test]
async fn a_new_dispatcher_answers_the_calls_of_a_dropped_one() {
    let setup = DispatchSetup::start().await;
    for n in 0..200 {
        setup.add_call(
            &format!("{n:03}"),
            "skills.read",
            &read_arguments("r", "skill://r/a", "skill://r/a/long"),
        );
    }
    let first = setup.dispatcher();
    drop(tokio::time::timeout(Duration::from_millis(50), first.drain()).await);
    drop(first);
    in_time(setup.dispatcher().drain()).await.expect("the rest");
    assert_eq!(setup.service.answers().len(), 200);
    assert_eq!(setup.service.pending(), [""; 0]);
    setup.daemon.stop().await;
}

#[tokio::test]
async fn a_dispatcher_that_dispatches_calls_cannot_drain() {
    let setup = DispatchSetup::start().await;
    setup.add_call("1", "skills.list", &json!({}));
    let dispatcher = setup.dispatcher();
    let page = caproot_session::dispatch::CallManager::list_pending(&*setup.manager, None, 10);
    let call = page.await.expect("a page").calls.remove(0);
    assert!(dispatcher.matches(&call));
    let responded = in_time(dispatcher.dispatch_call(call.clone())).await;
    assert!(matches!(responded, Ok(DispatchOutcome::Ended(record)) if record.is_done()));
    assert_eq!(
        dispatcher.dispatch_call(call).await,
        Ok(DispatchOutcome::AlreadyKnown)
    );
    let error = dispatcher.drain().await.expect_err("calls are handed in");
    assert!(matches!(error.error, DispatchError::Mode(_)), "{error}");
    let thread = &*setup.manager;
    let turn = json!({"calls": [{"tool": "skills.list", "arguments": {}}]});
    let sent = dispatcher.send_and_handle(thread, &turn, "completed").await;
    assert!(
        sent.is_err() && setup.service.pending().is_empty(),
        "nothing was sent"
    );
    dispatcher.reset_mode();
    let finished = in_time(dispatcher.send_and_handle(thread, &turn, "completed")).await;
    assert_eq!(finished.expect("an end").status, "completed");
    assert_eq!(setup.service.repeated(), [""; 0]);
    setup.daemon.stop().await;
}

#[tokio::test]
async fn an_unreachable_service_is_an_error() {
    let setup = DispatchSetup::start().await;
    let unreachable = Arc::new(http_manager(&format!("http://{}", unused_address())).await);
    let options = DispatchOptions::default();
    let dispatcher =
        CallDispatcher::new("mine", unreachable.clone(), setup.session.clone(), options);
    let error = in_time(dispatcher.drain()).await.expect_err("no service");
    assert!(
        error
            .to_string()
            .starts_with("the manager does not list the pending calls: ")
    );
    let sent = in_time(dispatcher.send_and_handle(&*unreachable, &json!({}), "completed")).await;
    assert!(
        sent.expect_err("no service")
            .to_string()
            .starts_with("the turn was not sent: ")
    );
    setup.daemon.stop().await;
}
