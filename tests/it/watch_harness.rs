//! One tree, one daemon and one client that follows it: what tests of changes begin with.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use caproot::catalog::WatchTiming;
use caproot::proto::caproot::v1::{
    Consistency, GetExecutorRequest, ListSkillsRequest, ListSkillsResponse, SelectedCapabilityRoot,
    WatchSkillsRequest, WatchStatus,
};

use crate::fixture::Fixture;
use crate::harness::{Daemon, Setup, in_time, list_request, selected};
use crate::replica::{EventBatch, Replica};

/// A tree of which `r` is watched; all of it is allowed.
pub(crate) struct WatchHarness {
    /// The tree.
    pub fixture: Fixture,
    /// The daemon.
    pub daemon: Daemon,
    /// A client that holds the first state.
    pub replica: Replica,
}

impl WatchHarness {
    /// Starts with this tree.
    pub(crate) async fn new(tree: &str) -> Self {
        Self::with_timing(tree, WatchTiming::default()).await
    }

    /// The same with other times.
    pub(crate) async fn with_timing(tree: &str, timing: WatchTiming) -> Self {
        let fixture = Fixture::new(tree);
        let root = selected("r", fixture.path("r"));
        Self::with_roots(fixture, vec![root], timing).await
    }

    /// The same with other roots.
    pub(crate) async fn with_roots(
        fixture: Fixture,
        roots: Vec<SelectedCapabilityRoot>,
        timing: WatchTiming,
    ) -> Self {
        let setup = Setup { timing, ..Setup::allowing([fixture.top().to_owned()]) };
        let daemon = Daemon::start(setup).await;
        let mut replica = Replica::open(&daemon, watch_request(roots)).await;
        replica.next_batch().await;
        Self { fixture, daemon, replica }
    }

    /// The next change.
    pub(crate) async fn next_change(&mut self) -> EventBatch {
        self.replica.next_change().await
    }

    /// A fresh list of the root `r`.
    pub(crate) async fn fresh_list(&self) -> ListSkillsResponse {
        fresh_list(&self.daemon, &[selected("r", self.fixture.path("r"))]).await
    }

    /// Goes on until the client holds what a fresh list says, then stops the daemon.
    pub(crate) async fn finish(mut self) {
        self.replica.catch_up(&self.daemon).await;
        self.daemon.stop().await;
    }
}

/// A fresh list of these roots.
pub(crate) async fn fresh_list(daemon: &Daemon, roots: &[SelectedCapabilityRoot]) -> ListSkillsResponse {
    let consistency = Consistency::Fresh.into();
    let request = ListSkillsRequest { consistency, ..list_request(roots) };
    daemon.try_list(request).await.expect("a fresh list")
}

/// How the daemon says that it notices changes.
pub(crate) async fn watch_status(daemon: &Daemon) -> WatchStatus {
    let executor = in_time(daemon.client.clone().get_executor(GetExecutorRequest {})).await;
    executor.expect("GetExecutor").into_inner().watch.expect("a watch status")
}

/// Times at which what no event tells is found soon.
pub(crate) fn fast_timing() -> WatchTiming {
    WatchTiming {
        recheck_interval: Duration::from_millis(50),
        poll_interval: Duration::from_millis(100),
        ..WatchTiming::default()
    }
}

/// The text of a SKILL.md.
pub(crate) fn skill_text(name: &str, says: &str) -> String {
    format!("---\nname: {name}\ndescription: {says}\n---\n")
}

/// A request for a stream that begins anew.
pub(crate) fn watch_request(roots: Vec<SelectedCapabilityRoot>) -> WatchSkillsRequest {
    WatchSkillsRequest { selected_capability_roots: roots, ..WatchSkillsRequest::default() }
}

/// Makes a link lead elsewhere in one step, as deployments do.
pub(crate) fn retarget(link: &Path, target: &str) {
    let fresh = link.with_file_name("new-link");
    symlink(target, &fresh).expect("a link beside it");
    fs::rename(&fresh, link).expect("rename over it");
}

/// A thread that does something again and again, with a count, until this is dropped.
pub(crate) struct BusyThread(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl BusyThread {
    /// Begins.
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
        assert!(ended.is_ok() || thread::panicking(), "the thread did its work");
    }
}
