//! What the service manager is told: that the daemon is ready, what it holds, that it lives, that it
//! stops. Does nothing where no manager asks. Source: `sd_notify(3)`.

use crate::keeper::{Consistency, Figures, Keeper, Patience};
use sd_notify::NotifyState;
use std::time::Duration;
use tokio::time::{Instant, interval, sleep_until, timeout};

/// What readiness waits for the first look at the published roots.
const FIRST_LOOK: Duration = Duration::from_secs(5);
/// How often the manager is told what the daemon holds, at most.
const STATUS_PAUSE: Duration = Duration::from_secs(1);

/// Says that the daemon is ready, once every published root has a state, PENDING included; from then
/// on what it holds, and that it lives. Never ends.
pub(super) async fn serve(keeper: &Keeper) {
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        return std::future::pending().await;
    }
    let patience = Patience::new(Some(FIRST_LOOK));
    // A root that takes longer is PENDING, which is a state too.
    drop(keeper.view(&keeper.offered(), Consistency::Cached, patience).await);
    tell(&[NotifyState::Ready, NotifyState::Status(&status(&keeper.figures()))]);
    let watchdog = async {
        match sd_notify::watchdog_enabled() {
            Some(limit) => feed(keeper, limit).await,
            None => std::future::pending().await,
        }
    };
    tokio::join!(report(keeper), watchdog);
}

/// Says that the daemon stops, and may take so long.
pub(super) fn stopping(drain: Duration) {
    let micros = u32::try_from(drain.as_micros()).unwrap_or(u32::MAX);
    tell(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(micros)]);
}

/// Says what the daemon holds, whenever that changes.
async fn report(keeper: &Keeper) {
    let mut revisions = keeper.revisions();
    // Ends with the daemon.
    while revisions.changed().await.is_ok() {
        tell(&[NotifyState::Status(&status(&keeper.figures()))]);
        sleep_until(Instant::now() + STATUS_PAUSE).await;
    }
}

/// Feeds the watchdog only while the runtime runs this and the watcher tells events in time. A search
/// that is stuck in the kernel is its root's `TIMEOUT`, and does not count here.
async fn feed(keeper: &Keeper, limit: Duration) {
    let pause = limit / 3;
    let mut ticks = interval(pause);
    loop {
        ticks.tick().await;
        if timeout(pause, keeper.is_watching()).await.is_ok() {
            tell(&[NotifyState::Watchdog]);
        } else {
            tracing::error!("the watcher tells nothing; the watchdog goes hungry");
        }
    }
}

/// One line for `systemctl status`.
fn status(figures: &Figures) -> String {
    let unavailable: u64 = figures.unavailable.values().sum();
    let Figures { ready, pending, skills, watching, diagnostics, .. } = figures;
    let roots = ready + pending + unavailable;
    let problems: u64 = diagnostics.values().sum();
    let polling = watching.polling_roots;
    format!(
        "{roots} roots ({unavailable} unavailable, {pending} pending, {polling} polled), {skills} \
         skills, {problems} diagnostics"
    )
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "the service manager could not be told");
    }
}
