//! A real session answers calls that wait at a service over HTTP, which fails in each way that it can.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use caproot::session::dispatch::{
    AnswerOrigin, CallDispatcher, DispatchError, DispatchOptions, DispatchOutcome, DrainSummary,
    SubmitOutcome,
};
use caproot::session::{MAX_RESULT_BYTES, Session};
use serde_json::{Value, json};

use super::example_dispatch;
use super::example_dispatch::manager::{HttpManager, HttpThread};
use super::example_dispatch::service::{Fault, Service};
use super::session::session;
use super::{nobody, serving};
use crate::fixture::Fixture;
use crate::harness::{Daemon, HANG_TIMEOUT, in_time, short_or_long};
use crate::readme;

/// What all of these need.
struct World {
    // Its files go when it is dropped.
    _fixture: Fixture,
    daemon: Daemon,
    session: Arc<Session>,
    service: Service,
    manager: Arc<HttpManager>,
}

impl World {
    async fn new() -> Self {
        let fixture = Fixture::new("skill r/a\nskill r/b\nfile r/a/long\n| \\{20000*x}");
        let daemon = serving("r", fixture.path("r"), None).await;
        let session = Arc::new(session(&[("r", &daemon.address)]).await);
        let service = Service::start().await;
        let manager = Arc::new(HttpManager::new(&service.address));
        Self { _fixture: fixture, daemon, session, service, manager }
    }

    fn dispatcher(&self) -> CallDispatcher {
        let options = DispatchOptions::default();
        CallDispatcher::new("mine", self.manager.clone(), self.session.clone(), options)
    }

    /// A call that waits for the session.
    fn ask(&self, id: &str, tool: &str, arguments: &Value) {
        self.service.call(id, "mine", tool, arguments);
    }

    /// The result that a call was answered with.
    fn result(&self, id: &str) -> Value {
        self.service.answers()[id]["result"].clone()
    }
}

fn reading(file: &str) -> Value {
    let resource = format!("skill://r/a/{file}");
    json!({"authority": {"kind": "executor", "id": "r"}, "package": "skill://r/a",
        "resource": resource})
}

fn ended(drained: &DrainSummary) -> [usize; 4] {
    [drained.accepted, drained.not_found, drained.in_flight, drained.failed]
}

#[tokio::test]
async fn the_example_runs() {
    let (finished, records) = in_time(example_dispatch::run()).await.expect("it runs");
    assert_eq!(finished.status, "completed");
    let tools: HashMap<&str, (&SubmitOutcome, usize)> =
        records.iter().map(|r| (r.tool.as_str(), (&r.outcome, r.attempts))).collect();
    assert_eq!(tools["skills.list"], (&SubmitOutcome::InFlight, 2), "its answer was lost");
    assert_eq!(tools["skills.read"], (&SubmitOutcome::Accepted, 3));
}

#[tokio::test]
async fn each_answer_of_a_manager() {
    let world = World::new().await;
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
        world.ask(id, "skills.list", &nothing);
        world.service.fail(id, faults.iter().copied());
    }
    world.ask("read", "skills.read", &reading("SKILL.md"));
    world.ask("long", "skills.read", &reading("long"));
    world.ask("wrong", "skills.read", &json!({"more": 1}));
    world.ask("unknown", "own.tool", &json!({}));
    world.service.call("theirs", "another", "skills.list", &nothing);
    world.service.ask("approval", json!({"session": "mine", "kind": "approval"}));

    let dispatcher = world.dispatcher();
    let drained = in_time(dispatcher.drain()).await.expect("a drain");
    assert_eq!(ended(&drained), [7, 1, 3, 1]);
    assert_eq!((drained.ignored, drained.complete), (2, true));
    let [failure] = &drained.failures[..] else { panic!("one: {drained:?}") };
    assert_eq!((failure.request_id.as_str(), failure.attempts), ("never", 3));
    let SubmitOutcome::Failed(why) = &failure.outcome else { panic!("{failure:?}") };
    assert!(why.contains("500"), "{why}");
    assert_eq!(world.service.pending(), ["approval", "never", "theirs"]);

    assert_eq!(world.result("good")["skills"][0]["package"], "skill://r/a");
    assert_eq!(world.result("lost"), world.result("good"));
    assert!(world.result("read")["contents"].as_str().expect("text").contains("Does a."));
    assert_eq!(world.result("long")["truncated"], true);
    assert_eq!(world.result("wrong")["error"]["code"], "INVALID_ARGUMENTS");
    assert_eq!(world.result("unknown")["error"]["code"], "UNKNOWN_TOOL");
    assert!(world.manager.records().iter().all(|r| r.bytes <= MAX_RESULT_BYTES));

    // The answer that was not taken is sent again; nothing else is.
    let drained = in_time(dispatcher.drain()).await.expect("a drain");
    assert_eq!(ended(&drained), [1, 0, 0, 0]);
    let last = world.manager.records().pop().expect("a record");
    assert_eq!((last.request_id.as_str(), last.origin), ("never", AnswerOrigin::Resent));
    assert_eq!(world.service.pending(), ["approval", "theirs"]);
    assert_eq!(world.service.repeated(), [""; 0]);
    world.daemon.stop().await;
}

#[tokio::test]
async fn thousands_of_calls_wait() {
    let calls = short_or_long(2_000, 10_000);
    let world = World::new().await;
    for n in 0..calls {
        let id = format!("call {n:05}");
        match n % 20 {
            0 => world.ask(&id, "skills.read", &reading("SKILL.md")),
            _ => world.ask(&id, "skills.list", &json!({})),
        }
        match n % 97 {
            0 => world.service.fail(&id, [Fault::Lost]),
            1 => world.service.fail(&id, [Fault::Error]),
            _ => {}
        }
    }
    for n in 0..300 {
        world.service.call(
            &format!("call {n:05} of another"),
            "another",
            "skills.list",
            &json!({}),
        );
    }
    let dispatcher = world.dispatcher();
    // Whoever waits for it may go away: nothing is lost, and nothing is done twice.
    let first = tokio::time::timeout(Duration::from_millis(50), dispatcher.drain()).await;
    drop(first);
    let drained = tokio::time::timeout(HANG_TIMEOUT * 4, dispatcher.drain()).await.expect("an end");
    let drained = drained.expect("a drain");
    assert_eq!((drained.failed, drained.ignored, drained.complete), (0, 300, true));
    assert_eq!(world.service.answers().len(), calls);
    assert_eq!(world.service.pending().len(), 300);
    assert_eq!(world.service.repeated(), [""; 0]);
    let records = world.manager.records();
    assert_eq!(records.len(), calls);
    let ids: std::collections::HashSet<_> = records.iter().map(|r| &r.request_id).collect();
    assert_eq!(ids.len(), calls, "each tool ran once");
    assert!(records.iter().all(|r| r.success && r.origin == AnswerOrigin::Fresh));
    assert_eq!(dispatcher.remembered_count(), calls);
    world.daemon.stop().await;
}

#[tokio::test]
async fn a_dispatcher_that_dies_leaves_its_calls_to_the_next() {
    let world = World::new().await;
    for n in 0..200 {
        world.ask(&format!("{n:03}"), "skills.read", &reading("long"));
    }
    let first = world.dispatcher();
    drop(tokio::time::timeout(Duration::from_millis(50), first.drain()).await);
    drop(first);
    in_time(world.dispatcher().drain()).await.expect("the rest");
    assert_eq!(world.service.answers().len(), 200);
    assert_eq!(world.service.pending(), [""; 0]);
    world.daemon.stop().await;
}

#[tokio::test]
async fn calls_that_are_handed_in() {
    let world = World::new().await;
    world.ask("1", "skills.list", &json!({}));
    let dispatcher = world.dispatcher();
    let page = caproot::session::dispatch::CallManager::list_pending(&*world.manager, None, 10);
    let call = page.await.expect("a page").calls.remove(0);
    assert!(dispatcher.matches(&call));
    let responded = in_time(dispatcher.dispatch_call(call.clone())).await;
    assert!(matches!(responded, Ok(DispatchOutcome::Ended(record)) if record.is_done()));
    assert_eq!(dispatcher.dispatch_call(call).await, Ok(DispatchOutcome::AlreadyKnown));
    let error = dispatcher.drain().await.expect_err("calls are handed in");
    assert!(matches!(error.error, DispatchError::Mode(_)), "{error}");
    let thread = HttpThread { manager: &world.manager, id: "mine" };
    let turn = json!({"calls": [{"tool": "skills.list", "arguments": {}}]});
    let sent = dispatcher.send_and_handle(&thread, &turn, "completed").await;
    assert!(sent.is_err() && world.service.pending().is_empty(), "nothing was sent");
    dispatcher.reset_mode();
    let finished = in_time(dispatcher.send_and_handle(&thread, &turn, "completed")).await;
    assert_eq!(finished.expect("an end").status, "completed");
    assert_eq!(world.service.repeated(), [""; 0]);
    world.daemon.stop().await;
}

#[tokio::test]
async fn a_service_that_is_away() {
    let world = World::new().await;
    let away = Arc::new(HttpManager::new(&nobody()));
    let options = DispatchOptions::default();
    let dispatcher = CallDispatcher::new("mine", away.clone(), world.session.clone(), options);
    let error = in_time(dispatcher.drain()).await.expect_err("nobody is there");
    assert!(error.to_string().starts_with("the manager does not list the pending calls: "));
    let thread = HttpThread { manager: &away, id: "mine" };
    let sent = in_time(dispatcher.send_and_handle(&thread, &json!({}), "completed")).await;
    assert!(sent.expect_err("nobody is there").to_string().starts_with("the turn was not sent: "));
    world.daemon.stop().await;
}

#[test]
fn the_bounds_that_readme_names() {
    let options = DispatchOptions::default();
    let seconds = |span: Duration| span.as_secs().to_string();
    let real = [
        ("at_once", options.max_in_flight.to_string()),
        ("remembered", options.max_remembered.to_string()),
        ("unsent", options.max_unsent.to_string()),
        ("page", options.page_size.to_string()),
        ("answer_within", seconds(options.answer_timeout)),
        ("manager_within", seconds(options.manager_timeout)),
        ("turn_within", seconds(options.turn_timeout)),
    ];
    let number = |cell: &str| match humantime::parse_duration(cell) {
        Ok(span) => seconds(span),
        Err(_) => cell.replace(',', ""),
    };
    let said = readme::table("| bound of a dispatcher | default |").into_iter();
    let said: Vec<_> =
        said.map(|row| (readme::ticked(&row[0]).concat(), number(&row[1]))).collect();
    assert_eq!(said, real.map(|(name, value)| (name.to_owned(), value)));
}
