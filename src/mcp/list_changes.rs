//! Changes of the lists for one MCP client. A change is reported only if a list differs from the list that
//! the client was given. Only complete revisions are compared, and for a slow client several revisions
//! are one change.

use super::catalog::{ListHashes, McpCatalog, ServedSkill};
use super::feed::{FeedState, SyncState};
use super::limits::MIN_TOOL_LIST_INTERVAL;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Hashes of the lists that a client was given last; `None` for a list that the client never requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GivenLists {
    pub tools: Option<u64>,
    pub resources: Option<u64>,
    pub prompts: Option<u64>,
}

/// Receiver of the changes for one client.
pub struct ListChanges {
    state: watch::Receiver<FeedState>,
    given: watch::Receiver<GivenLists>,
    /// Lists that the client was given, as of the last look at `given`.
    last_given: GivenLists,
    /// Lists that the client was given, or whose change was reported later.
    known: GivenLists,
    /// Last catalog that the client was notified of.
    last_seen: Arc<McpCatalog>,
    /// Earliest time of the next report about the tools.
    next_tools_report: Instant,
}

/// Difference of two revisions.
#[derive(Debug)]
pub struct ListChange {
    /// Whether the tools changed.
    pub tools: bool,
    /// Whether lists of resources changed in names, descriptions or fields.
    pub resources: bool,
    /// Whether lists of prompts changed in names or descriptions.
    pub prompts: bool,
    before: Arc<McpCatalog>,
    after: Arc<McpCatalog>,
}

impl GivenLists {
    /// Replaces the lists that the client never requested by those of a catalog.
    pub fn or_hashes(self, hashes: ListHashes) -> Self {
        Self {
            tools: self.tools.or(Some(hashes.tools)),
            resources: self.resources.or(Some(hashes.resources)),
            prompts: self.prompts.or(Some(hashes.prompts)),
        }
    }
}

impl ListChanges {
    /// Starts at the current revision, for a client that is notified of the lists that it requested.
    pub fn new(state: watch::Receiver<FeedState>, given: watch::Receiver<GivenLists>) -> Self {
        let last_seen = state.borrow().catalog.clone();
        let known = *given.borrow();
        Self {
            state,
            given,
            last_given: known,
            known,
            last_seen,
            next_tools_report: Instant::now(),
        }
    }

    /// Returns the changes for a client that is notified of all lists.
    pub fn of_all_lists(self) -> Self {
        let known = self.known.or_hashes(self.last_seen.hashes());
        Self { known, ..self }
    }

    /// Waits for the next change. Returns `None` after the last change. Cancel-safe.
    pub async fn next(&mut self) -> Option<ListChange> {
        loop {
            self.learn_given_lists();
            let state = self.state.borrow_and_update().clone();
            let is_synced = state.sync == SyncState::Synced;
            if is_synced && let Some(change) = self.take_change(state.catalog.clone()) {
                return Some(change);
            }

            let late_tools = is_synced && differs(self.known.tools, state.catalog.hashes().tools);
            tokio::select! {
                changed = self.state.changed() => changed.ok()?,
                changed = self.given.changed() => changed.ok()?,
                // Further changes until then are part of the same report.
                () = sleep_until(self.next_tools_report), if late_tools => {}
            }
        }
    }

    /// Takes over the lists that the client requested since the last look.
    fn learn_given_lists(&mut self) {
        let given = *self.given.borrow_and_update();
        let last = std::mem::replace(&mut self.last_given, given);
        if given.tools != last.tools {
            self.known.tools = given.tools;
        }
        if given.resources != last.resources {
            self.known.resources = given.resources;
        }
        if given.prompts != last.prompts {
            self.known.prompts = given.prompts;
        }
    }

    /// Returns the difference between a catalog and what the client knows, if there is one.
    fn take_change(&mut self, after: Arc<McpCatalog>) -> Option<ListChange> {
        let hashes = after.hashes();
        let are_tools_due = Instant::now() >= self.next_tools_report;
        let change = ListChange {
            tools: are_tools_due && differs(self.known.tools, hashes.tools),
            resources: differs(self.known.resources, hashes.resources),
            prompts: differs(self.known.prompts, hashes.prompts),
            before: std::mem::replace(&mut self.last_seen, after.clone()),
            after,
        };

        if change.tools {
            self.known.tools = Some(hashes.tools);
            self.next_tools_report = Instant::now() + MIN_TOOL_LIST_INTERVAL;
        }
        if change.resources {
            self.known.resources = Some(hashes.resources);
        }
        if change.prompts {
            self.known.prompts = Some(hashes.prompts);
        }
        let has_new_catalog = !Arc::ptr_eq(&change.before, &change.after);
        (change.tools || change.resources || change.prompts || has_new_catalog).then_some(change)
    }
}

impl ListChange {
    /// Whether the SKILL.md at this URI changed, appeared or disappeared.
    pub fn resource_updated(&self, uri: &str) -> bool {
        let before = self.before.skill_by_main_uri(uri);
        let after = self.after.skill_by_main_uri(uri);
        before.map(ServedSkill::file_version) != after.map(ServedSkill::file_version)
    }
}

/// Whether a list that the client knows has another hash now.
fn differs(known: Option<u64>, now: u64) -> bool {
    known.is_some_and(|known| known != now)
}

#[cfg(test)]
mod tests {
    use super::{FeedState, GivenLists, ListChange, ListChanges, SyncState};
    use crate::mcp::catalog::McpCatalog;
    use crate::mcp::catalog::tests::{catalog_of, skill};
    use caproot_core::proto::caproot::v1::Skill;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::sync::watch;
    use tokio::time::timeout;

    const URI: &str = "skill://r/a/SKILL.md";

    fn state(skills: Vec<Skill>) -> FeedState {
        FeedState {
            daemon: None,
            catalog: Arc::new(catalog_of(skills)),
            sync: SyncState::Synced,
        }
    }

    async fn no_change(changes: &mut ListChanges) {
        let next = timeout(Duration::ZERO, changes.next()).await;
        assert!(next.is_err(), "{next:?}");
    }

    fn lists(change: &ListChange) -> (bool, bool) {
        (change.resources, change.prompts)
    }

    #[tokio::test]
    async fn each_client_receives_its_changes() {
        let (sender, receiver) = watch::channel(state(vec![skill("skill://r/a", "a")]));
        let (_given, given) = watch::channel(GivenLists::default());
        let mut all = ListChanges::new(receiver.clone(), given.clone()).of_all_lists();
        let mut requested = ListChanges::new(receiver, given);
        no_change(&mut all).await;

        let edited = Skill {
            digest: "sha256:2".into(),
            ..skill("skill://r/a", "a")
        };
        sender.send_replace(state(vec![edited.clone()]));
        for changes in [&mut all, &mut requested] {
            let change = changes.next().await.expect("a change");
            assert_eq!(lists(&change), (false, false));
            assert!(change.resource_updated(URI));
            assert!(!change.resource_updated("skill://r/b/SKILL.md"));
        }

        sender.send_replace(FeedState {
            sync: SyncState::Lost("x".into()),
            ..state(vec![])
        });
        no_change(&mut all).await;
        sender.send_replace(state(vec![edited, skill("skill://r/b", "b")]));
        let change = all.next().await.expect("a change");
        assert_eq!(lists(&change), (true, false));
        assert!(change.resource_updated("skill://r/b/SKILL.md") && !change.resource_updated(URI));
        let change = requested.next().await.expect("a change");
        assert_eq!(lists(&change), (false, false), "it requested no list");

        drop(sender);
        assert!(all.next().await.is_none());
    }

    /// A client that was answered before the daemon runs has another list than the daemon's. A client that
    /// was answered later has the daemon's.
    #[tokio::test(start_paused = true)]
    async fn only_a_list_that_differs_from_the_given_one_is_reported() {
        let (sender, receiver) = watch::channel(FeedState::default());
        let (given, given_receiver) = watch::channel(GivenLists::default());
        let mut changes = ListChanges::new(receiver, given_receiver);
        let empty = McpCatalog::default().hashes();
        let full = state(vec![skill("skill://r/a", "a")]);
        let now = full.catalog.hashes();

        given.send_modify(|given| given.resources = Some(empty.resources));
        sender.send_replace(full.clone());
        let change = changes.next().await.expect("a change");
        assert_eq!(lists(&change), (true, false));
        no_change(&mut changes).await;

        given.send_modify(|given| given.resources = Some(now.resources));
        no_change(&mut changes).await;
        // A list of the past, whose answer was slower than the change.
        given.send_modify(|given| given.resources = Some(empty.resources));
        assert!(changes.next().await.expect("a change").resources);

        // The tools are reported at most once in an interval.
        for hash in [1, 2] {
            given.send_modify(|given| given.tools = Some(hash));
            assert!(changes.next().await.expect("a change").tools);
            no_change(&mut changes).await;
        }
    }
}
