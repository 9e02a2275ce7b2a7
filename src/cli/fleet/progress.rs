//! Runs a task for each executor of a fleet, a limited number at once, with progress on a terminal.

use crate::cli::ask::report::count_with_noun;
use crate::cli::spinner::DelayedSpinner;
use futures_util::stream::{self, StreamExt as _};
use std::collections::BTreeMap;

/// Maximum number of executors at once.
pub const MAX_CONCURRENT_TASKS: usize = 64;

/// Runs the task for each item, at most 64 at once. Returns the results in the order of the items.
/// After a second, stderr shows how many are done, if stderr is a terminal.
pub async fn run_for_each<T, R>(items: Vec<T>, task: impl AsyncFn(T) -> R) -> Vec<R> {
    let task = &task;
    let total = count_with_noun(items.len(), "executor");
    let tasks = items
        .into_iter()
        .enumerate()
        .map(|(index, item)| async move { (index, task(item).await) });

    // With `buffered`, results behind a slow executor would take the places of other executors.
    let mut running = stream::iter(tasks).buffer_unordered(MAX_CONCURRENT_TASKS);
    let mut results = BTreeMap::new();
    let spinner = DelayedSpinner::new("");
    let run_all = async {
        loop {
            spinner.set_message(format!("{} of {total} done", results.len()));
            let Some((index, result)) = running.next().await else {
                break;
            };
            results.insert(index, result);
        }
    };

    spinner.run(run_all).await;
    results.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::{MAX_CONCURRENT_TASKS, run_for_each};
    use std::cell::Cell;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn results_are_in_order_and_tasks_are_limited() {
        let (running, most) = (Cell::new(0), Cell::new(0));
        let task = async |number: u64| {
            running.set(running.get() + 1);
            most.set(most.get().max(running.get()));
            tokio::time::sleep(Duration::from_millis(10_000 - number)).await;
            running.set(running.get() - 1);
            number
        };
        let results = run_for_each((0..200).collect(), task).await;
        assert!(results.into_iter().eq(0..200));
        assert_eq!((running.get(), most.get()), (0, MAX_CONCURRENT_TASKS));
    }
}
