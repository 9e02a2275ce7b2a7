//! Properties under lost, repeated, reordered, late and failed messages: no answer is submitted
//! after it was accepted, no tool runs twice for a remembered id, and a drain reports every call.

use super::super::DispatchOptions;
use super::{Fault, Model, PageFault, Tool, call, count_ended, dispatcher, id};
use futures_util::future::join_all;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

#[derive(Debug, Clone)]
enum Step {
    Add(usize),
    Drain,
    /// A drain that is dropped after a number of milliseconds.
    DropDrain(u64),
    /// All calls in flight and all remembered ids are lost.
    Crash,
    /// Faults of the next submissions.
    Faults(Vec<Fault>),
    Pages(Vec<PageFault>),
    Tools(Vec<Tool>),
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        3 => Just(Fault::None),
        3 => Just(Fault::Refused),
        3 => Just(Fault::Lost),
        2 => (0_u64..12_000).prop_map(Fault::Late),
        1 => Just(Fault::Hangs),
        1 => Just(Fault::HangsTaken),
        1 => Just(Fault::Panics),
        1 => Just(Fault::Withdrawn),
        1 => Just(Fault::Conflict),
    ]
}

fn page_fault() -> impl Strategy<Value = PageFault> {
    use PageFault::{Backwards, Fails, Foreign, Hangs, None, Panics, Stale, Twice};
    prop::sample::select(vec![
        None, Fails, Hangs, Panics, Twice, Backwards, Foreign, Stale, Stale,
    ])
}

fn tool() -> impl Strategy<Value = Tool> {
    prop_oneof![
        3 => Just(Tool::Quick),
        3 => (0_u64..400).prop_map(Tool::Slow),
        1 => Just(Tool::Hangs),
        1 => Just(Tool::Panics),
        1 => Just(Tool::Huge),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    use prop::collection::vec;
    prop_oneof![
        2 => (1_usize..12).prop_map(Step::Add),
        3 => Just(Step::Drain),
        2 => (0_u64..600).prop_map(Step::DropDrain),
        1 => Just(Step::Crash),
        2 => vec(fault(), 0..24).prop_map(Step::Faults),
        2 => vec(page_fault(), 0..8).prop_map(Step::Pages),
        2 => vec(tool(), 0..12).prop_map(Step::Tools),
    ]
}

/// Runs a future with the clock paused.
fn paused<T>(test: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime")
        .block_on(test)
}

/// Checks the invariants.
fn check_invariants(model: &Model, at_once: usize) {
    let state = model.state();
    assert_eq!(state.violations, [""; 0]);
    assert!(
        state.runs.values().all(|runs| *runs == 1),
        "{:?}",
        state.runs
    );
    assert!(
        state.most_at_once <= at_once,
        "{} at once",
        state.most_at_once
    );
}

async fn run_steps(steps: Vec<Step>, at_once: usize, page: usize) {
    let model = Arc::new(Model::with(3));
    let options = DispatchOptions {
        max_in_flight: at_once,
        page_size: page,
        max_unsent: 6,
        ..DispatchOptions::default()
    };
    let mut current = dispatcher(&model, options);
    for step in steps {
        match step {
            Step::Add(calls) => model.add(calls),
            Step::Faults(faults) => model.state().faults.extend(faults),
            Step::Pages(faults) => model.state().page_faults.extend(faults),
            Step::Tools(tools) => model.state().tools.extend(tools),
            Step::DropDrain(after) => {
                drop(timeout(Duration::from_millis(after), current.drain()).await);
            }
            Step::Crash => {
                drop(current);
                tokio::task::yield_now().await;
                model.state().runs.clear();
                model.state().finished.clear();
                current = dispatcher(&model, options);
            }
            Step::Drain => {
                let Ok(drained) = current.drain().await else {
                    continue;
                };
                let reported: BTreeSet<String> = drained
                    .failures
                    .iter()
                    .map(|r| r.request_id.to_string())
                    .collect();
                let unreported: Vec<_> = model
                    .pending_names()
                    .into_iter()
                    .filter(|name| !reported.contains(name))
                    .collect();
                assert!(
                    drained.complete && unreported.is_empty(),
                    "{unreported:?} of {drained:?}"
                );
                assert_eq!(drained.failed, drained.failures.len());
            }
        }
        check_invariants(&model, at_once);
    }
    // Once there are no more faults, every call is answered.
    let mut drains = 0;
    while !model.pending_names().is_empty() {
        drop(current.drain().await);
        drains += 1;
        assert!(drains < 200, "no end: {:?}", model.pending_names());
    }
    check_invariants(&model, at_once);
    assert_eq!(model.state().at_once, 0);
}

/// Pushes calls, each several times concurrently, with a low limit of remembered ids.
async fn push_calls(calls: Vec<(u8, usize)>, faults: Vec<Fault>, remembered: usize) {
    let model = Arc::new(Model::with(6));
    model.state().faults.extend(faults);
    let options = DispatchOptions {
        max_remembered: remembered,
        max_unsent: 4,
        max_in_flight: 4,
        ..DispatchOptions::default()
    };
    let dispatcher = dispatcher(&model, options);
    for (n, times) in calls {
        let name = format!("{:05}", n % 6);
        let runs = || model.state().runs.get(&name).copied().unwrap_or(0);
        let (before, known) = (runs(), dispatcher.context.tracker().contains(&id(&name)));
        // An accepted call that was forgotten is a new call for the dispatcher.
        if !known {
            model.state().accepted.remove(&name);
        }
        let all = join_all((0..times).map(|_| dispatcher.dispatch_call(call(&name)))).await;
        if all.iter().all(Result::is_ok) {
            assert_eq!(runs() - before, usize::from(!known));
            assert!(known || count_ended(&all) >= 1);
            let remembers = dispatcher.context.tracker().contains(&id(&name));
            assert!(remembers, "the latest is never forgotten");
        } else {
            // The limit of unsent answers was reached, at least at first.
            assert!(runs() - before <= usize::from(!known));
        }
        assert!(dispatcher.remembered_count() <= remembered + 4);
        assert_eq!(model.state().violations, [""; 0]);
    }
}

/// A call of a dropped drain fails while the next drain fetches pages: the answer is submitted
/// again, or the call is reported.
#[test]
fn a_call_of_a_dropped_drain_fails_during_a_poll() {
    use Fault::{Hangs, Late, Lost, Refused};
    let tools = vec![Tool::Panics, Tool::Panics, Tool::Panics, Tool::Slow(51)];
    let faults = vec![
        Hangs,
        Refused,
        Late(7_096),
        Hangs,
        Refused,
        Refused,
        Refused,
        Lost,
        Refused,
        Refused,
        Hangs,
        Late(6_896),
        Late(3_055),
    ];
    let steps = vec![
        Step::Add(4),
        Step::Tools(tools),
        Step::Faults(faults),
        Step::DropDrain(101),
        Step::Drain,
    ];
    paused(run_steps(steps, 5, 1));
}

proptest! {
    #[test]
    fn invariants_hold_for_any_faults_of_a_drain(
        steps in prop::collection::vec(step(), 1..24),
        at_once in 1_usize..6,
        page in 1_usize..9,
    ) {
        paused(run_steps(steps, at_once, page));
    }

    #[test]
    fn invariants_hold_for_any_pushed_calls(
        calls in prop::collection::vec((any::<u8>(), 1_usize..6), 1..40),
        faults in prop::collection::vec(fault(), 0..60),
        remembered in 1_usize..5,
    ) {
        paused(push_calls(calls, faults, remembered));
    }
}
