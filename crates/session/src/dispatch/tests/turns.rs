//! Turns against the scripted model.

use super::super::{DispatchOptions, TerminalStatuses, TurnError};
use super::{Fault, PageFault, Tool, dispatcher, model_and_dispatcher};
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, timeout};

#[tokio::test(start_paused = true)]
async fn a_turn_ends_with_one_of_several_statuses() {
    for until in [
        TerminalStatuses::from("completed"),
        ["failed", "completed"].into(),
    ] {
        let (model, dispatcher) = model_and_dispatcher(0);
        let turn = json!({"calls": 40});
        let finished = dispatcher
            .send_and_handle(&*model, &turn, until)
            .await
            .expect("an end");
        assert_eq!(
            (finished.status.as_str(), finished.drained.accepted),
            ("completed", 40)
        );
        assert_eq!(model.state().sent, 1);
    }
    let several = TerminalStatuses::from(vec!["a".to_owned(), "b".to_owned()]);
    assert!(several.contains("b") && !several.contains("B"));
    assert_eq!(several.to_string(), "\"a\" or \"b\"");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_an_earlier_turn_does_not_count() {
    // The thread is `completed` until the turn is sent, which takes 30 s; calls arrive meanwhile.
    let (model, dispatcher) = model_and_dispatcher(1);
    let turn = json!({"calls": 2, "wait": 30_000});
    let finished = dispatcher
        .send_and_handle(&*model, &turn, "completed")
        .await
        .expect("an end");
    assert_eq!(finished.drained.accepted, 3);
}

#[tokio::test(start_paused = true)]
async fn failures_of_a_turn_are_errors() {
    let (model, dispatcher) = model_and_dispatcher(0);
    let none = dispatcher
        .send_and_handle(&*model, &json!({}), Vec::<String>::new())
        .await;
    assert_eq!(none, Err(TurnError::NoTerminal));
    let fails = json!({"fails": "no such thread"});
    let error = dispatcher
        .send_and_handle(&*model, &fails, "completed")
        .await;
    assert_eq!(error, Err(TurnError::NotSent("no such thread".to_owned())));
    model.state().statuses.push_back(Err("401".to_owned()));
    let error = dispatcher.handle_until(&*model, "completed").await;
    assert_eq!(error, Err(TurnError::Status("401".to_owned())));
    model.state().statuses = [Ok("stuck".to_owned())].into();
    let begun = Instant::now();
    let error = dispatcher
        .handle_until(&*model, ["completed"])
        .await
        .expect_err("too long");
    assert_eq!(begun.elapsed(), DispatchOptions::default().turn_timeout);
    let said = r#"no status "completed" within 10m; the last is "stuck""#;
    assert_eq!(error.to_string(), said);
    model.state().page_faults.extend([PageFault::Fails; 30]);
    let error = dispatcher
        .handle_until(&*model, "completed")
        .await
        .expect_err("no manager");
    assert!(
        error.to_string().contains("the pending calls: 500"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn temporary_faults_do_not_end_a_turn() {
    let (model, dispatcher) = model_and_dispatcher(5);
    model.state().page_faults.extend([PageFault::Fails; 9]);
    model.state().faults.extend([Fault::Refused; 20]);
    model.state().statuses = std::iter::repeat_n(Err("500".to_owned()), 5)
        .chain([Ok("running".to_owned())])
        .collect();
    model.state().tools.push_back(Tool::Hangs);
    let handled = dispatcher.handle_until(&*model, "completed");
    // All calls except the hanging call are answered long before its time limit.
    assert!(timeout(Duration::from_mins(1), handled).await.is_err());
    assert_eq!(model.state().accepted.len(), 4);
    // Dropping the future lost nothing, and the next future resumes the turn.
    model.state().statuses.clear();
    let finished = dispatcher
        .handle_until(&*model, "completed")
        .await
        .expect("an end");
    assert_eq!(finished.status, "completed");
    assert_eq!(model.state().accepted.len(), 5);
    assert!(model.state().runs.values().all(|runs| *runs == 1));
}

#[tokio::test(start_paused = true)]
async fn calls_arrive_while_another_call_hangs() {
    let (model, _) = model_and_dispatcher(1);
    let options = DispatchOptions {
        answer_timeout: Duration::from_hours(1),
        ..Default::default()
    };
    let dispatcher = dispatcher(&model, options);
    model.state().tools.push_back(Tool::Hangs);
    model.state().statuses.push_back(Ok("running".to_owned()));
    let handle = dispatcher.handle_until(&*model, "completed");
    let more = async {
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_secs(20)).await;
            model.add(1);
        }
        tokio::time::sleep(Duration::from_secs(20)).await;
        model.state().statuses = [Ok("completed".to_owned())].into();
    };
    let begun = Instant::now();
    let (finished, ()) = tokio::join!(handle, more);
    assert_eq!(finished.expect("an end").drained.accepted, 3);
    assert!(
        begun.elapsed() < Duration::from_mins(2),
        "a hanging call delays no other call"
    );
}

#[tokio::test(start_paused = true)]
async fn polls_back_off() {
    let (model, dispatcher) = model_and_dispatcher(0);
    model.state().page_faults.extend([PageFault::None; 10_000]);
    model.state().statuses.push_back(Ok("running".to_owned()));
    assert!(
        timeout(
            Duration::from_mins(1),
            dispatcher.handle_until(&*model, "x")
        )
        .await
        .is_err()
    );
    let polls = 10_000 - model.state().page_faults.len();
    assert!((25..40).contains(&polls), "{polls} polls in a minute");
}
