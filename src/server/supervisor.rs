//! What the service manager is told: that the daemon is ready, what it holds, that it lives, that it
//! reads its configuration again, that it stops. Does nothing where no manager asks. Source: `sd_notify(3)`.

use crate::catalog::{Consistency, Figures, Keeper, Patience, Watching};
use crate::domain::ConfigState;
use sd_notify::NotifyState;
use std::fmt::Write as _;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, interval, sleep_until, timeout};

/// What readiness waits for the first look at the published roots.
const FIRST_LOOK: Duration = Duration::from_secs(5);
/// How often the manager is told what the daemon holds, at most.
const STATUS_PAUSE: Duration = Duration::from_secs(1);

/// Whether a service manager started the daemon.
#[must_use]
pub fn is_present() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Says that the daemon is ready, once every published root has a state, PENDING included.
pub(super) async fn begin(keeper: &Keeper, state: &watch::Receiver<ConfigState>) {
    if !is_present() {
        return;
    }
    let patience = Patience::new(Some(FIRST_LOOK));
    // A root that takes longer is PENDING, which is a state too.
    drop(keeper.view(&keeper.offered(), Consistency::Cached, patience).await);
    tell(&[NotifyState::Ready, NotifyState::Status(&status(&keeper.figures(), &state.borrow()))]);
}

/// Says from then on what the daemon holds, and that it lives. Never ends.
pub(super) async fn serve(keeper: &Keeper, state: watch::Receiver<ConfigState>) {
    if !is_present() {
        return std::future::pending().await;
    }
    let watchdog = async {
        match sd_notify::watchdog_enabled() {
            Some(limit) => feed(keeper, limit).await,
            None => std::future::pending().await,
        }
    };
    tokio::join!(report(keeper, state), watchdog);
}

/// Says that the configuration is read again.
pub(super) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        // By its time the manager knows which of its own demands this is about.
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!(%error, "the service manager could not be told"),
    }
}

/// Says that the configuration was read, for good or ill.
pub(super) fn reloaded(keeper: &Keeper, state: &ConfigState) {
    tell(&[NotifyState::Ready, NotifyState::Status(&status(&keeper.figures(), state))]);
}

/// Ends a reload whose keys need a new process.
pub(super) fn restarting(keys: &[String]) {
    let status = format!("restarting for {}", keys.join(", "));
    tell(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// Says that the daemon stops, and may take so long.
pub(super) fn stopping(drain: Duration) {
    let micros = u32::try_from(drain.as_micros()).unwrap_or(u32::MAX);
    tell(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(micros)]);
}

/// Says what the daemon holds, whenever that changes.
async fn report(keeper: &Keeper, mut state: watch::Receiver<ConfigState>) {
    let mut revisions = keeper.revisions();
    loop {
        let changed = tokio::select! {
            changed = revisions.changed() => changed,
            changed = state.changed() => changed,
        };
        if changed.is_err() {
            // The daemon ends.
            return std::future::pending().await;
        }
        tell(&[NotifyState::Status(&status(&keeper.figures(), &state.borrow_and_update()))]);
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
fn status(figures: &Figures, config: &ConfigState) -> String {
    let unavailable: u64 = figures.unavailable.values().sum();
    let Figures { ready, pending, skills, watching, diagnostics, .. } = figures;
    let roots = ready + pending + unavailable;
    let problems: u64 = diagnostics.values().sum();
    let polling = watching.polling_roots;
    let mut line = format!(
        "{roots} roots ({unavailable} unavailable, {pending} pending, {polling} polled), {skills} \
         skills, {problems} diagnostics"
    );
    // A line has no end but its own, and none of these ever holds one.
    if watching.is_nearly_full() {
        let Watching { used, allowed, .. } = watching;
        let _ = write!(line, "; {used} of {allowed} watches: raise fs.inotify.max_user_watches");
    }
    if !config.needs_restart.is_empty() {
        let _ = write!(line, "; needs a restart: {}", config.needs_restart.join(", "));
    }
    if let Some(refusal) = &config.refusal {
        let _ = write!(line, "; the new config is refused: {}", refusal.first);
    }
    line
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "the service manager could not be told");
    }
}
