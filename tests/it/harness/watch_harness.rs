//! Fixture with one tree, one daemon and one client that follows the tree, for tests of changes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use caproot::daemon::catalog::WatchTiming;
use caproot_core::proto::caproot::v1::{
    Consistency, ListSkillsRequest, ListSkillsResponse, SelectedCapabilityRoot, WatchSkillsRequest,
    WatchStatus,
};

use crate::harness::fixture::Fixture;
use crate::harness::replica::{EventBatch, Replica};
use crate::harness::{Daemon, Setup, list_request, selected};

/// Tree whose directory `r` is watched. All of the tree is allowed.
pub(crate) struct WatchHarness {
    /// Tree that the test changes.
    pub fixture: Fixture,
    /// Daemon that serves the tree.
    pub daemon: Daemon,
    /// Client that holds the first state.
    pub replica: Replica,
}

impl WatchHarness {
    /// Starts with a tree and the default timing.
    pub(crate) async fn new(tree: &str) -> Self {
        Self::with_timing(tree, WatchTiming::default()).await
    }

    /// Starts with a tree and another timing.
    pub(crate) async fn with_timing(tree: &str, timing: WatchTiming) -> Self {
        let fixture = Fixture::new(tree);
        let root = selected("r", fixture.path("r"));
        Self::with_roots(fixture, vec![root], timing).await
    }

    /// Starts with a tree in which another directory is the root `r`, and the fast timing.
    pub(crate) async fn with_root(tree: &str, dir: &str) -> Self {
        let fixture = Fixture::new(tree);
        let root = selected("r", fixture.path(dir));
        Self::with_roots(fixture, vec![root], fast_timing()).await
    }

    /// Starts with a fixture, other roots and another timing.
    pub(crate) async fn with_roots(
        fixture: Fixture,
        roots: Vec<SelectedCapabilityRoot>,
        timing: WatchTiming,
    ) -> Self {
        let setup = Setup {
            timing,
            ..Setup::allowing([fixture.top().to_owned()])
        };
        let daemon = Daemon::start(setup).await;
        let replica = Replica::synced(&daemon, watch_request(roots)).await;
        Self {
            fixture,
            daemon,
            replica,
        }
    }

    /// Returns the next change of the stream.
    pub(crate) async fn next_change(&mut self) -> EventBatch {
        self.replica.next_change().await
    }

    /// Reads changes while a condition holds.
    pub(crate) async fn wait_while(&mut self, condition: impl Fn(&Self) -> bool) {
        while condition(self) {
            self.next_change().await;
        }
    }

    /// Returns a fresh list of the root `r`.
    pub(crate) async fn fresh_list(&self) -> ListSkillsResponse {
        fresh_list(&self.daemon, &[selected("r", self.fixture.path("r"))]).await
    }

    /// Reads the stream until the client holds the state of a fresh list, then stops the daemon.
    pub(crate) async fn finish(mut self) {
        self.replica.catch_up(&self.daemon).await;
        self.daemon.stop().await;
    }
}

/// Returns a fresh list of these roots.
pub(crate) async fn fresh_list(
    daemon: &Daemon,
    roots: &[SelectedCapabilityRoot],
) -> ListSkillsResponse {
    let consistency = Consistency::Fresh.into();
    let request = ListSkillsRequest {
        consistency,
        ..list_request(roots)
    };
    daemon.try_list(request).await.expect("a fresh list")
}

/// Returns how the daemon watches for changes.
pub(crate) async fn watch_status(daemon: &Daemon) -> WatchStatus {
    daemon.executor().await.watch.expect("a watch status")
}

/// Timing with which the daemon soon finds changes that cause no event.
pub(crate) fn fast_timing() -> WatchTiming {
    WatchTiming {
        recheck_interval: Duration::from_millis(50),
        poll_interval: Duration::from_millis(100),
        ..WatchTiming::default()
    }
}

/// Text of a SKILL.md.
pub(crate) fn skill_text(name: &str, description: &str) -> String {
    format!("---\nname: {name}\ndescription: {description}\n---\n")
}

/// Request for a new stream.
pub(crate) fn watch_request(roots: Vec<SelectedCapabilityRoot>) -> WatchSkillsRequest {
    WatchSkillsRequest {
        selected_capability_roots: roots,
        ..WatchSkillsRequest::default()
    }
}

/// Changes the target of a link in one step, as deployments do.
pub(crate) fn retarget(link: &Path, target: &str) {
    let temporary = link.with_file_name("new-link");
    symlink(target, &temporary).expect("a link next to it");
    fs::rename(&temporary, link).expect("rename over it");
}

/// Thread that repeats an action with a counter until the value is dropped.
pub(crate) struct BusyThread(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl BusyThread {
    /// Starts the thread.
    pub(crate) fn new(work: impl Fn(u64) + Send + 'static) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let is_done = done.clone();
        let thread = thread::spawn(move || {
            let mut turn = 0;
            while !is_done.load(Ordering::Relaxed) {
                work(turn);
                turn += 1;
            }
        });
        Self(done, Some(thread))
    }
}

impl Drop for BusyThread {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        let ended = self.1.take().expect("dropped once").join();
        assert!(
            ended.is_ok() || thread::panicking(),
            "the thread did not panic"
        );
    }
}
