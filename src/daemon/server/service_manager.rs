//! Notifies the service manager of readiness, status, the watchdog, reloads and shutdown. Does
//! nothing without a service manager. Source: `sd_notify(3)`.

use crate::daemon::catalog::{
    CatalogStats, CatalogStore, ConsistencyLevel, RootStateCounts, WaitBudget, WatchStats,
};
use crate::daemon::model::ConfigState;
use sd_notify::NotifyState;
use std::fmt::Write as _;
use std::future::pending;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, interval, sleep_until, timeout};

/// Longest wait for the first scans of the published roots before the daemon reports readiness.
const FIRST_SCAN_TIMEOUT: Duration = Duration::from_secs(5);
/// Shortest time between two status messages.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// Whether a service manager started the daemon.
#[must_use]
pub fn has_service_manager() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Reports readiness once every published root has a state. PENDING is a state.
pub async fn notify_ready(store: &CatalogStore, state: &watch::Receiver<ConfigState>) {
    if !has_service_manager() {
        return;
    }

    let budget = WaitBudget::new(Some(FIRST_SCAN_TIMEOUT));
    let published = store.select_published_roots();
    let view = store.view(&published, ConsistencyLevel::Cached, budget);
    // Slower roots are PENDING.
    drop(view.await);
    notify_reloaded(store, &state.borrow());
}

/// Reports readiness with a status line.
pub fn notify_ready_with(status: &str) {
    send_notification(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Sends status messages and watchdog pings. Never returns.
pub async fn run_notifications(store: &CatalogStore, state: watch::Receiver<ConfigState>) {
    if !has_service_manager() {
        return pending().await;
    }
    let watchdog = async {
        match sd_notify::watchdog_enabled() {
            Some(limit) => ping_watchdog(store, limit).await,
            None => pending().await,
        }
    };
    tokio::join!(report_status(store, state), watchdog);
}

/// Reports the start of a reload.
pub fn notify_reloading() {
    match NotifyState::monotonic_usec_now() {
        // The service manager matches the time with its reload request.
        Ok(now) => send_notification(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!(%error, "notifying the service manager failed"),
    }
}

/// Reports the end of a reload that was applied or rejected.
pub fn notify_reloaded(store: &CatalogStore, state: &ConfigState) {
    notify_ready_with(&status_line(&store.stats(), state));
}

/// Reports the end of a reload that needs a new process.
pub fn notify_restarting(keys: &[String]) {
    notify_ready_with(&format!("restarting for {}", keys.join(", ")));
}

/// Reports the shutdown, which may take as long as `drain`.
pub fn notify_stopping(drain: Duration) {
    let micros = u32::try_from(drain.as_micros()).unwrap_or(u32::MAX);
    send_notification(&[
        NotifyState::Stopping,
        NotifyState::ExtendTimeoutUsec(micros),
    ]);
}

/// Sends the status whenever it changes.
async fn report_status(store: &CatalogStore, mut state: watch::Receiver<ConfigState>) {
    let mut revisions = store.subscribe_revisions();
    loop {
        let changed = tokio::select! {
            changed = revisions.changed() => changed,
            changed = state.changed() => changed,
        };
        if changed.is_err() {
            // The senders were dropped, at the end of the daemon.
            return pending().await;
        }
        send_notification(&[NotifyState::Status(&status_line(
            &store.stats(),
            &state.borrow_and_update(),
        ))]);
        sleep_until(Instant::now() + STATUS_INTERVAL).await;
    }
}

/// Pings the watchdog while the runtime and the inotify watcher respond. A scan that hangs in the
/// kernel is reported as `TIMEOUT` of its root, and does not affect the watchdog.
async fn ping_watchdog(store: &CatalogStore, limit: Duration) {
    let pause = limit / 3;
    let mut ticks = interval(pause);
    loop {
        ticks.tick().await;
        if timeout(pause, store.wait_for_watcher()).await.is_ok() {
            send_notification(&[NotifyState::Watchdog]);
        } else {
            tracing::error!("inotify watcher is not responding; watchdog ping suppressed");
        }
    }
}

/// Formats the status line for `systemctl status`.
fn status_line(stats: &CatalogStats, config: &ConfigState) -> String {
    let CatalogStats {
        published,
        selected,
        skills,
        watch: watch_stats,
        diagnostics,
        ..
    } = stats;
    let WatchStats {
        watches_used: used,
        watches_limit: allowed,
        polling_roots: polling,
        ..
    } = watch_stats;
    let problems: u64 = diagnostics.values().sum();

    let mut line = describe_roots(published, "published");
    if selected.total() > 0 {
        let _ = write!(line, ", {}", describe_roots(selected, "selected"));
    }
    let _ = write!(
        line,
        ", {polling} polled, {skills} skills, {problems} diagnostics"
    );

    // The status must be one line; no part contains a line break.
    if watch_stats.is_near_limit() {
        let _ = write!(
            line,
            "; {used} of {allowed} watches: raise fs.inotify.max_user_watches"
        );
    }

    if !config.restart_required.is_empty() {
        let _ = write!(
            line,
            "; needs a restart: {}",
            config.restart_required.join(", ")
        );
    }

    if let Some(rejection) = &config.last_rejection {
        let _ = write!(
            line,
            "; the new config was rejected: {}",
            rejection.first_error
        );
    }
    line
}

/// Describes roots, such as `2 published roots (1 unavailable, 0 pending)`.
fn describe_roots(counts: &RootStateCounts, kind: &str) -> String {
    format!(
        "{} {kind} roots ({} unavailable, {} pending)",
        counts.total(),
        counts.unavailable_count(),
        counts.pending
    )
}

fn send_notification(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "notifying the service manager failed");
    }
}
