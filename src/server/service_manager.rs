//! What the service manager is told: that the daemon is ready, what it holds, that it lives, that it
//! reads its configuration again, that it stops. Does nothing where no manager asks. Source: `sd_notify(3)`.

use crate::catalog::{CatalogStats, CatalogStore, ConsistencyLevel, WaitBudget, WatchStats};
use crate::domain::ConfigState;
use sd_notify::NotifyState;
use std::fmt::Write as _;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, interval, sleep_until, timeout};

/// What readiness waits for the first look at the published roots.
const FIRST_SCAN_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the manager is told what the daemon holds, at most.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// Whether a service manager started the daemon.
#[must_use]
pub fn has_service_manager() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Says that the daemon is ready, once every published root has a state, PENDING included.
pub(super) async fn notify_ready(keeper: &CatalogStore, state: &watch::Receiver<ConfigState>) {
    if !has_service_manager() {
        return;
    }
    let patience = WaitBudget::new(Some(FIRST_SCAN_TIMEOUT));
    // A root that takes longer is PENDING, which is a state too.
    drop(keeper.view(&keeper.select_published_roots(), ConsistencyLevel::Cached, patience).await);
    send_notification(&[
        NotifyState::Ready,
        NotifyState::Status(&status_line(&keeper.stats(), &state.borrow())),
    ]);
}

/// Says from then on what the daemon holds, and that it lives. Never ends.
pub(super) async fn run_notifications(keeper: &CatalogStore, state: watch::Receiver<ConfigState>) {
    if !has_service_manager() {
        return std::future::pending().await;
    }
    let watchdog = async {
        match sd_notify::watchdog_enabled() {
            Some(limit) => ping_watchdog(keeper, limit).await,
            None => std::future::pending().await,
        }
    };
    tokio::join!(report_status(keeper, state), watchdog);
}

/// Says that the configuration is read again.
pub(super) fn notify_reloading() {
    match NotifyState::monotonic_usec_now() {
        // By its time the manager knows which of its own demands this is about.
        Ok(now) => send_notification(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!(%error, "the service manager could not be told"),
    }
}

/// Says that the configuration was read, for good or ill.
pub(super) fn notify_reloaded(keeper: &CatalogStore, state: &ConfigState) {
    send_notification(&[
        NotifyState::Ready,
        NotifyState::Status(&status_line(&keeper.stats(), state)),
    ]);
}

/// Ends a reload whose keys need a new process.
pub(super) fn notify_restarting(keys: &[String]) {
    let status = format!("restarting for {}", keys.join(", "));
    send_notification(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// Says that the daemon stops, and may take so long.
pub(super) fn notify_stopping(drain: Duration) {
    let micros = u32::try_from(drain.as_micros()).unwrap_or(u32::MAX);
    send_notification(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(micros)]);
}

/// Says what the daemon holds, whenever that changes.
async fn report_status(keeper: &CatalogStore, mut state: watch::Receiver<ConfigState>) {
    let mut revisions = keeper.subscribe_revisions();
    loop {
        let changed = tokio::select! {
            changed = revisions.changed() => changed,
            changed = state.changed() => changed,
        };
        if changed.is_err() {
            // The daemon ends.
            return std::future::pending().await;
        }
        send_notification(&[NotifyState::Status(&status_line(
            &keeper.stats(),
            &state.borrow_and_update(),
        ))]);
        sleep_until(Instant::now() + STATUS_INTERVAL).await;
    }
}

/// Feeds the watchdog only while the runtime runs this and the watcher tells events in time. A search
/// that is stuck in the kernel is its root's `TIMEOUT`, and does not count here.
async fn ping_watchdog(keeper: &CatalogStore, limit: Duration) {
    let pause = limit / 3;
    let mut ticks = interval(pause);
    loop {
        ticks.tick().await;
        if timeout(pause, keeper.wait_for_watcher()).await.is_ok() {
            send_notification(&[NotifyState::Watchdog]);
        } else {
            tracing::error!("the watcher tells nothing; the watchdog goes hungry");
        }
    }
}

/// One line for `systemctl status`.
fn status_line(figures: &CatalogStats, config: &ConfigState) -> String {
    let unavailable: u64 = figures.unavailable.values().sum();
    let CatalogStats { ready, pending, skills, watch: watching, diagnostics, .. } = figures;
    let roots = ready + pending + unavailable;
    let problems: u64 = diagnostics.values().sum();
    let polling = watching.polling_roots;
    let mut line = format!(
        "{roots} roots ({unavailable} unavailable, {pending} pending, {polling} polled), {skills} \
         skills, {problems} diagnostics"
    );
    // A line has no end but its own, and none of these ever holds one.
    if watching.is_near_limit() {
        let WatchStats { watches_used: used, watches_limit: allowed, .. } = watching;
        let _ = write!(line, "; {used} of {allowed} watches: raise fs.inotify.max_user_watches");
    }
    if !config.restart_required.is_empty() {
        let _ = write!(line, "; needs a restart: {}", config.restart_required.join(", "));
    }
    if let Some(refusal) = &config.last_rejection {
        let _ = write!(line, "; the new config is refused: {}", refusal.first_error);
    }
    line
}

fn send_notification(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "the service manager could not be told");
    }
}
