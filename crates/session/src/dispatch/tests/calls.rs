//! Pushed and polled calls.

use super::super::{
    AnswerOrigin, CallDispatcher, CallManager, DeliveryMode, DispatchError, DispatchOptions,
    DispatchOutcome, DispatchRecord, PendingCall, PendingPage, RETRY_DELAY, RequestId,
    SubmitOutcome,
};
use super::{
    Fault, Model, PageFault, Tool, call, count_ended, dispatcher, foreign, model_and_dispatcher,
};
use crate::ToolResult;
use futures_util::future::{BoxFuture, join_all};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Returns the record of a pushed call.
async fn dispatch_and_end(dispatcher: &CallDispatcher, name: &str) -> DispatchRecord {
    match dispatcher.dispatch_call(call(name)).await {
        Ok(DispatchOutcome::Ended(record)) => record,
        other => panic!("{name}: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_calls_are_answered() {
    let (model, dispatcher) = model_and_dispatcher(10_000);
    model.state().tools.extend((0..10_000).map(Tool::Slow));
    model.state().tools.iter_mut().for_each(|tool| {
        if let Tool::Slow(wait) = tool {
            *wait %= 7;
        }
    });
    let drained = dispatcher.drain().await.expect("all of it");
    assert_eq!(
        (drained.accepted, drained.total(), drained.complete),
        (10_000, 10_000, true)
    );
    assert!(model.pending_names().is_empty());
    assert_eq!(dispatcher.remembered_count(), 10_000);
    model.add(50);
    assert_eq!(dispatcher.drain().await.expect("the new ones").accepted, 50);
    assert_eq!(
        dispatcher.remembered_count(),
        10_000,
        "the oldest are forgotten"
    );
    let state = model.state();
    assert_eq!((state.most_at_once, state.submits), (16, 10_050));
    assert_eq!(state.records.len(), 10_050);
}

#[tokio::test(start_paused = true)]
async fn a_dispatcher_either_pushes_or_polls() {
    let (model, dispatcher) = model_and_dispatcher(2);
    model.state().page_faults.push_back(PageFault::Foreign);
    assert_eq!(
        dispatcher.dispatch_call(call("00000")).await.map(|_| ()),
        Ok(())
    );
    let error = dispatcher
        .drain()
        .await
        .expect_err("calls are pushed")
        .error;
    assert_eq!(error, DispatchError::Mode(DeliveryMode::Pushed));
    assert!(error.to_string().contains("pushed") && error.to_string().contains("`reset_mode`"));
    let until = dispatcher.handle_until(&*model, "completed").await;
    assert!(
        until
            .expect_err("calls are pushed")
            .to_string()
            .contains("`reset_mode`")
    );
    dispatcher.reset_mode();
    let drained = dispatcher.drain().await.expect("they are polled now");
    assert_eq!(
        (drained.accepted, drained.total()),
        (1, 1),
        "a done call stays done"
    );
    let error = dispatcher
        .dispatch_call(call("00000"))
        .await
        .expect_err("calls are polled");
    assert_eq!(error, DispatchError::Mode(DeliveryMode::Polled));
    dispatcher.reset_mode();
    assert_eq!(
        dispatcher.dispatch_call(call("00000")).await,
        Ok(DispatchOutcome::AlreadyKnown)
    );
}

#[tokio::test(start_paused = true)]
async fn calls_of_other_sessions_take_no_lock() {
    let (model, dispatcher) = model_and_dispatcher(0);
    let guard = dispatcher.context.tracker();
    for call in foreign() {
        assert!(!dispatcher.matches(&call));
        // This thread holds the lock of the tracker: a dispatcher that took the lock would hang.
        let mut respond = Box::pin(dispatcher.dispatch_call(call));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let answer = respond.as_mut().poll(&mut context);
        assert_eq!(answer, std::task::Poll::Ready(Ok(DispatchOutcome::Ignored)));
    }
    drop(guard);
    model.state().page_faults.extend([PageFault::Foreign; 2]);
    let drained = dispatcher.drain().await.expect("nothing");
    assert_eq!((drained.total(), drained.ignored), (0, 2));
    assert_eq!(
        (dispatcher.remembered_count(), dispatcher.mode()),
        (0, None)
    );
    assert_eq!(model.state().submits, 0);
}

#[tokio::test(start_paused = true)]
async fn concurrent_pushes_of_a_call_are_answered_once() {
    let (model, dispatcher) = model_and_dispatcher(1);
    model.state().tools.push_back(Tool::Slow(500));
    let all = join_all((0..50).map(|_| dispatcher.dispatch_call(call("00000")))).await;
    let known = all
        .iter()
        .filter(|r| **r == Ok(DispatchOutcome::AlreadyKnown))
        .count();
    let ended = count_ended(&all);
    assert_eq!((ended, known, model.state().runs["00000"]), (1, 49, 1));
}

#[tokio::test(start_paused = true)]
async fn only_the_answer_is_submitted_again() {
    let (model, dispatcher) = model_and_dispatcher(3);
    // Lost: the next attempt finds that the call has an answer, or that the call is over.
    model.state().faults.push_back(Fault::Lost);
    let begun = Instant::now();
    let record = dispatch_and_end(&dispatcher, "00000").await;
    assert!(
        record.is_done() && record.outcome != SubmitOutcome::Accepted,
        "{record:?}"
    );
    assert_eq!(record.attempts, 2);
    assert!(record.submit_duration <= 2 * RETRY_DELAY, "{record:?}");
    assert_eq!(begun.elapsed(), record.submit_duration);
    // Rejected: three attempts, and the answer is kept.
    model
        .state()
        .faults
        .extend([Fault::Refused, Fault::Panics, Fault::Hangs]);
    let record = dispatch_and_end(&dispatcher, "00001").await;
    assert_eq!((record.attempts, record.is_done()), (3, false));
    assert_eq!(
        record.outcome,
        SubmitOutcome::Failed("no answer within 10s".to_owned())
    );
    let delays = record
        .submit_duration
        .saturating_sub(Duration::from_secs(10));
    assert!(delays <= 6 * RETRY_DELAY, "{record:?}");
    let record = dispatch_and_end(&dispatcher, "00001").await;
    assert_eq!((record.origin, record.attempts), (AnswerOrigin::Resent, 1));
    assert_eq!(record.outcome, SubmitOutcome::Accepted);
    assert_eq!(
        dispatcher.dispatch_call(call("00001")).await,
        Ok(DispatchOutcome::AlreadyKnown)
    );
    assert!(model.state().runs.values().all(|runs| *runs == 1));
    let record = dispatch_and_end(&dispatcher, "00002").await;
    assert_eq!(
        (record.origin, record.success, record.bytes),
        (AnswerOrigin::Fresh, true, 2)
    );
}

#[tokio::test(start_paused = true)]
async fn a_failing_tool_stops_no_other() {
    let (model, dispatcher) = model_and_dispatcher(40);
    model
        .state()
        .tools
        .extend([Tool::Hangs, Tool::Panics, Tool::Huge]);
    let drained = dispatcher.drain().await.expect("all of it");
    assert_eq!(drained.accepted, 40);
    let state = model.state();
    let last = state.records.last().expect("a record");
    assert_eq!(
        (last.origin, last.answer_duration),
        (AnswerOrigin::TimedOut, Duration::from_mins(2))
    );
    let bad: Vec<_> = state
        .records
        .iter()
        .filter(|r| !r.success)
        .map(|r| r.origin)
        .collect();
    assert_eq!(
        bad,
        [
            AnswerOrigin::Panicked,
            AnswerOrigin::TooLarge,
            AnswerOrigin::TimedOut
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn rejected_answers_are_kept_within_the_limit() {
    let model = Arc::new(Model::with(100));
    let options = DispatchOptions {
        max_unsent: 20,
        max_in_flight: 4,
        ..DispatchOptions::default()
    };
    let dispatcher = dispatcher(&model, options);
    model.state().faults.extend([Fault::Refused; 1_000]);
    let error = dispatcher.drain().await.expect_err("it takes none");
    let DispatchError::TooManyUnsent { kept, reason } = &error.error else {
        panic!("{error}")
    };
    assert!((17..=20).contains(kept) && reason == "500", "{error}");
    assert_eq!(dispatcher.remembered_count(), model.state().runs.len());
    assert!(
        model.state().runs.len() <= 20,
        "no tool runs if its answer could not be kept"
    );
    model.state().faults.clear();
    let drained = dispatcher.drain().await.expect("it takes all");
    assert_eq!(drained.accepted, 100);
    assert!(model.state().runs.values().all(|runs| *runs == 1));
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_is_dropped_loses_nothing() {
    let (model, dispatcher) = model_and_dispatcher(30);
    model.state().tools.extend([Tool::Slow(1_000); 30]);
    let drain = tokio::time::timeout(Duration::from_millis(1), dispatcher.drain()).await;
    assert!(drain.is_err());
    dispatcher.wait_idle().await;
    assert_eq!(model.state().accepted.len(), 16, "calls in flight continue");
    assert_eq!(dispatcher.drain().await.expect("the rest").accepted, 14);
    assert!(model.state().runs.values().all(|runs| *runs == 1));
    assert_eq!(model.state().runs.len(), 30);
}

/// Function that returns the token of the next page.
type NextToken = fn(Option<&str>) -> String;

/// Manager whose pages never end.
struct EndlessManager {
    token: NextToken,
    calls: usize,
}

impl CallManager for EndlessManager {
    fn list_pending<'a>(
        &'a self,
        after: Option<&'a str>,
        _: usize,
    ) -> BoxFuture<'a, Result<PendingPage, String>> {
        let calls = vec![call("same"); self.calls];
        Box::pin(std::future::ready(Ok(PendingPage {
            calls,
            next_token: Some((self.token)(after)),
            unread: 0,
        })))
    }

    fn submit_result<'a>(
        &'a self,
        _: &'a RequestId,
        _: &'a ToolResult,
    ) -> BoxFuture<'a, SubmitOutcome> {
        Box::pin(std::future::ready(SubmitOutcome::Accepted))
    }
}

#[tokio::test(start_paused = true)]
async fn endless_pages_are_an_error() {
    let cases: [(NextToken, usize, &str); 4] = [
        (|_| "same".to_owned(), 1, "repeats"),
        (|_| "x".repeat(1_025), 1, "1,024"),
        (|_| String::new(), 10_001, "10,000 calls"),
        (
            |after| (after.map_or(0, |n| n.parse::<u32>().unwrap_or(0)) + 1).to_string(),
            1,
            "10,000",
        ),
    ];
    for (token, calls, message) in cases {
        let manager = Arc::new(EndlessManager { token, calls });
        let answers = Arc::new(Model::default());
        let dispatcher = CallDispatcher::new("mine", manager, answers, DispatchOptions::default());
        let error = dispatcher.drain().await.expect_err("no end");
        assert!(error.to_string().contains(message), "{error}");
        assert!(error.drained.total() <= 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_manager_is_an_error() {
    let (model, dispatcher) = model_and_dispatcher(3);
    model
        .state()
        .page_faults
        .extend([PageFault::Fails, PageFault::Panics, PageFault::Hangs]);
    let error = dispatcher.drain().await.expect_err("nothing is known");
    assert!(
        error.to_string().contains("no answer within 10s"),
        "{error}"
    );
    model
        .state()
        .page_faults
        .extend([PageFault::Fails, PageFault::Panics]);
    assert_eq!(
        dispatcher
            .drain()
            .await
            .expect("the third attempt")
            .accepted,
        3
    );
}

#[test]
fn request_ids_have_a_length_limit() {
    assert!(RequestId::try_from("").is_err());
    assert!(RequestId::try_from("x".repeat(513).as_str()).is_err());
    let whole = "x".repeat(512);
    assert_eq!(
        RequestId::try_from(whole.as_str()).expect("an id").as_str(),
        whole
    );
    let _: PendingCall = call("a");
}
