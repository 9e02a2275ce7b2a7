//! Fifty clients of `WatchSkills` with four behaviours, across restarts of the daemon. `Replica`
//! checks each event. Each replica is compared with lists while the tree changes and whenever it
//! rests.

use std::sync::Arc;
use std::time::Duration;

use caproot_core::proto::caproot::v1::{
    Consistency, ListSkillsRequest, ListSkillsResponse, ResetReason, WatchSkillsRequest,
};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout_at};
use tonic::Status;

use super::lists::list_all_pages;
use super::shared_state::{DaemonState, Phase, SharedState, assert_skill_of_its_root};
use crate::harness::replica::Replica;
use crate::harness::rng::Rng;
use crate::harness::watch_harness::watch_request;
use crate::harness::{Daemon, HANG_TIMEOUT};

/// Number of concurrent streams.
pub(super) const STREAMS: usize = 50;

/// Reading behaviour of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadBehavior {
    /// Reads without pauses.
    Prompt,
    /// Pauses after each state.
    Slow,
    /// Disconnects, sometimes in the middle of a state, and comes back with its token or without
    /// one.
    Returning,
    /// Reads only in the complete comparisons at the beginning and the end of the measurement.
    Never,
}

/// Reason why a client left a stream that is still open.
enum LeaveReason {
    /// Another daemon process has started.
    NewDaemon,
    /// The client chose to leave.
    Chosen,
    /// The test is over.
    TestEnd,
}

/// Client with a stream.
pub(super) struct WatchClient {
    shared: Arc<SharedState>,
    number: usize,
    request_index: usize,
    behavior: ReadBehavior,
    dice: Rng,
    replica: Replica,
    daemon: Daemon,
    /// Number of the daemon process behind `daemon`.
    process_number: u64,
    /// Number of the daemon process behind the replica; 0 if the replica is empty.
    replica_process: u64,
    /// Whether nothing has been read of the stream.
    is_unread: bool,
    phase: watch::Receiver<Phase>,
    daemon_state: watch::Receiver<DaemonState>,
    /// Channel for the client's number once its replica agrees with the list.
    report_sender: mpsc::Sender<usize>,
}

impl WatchClient {
    /// Connects the client with this number.
    pub(super) async fn new(
        shared: Arc<SharedState>,
        number: usize,
        seed: u64,
        report_sender: mpsc::Sender<usize>,
    ) -> Self {
        let behavior = match number {
            0..5 => ReadBehavior::Never,
            5..15 => ReadBehavior::Slow,
            15..25 => ReadBehavior::Returning,
            _ => ReadBehavior::Prompt,
        };
        let request_index = number * 3 % shared.requests.len();
        let (process_number, daemon) = shared.connect(0, behavior == ReadBehavior::Never).await;
        let request = WatchSkillsRequest {
            product: shared.requests[request_index].product.clone(),
            view: shared.requests[request_index].view,
            // Bookmarks end the wait for a revision if no other event arrives.
            bookmark_interval: Some(prost_types::Duration {
                seconds: 1,
                nanos: 0,
            }),
            ..watch_request(shared.roots(request_index).to_vec())
        };
        let replica = Replica::new(request);
        let (replica_process, is_unread) = (0, true);
        let (phase, daemon_state) = (shared.phase.subscribe(), shared.daemon_state.subscribe());
        let dice = Rng::new(seed);
        Self {
            shared,
            number,
            request_index,
            behavior,
            dice,
            replica,
            daemon,
            process_number,
            replica_process,
            is_unread,
            phase,
            daemon_state,
            report_sender,
        }
    }

    /// Follows the stream across all daemon processes.
    pub(super) async fn run(mut self) {
        loop {
            self.is_unread = true;
            let leave_reason = match self.replica.try_resume(&self.daemon).await {
                Ok(()) => self.follow().await,
                Err(status) => Err(Some(status)),
            };
            let after = match leave_reason {
                Ok(LeaveReason::TestEnd) => return,
                Ok(LeaveReason::NewDaemon) => self.process_number,
                Ok(LeaveReason::Chosen) => {
                    self.shared.counters.add("stream: left and resumed", 1);
                    match self.dice.below(3) {
                        // The client resumes on the same connection.
                        0 if !self.shared.is_over(self.process_number) => continue,
                        1 => sleep(Duration::from_millis(self.dice.below(3_000))).await,
                        _ => {}
                    }
                    self.process_number - 1
                }
                Err(status) => {
                    let is_over = self.shared.is_over(self.process_number);
                    assert!(is_over, "{:?}: the stream ended: {status:?}", self.behavior);
                    if let Some(status) = status {
                        self.shared
                            .assert_expected_error(self.process_number, &status, &[]);
                    }
                    self.process_number
                }
            };
            let is_narrow = self.behavior == ReadBehavior::Never;
            (self.process_number, self.daemon) = self.shared.connect(after, is_narrow).await;
        }
    }

    /// Reads until the stream ends or the client leaves. A replica is always complete at the end.
    async fn follow(&mut self) -> Result<LeaveReason, Option<Status>> {
        // One in three clients may leave in the middle of a state.
        let (leave_at, may_leave_mid_state) = (self.dice.below(4_000), self.dice.one_in(3));
        let leave_at = Instant::now() + Duration::from_millis(50 + leave_at);
        loop {
            if self.behavior == ReadBehavior::Never {
                let (phase, daemon_state, process_number) =
                    (&mut self.phase, &mut self.daemon_state, self.process_number);
                tokio::select! {
                    changed = phase.changed() => changed.expect("the shared state exists"),
                    other = daemon_state.wait_for(|p| p.process_number > process_number) => {
                        drop(other.expect("the shared state exists"));
                        return Ok(LeaveReason::NewDaemon);
                    }
                }
                // The check below must see this change.
                phase.mark_changed();
            }
            if self.phase.has_changed().expect("the shared state exists") {
                let phase = self.phase.borrow_and_update().clone();
                match phase {
                    Phase::Busy => {}
                    Phase::Calm(lists, all) => {
                        if all || self.behavior != ReadBehavior::Never {
                            let equal = self.read_until_equal(&lists[self.request_index]).await;
                            // A stream of the last daemon process may end only now. The client
                            // compares again on its next stream.
                            equal.inspect_err(|_| self.phase.mark_changed())?;
                        }
                        self.report_sender
                            .send(self.number)
                            .await
                            .expect("a receiver");
                    }
                    Phase::End => return Ok(LeaveReason::TestEnd),
                }
            }
            // No client leaves while the tree rests, because connections are counted then.
            let may_leave = matches!(*self.phase.borrow(), Phase::Busy);
            match self.behavior {
                ReadBehavior::Never => continue,
                ReadBehavior::Prompt | ReadBehavior::Slow => self.read_state().await?,
                ReadBehavior::Returning if may_leave_mid_state && may_leave => {
                    let Ok(step) = timeout_at(leave_at, self.read_state()).await else {
                        // The replica is discarded, because the client may have left in the middle
                        // of a state.
                        (self.replica, self.replica_process) = (self.replica.forget(), 0);
                        return Ok(LeaveReason::Chosen);
                    };
                    step?;
                }
                ReadBehavior::Returning => {
                    self.read_state().await?;
                    if Instant::now() > leave_at && may_leave {
                        self.replica.close_stream();
                        return Ok(LeaveReason::Chosen);
                    }
                }
            }
            match self.behavior {
                ReadBehavior::Slow => sleep(Duration::from_millis(self.dice.below(1_000))).await,
                ReadBehavior::Prompt if self.dice.one_in(150) => self.compare_with_list().await?,
                _ => {}
            }
        }
    }

    /// Reads and checks a state.
    async fn read_state(&mut self) -> Result<(), Option<Status>> {
        let step = self.replica.try_next_batch().await?;
        let counters = &self.shared.counters;
        if let Some(why) = step.reset {
            let is_right = match why {
                ResetReason::Initial => self.is_unread && self.replica_process == 0,
                ResetReason::EpochChanged => {
                    self.is_unread && (1..self.process_number).contains(&self.replica_process)
                }
                ResetReason::Compacted => {
                    self.is_unread && self.replica_process == self.process_number
                }
                ResetReason::Resync => true,
                ResetReason::SelectionChanged | ResetReason::Unspecified => false,
            };
            assert!(
                is_right,
                "{why:?}, replica of process {} in {}",
                self.replica_process, self.process_number
            );
            counters.add(&format!("stream: {}", why.as_str_name()), 1);
        } else {
            assert_eq!(
                self.replica_process, self.process_number,
                "a stream of another process starts with a reset"
            );
        }
        // A package that came and went in one step is not in the replica.
        for skill in step
            .upserted
            .iter()
            .filter_map(|package| self.replica.skills.get(package))
        {
            assert_skill_of_its_root(skill);
        }
        counters.add(
            if step.is_bookmark {
                "stream: bookmarks"
            } else {
                "stream: states"
            },
            1,
        );
        counters.add("stream: skills received", step.upserted.len());
        counters.add("stream: removals received", step.removed.len());
        (self.replica_process, self.is_unread) = (self.process_number, false);
        if !step.is_bookmark {
            let skills = self.replica.skills.values();
            self.shared.record_catalog(
                self.process_number,
                self.request_index,
                self.replica.revision,
                skills,
            );
        }
        Ok(())
    }

    /// Calls `ListSkills` while the tree changes, and reads up to its revision. A stream that
    /// merged states may skip the revision.
    async fn compare_with_list(&mut self) -> Result<(), Option<Status>> {
        let consistency = Consistency::Fresh.into();
        let request = ListSkillsRequest {
            consistency,
            ..self.shared.requests[self.request_index].clone()
        };
        let list = match list_all_pages(&self.daemon, &request).await {
            Ok(list) => list,
            Err(status) => {
                self.shared.assert_expected_error(
                    self.process_number,
                    &status,
                    &["CATALOG_CHANGED"],
                );
                return Ok(());
            }
        };
        assert_eq!(list.epoch, self.replica.epoch, "one epoch for each process");
        self.shared.record_catalog(
            self.process_number,
            self.request_index,
            list.revision,
            list.skills.iter(),
        );
        while self.replica.revision < list.revision && !self.replica.matches(&list) {
            self.read_state().await?;
        }
        let is_comparable = self.replica.revision <= list.revision;
        let agrees = !is_comparable || self.replica.matches(&list);
        assert!(agrees, "the replica differs: {}", self.difference(&list));
        let what = if is_comparable {
            "check: equal to a list"
        } else {
            "check: lists passed by"
        };
        self.shared.counters.add(what, 1);
        Ok(())
    }

    /// Reads until the replica agrees with a list of the resting tree.
    async fn read_until_equal(&mut self, list: &ListSkillsResponse) -> Result<(), Option<Status>> {
        let end = Instant::now() + HANG_TIMEOUT * 2;
        // An older state may agree by chance, so the client reads up to the revision in any case.
        let behind = |client: &Self| {
            client.replica_process != client.process_number
                || client.replica.revision < list.revision
        };
        while behind(self) || !self.replica.matches(list) {
            assert!(
                Instant::now() < end,
                "the replica differs: {}",
                self.difference(list)
            );
            self.read_state().await?;
        }
        self.replica.assert_plugins_match(&self.daemon).await;
        self.shared.counters.add("check: equal in a calm", 1);
        Ok(())
    }

    /// Describes the difference between the replica and a list.
    fn difference(&self, list: &ListSkillsResponse) -> String {
        let Self {
            replica,
            number,
            behavior,
            process_number,
            ..
        } = self;
        let mut differing_roots: Vec<_> = list
            .roots
            .iter()
            .filter(|r| replica.roots.get(&r.id) != Some(*r))
            .collect();
        differing_roots.truncate(1);
        let other = list
            .skills
            .iter()
            .filter(|s| replica.skills.get(&s.package) != Some(*s));
        let other: Vec<_> = other.map(|s| (s, replica.skills.get(&s.package))).collect();
        let skills = (replica.skills.len(), list.skills.len());
        format!(
            "client {number} ({behavior:?}, process {process_number}) holds revision {}, the list is {}; skills {skills:?}; \
             {} differ, such as {:?}; roots {differing_roots:?}",
            replica.revision,
            list.revision,
            other.len(),
            other.first(),
        )
    }
}
