//! Spinner that a terminal shows if a command takes longer than a second.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// Delay until the progress is shown.
const PROGRESS_DELAY: Duration = Duration::from_secs(1);
/// Interval at which the spinner moves.
const TICK_INTERVAL: Duration = Duration::from_millis(100);

/// Spinner with a message on stderr. Without a terminal, the spinner stays hidden.
pub struct DelayedSpinner(ProgressBar);

impl DelayedSpinner {
    pub fn new(message: &'static str) -> Self {
        let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("{spinner} {msg}");
        spinner.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        spinner.set_message(message);
        Self(spinner)
    }

    pub fn set_message(&self, message: String) {
        self.0.set_message(message);
    }

    /// Runs work, and shows the spinner meanwhile.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let delayed = async {
            tokio::time::sleep(PROGRESS_DELAY).await;
            self.0.set_draw_target(ProgressDrawTarget::stderr());
            self.0.enable_steady_tick(TICK_INTERVAL);
            std::future::pending().await
        };
        let outcome = tokio::select! {
            outcome = work => outcome,
            never = delayed => never,
        };

        self.0.finish_and_clear();
        outcome
    }
}
