//! Runs a task for each executor of a fleet, a limited number at once, with progress on a terminal.

use crate::cli::ask::report::count_with_noun;
use futures_util::stream::{self, StreamExt as _};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// Maximum number of executors at once.
pub const MAX_CONCURRENT_TASKS: usize = 64;
/// Delay until progress is shown.
const PROGRESS_DELAY: Duration = Duration::from_secs(1);
/// Interval at which the spinner moves.
const TICK_INTERVAL: Duration = Duration::from_millis(100);

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

    // Without a terminal, the spinner stays hidden.
    let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    let style = ProgressStyle::with_template("{spinner} {msg}");
    spinner.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    spinner.set_message(format!("0 of {total} done"));

    let mut results = Vec::new();
    let run_all = async {
        while let Some(result) = running.next().await {
            results.push(result);
            spinner.set_message(format!("{} of {total} done", results.len()));
        }
    };
    let delayed = async {
        tokio::time::sleep(PROGRESS_DELAY).await;
        spinner.set_draw_target(ProgressDrawTarget::stderr());
        spinner.enable_steady_tick(TICK_INTERVAL);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = run_all => {}
        () = delayed => {}
    }

    spinner.finish_and_clear();
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
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
