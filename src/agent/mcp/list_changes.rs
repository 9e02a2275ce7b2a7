//! Changes of the lists for one MCP client. A change is reported only if a list differs from the list that
//! the client was given. Only complete revisions are compared, and for a slow client several revisions
//! are one change.

use super::connection::{ServedState, SyncState};
use super::limits::MIN_TOOL_LIST_INTERVAL;
use super::view::{ServedSkill, ServedView};
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// List whose changes a client is notified of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostList {
    Tools,
    /// Resources, and the list of skills.
    Resources,
    Prompts,
}

/// Hashes of the lists that a client was given last, by list; `None` for a list that the client never
/// requested.
#[derive(Debug, Clone, Copy, Default)]
pub struct GivenLists([Option<u64>; 3]);

/// Receiver of the changes for one client.
pub struct ListChanges {
    state: watch::Receiver<ServedState>,
    given: watch::Receiver<GivenLists>,
    /// Lists that the client was given, as of the last look at `given`.
    last_given: GivenLists,
    /// Lists that the client was given, or whose change was reported later.
    known: GivenLists,
    /// Last view that the client was notified of.
    last_seen: Arc<ServedView>,
    /// Earliest time of the next report about the tools.
    next_tools_report: Instant,
}

/// Difference of two revisions.
#[derive(Debug)]
pub struct ListChange {
    /// Lists that changed in names, descriptions or fields.
    pub lists: Vec<HostList>,
    before: Arc<ServedView>,
    after: Arc<ServedView>,
}

impl HostList {
    /// All lists, in the order of their notifications.
    pub const ALL: [Self; 3] = [Self::Tools, Self::Resources, Self::Prompts];
}

impl GivenLists {
    /// Records that the client is given a list of a view.
    pub fn record(&mut self, list: HostList, view: &ServedView) {
        self.0[list as usize] = Some(view.list_hash(list));
    }

    /// Whether a list that the client has is another one in a view.
    fn differs(self, list: HostList, view: &ServedView) -> bool {
        self.0[list as usize].is_some_and(|known| known != view.list_hash(list))
    }
}

impl ListChanges {
    /// Starts at the current revision, for a client that is notified of the lists that it requested.
    pub fn new(state: watch::Receiver<ServedState>, given: watch::Receiver<GivenLists>) -> Self {
        let last_seen = state.borrow().view.clone();
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
    pub fn of_all_lists(mut self) -> Self {
        for list in HostList::ALL {
            self.known.0[list as usize].get_or_insert(self.last_seen.list_hash(list));
        }
        self
    }

    /// Waits for the next change. Returns `None` after the last change. Cancel-safe.
    pub async fn next(&mut self) -> Option<ListChange> {
        loop {
            self.learn_given_lists();
            let state = self.state.borrow_and_update().clone();
            let is_synced = state.sync == SyncState::Synced;
            if is_synced && let Some(change) = self.take_change(state.view.clone()) {
                return Some(change);
            }

            let late_tools = is_synced && self.known.differs(HostList::Tools, &state.view);
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
        for ((known, given), last) in self.known.0.iter_mut().zip(given.0).zip(last.0) {
            if given != last {
                *known = given;
            }
        }
    }

    /// Returns the difference between a view and what the client knows, if there is one.
    fn take_change(&mut self, after: Arc<ServedView>) -> Option<ListChange> {
        let now = Instant::now();
        let mut lists = HostList::ALL.to_vec();
        lists.retain(|list| {
            let is_due = *list != HostList::Tools || now >= self.next_tools_report;
            is_due && self.known.differs(*list, &after)
        });
        for list in &lists {
            self.known.record(*list, &after);
        }
        if lists.contains(&HostList::Tools) {
            self.next_tools_report = now + MIN_TOOL_LIST_INTERVAL;
        }

        let before = std::mem::replace(&mut self.last_seen, after.clone());
        let is_news = !lists.is_empty() || !Arc::ptr_eq(&before, &after);
        is_news.then_some(ListChange {
            lists,
            before,
            after,
        })
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

#[cfg(test)]
mod tests {
    use super::{GivenLists, HostList, ListChange, ListChanges, ServedState, SyncState};
    use crate::agent::mcp::view::ServedView;
    use crate::agent::mcp::view::tests::{skill, view_of};
    use caproot_core::proto::caproot::v1::Skill;
    use caproot_session::SkillNameList;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::sync::watch;
    use tokio::time::timeout;

    const URI: &str = "skill://r/a/SKILL.md";

    fn state(skills: Vec<Skill>) -> ServedState {
        ServedState {
            daemon: None,
            view: Arc::new(view_of(skills)),
            sync: SyncState::Synced,
        }
    }

    async fn no_change(changes: &mut ListChanges) {
        let next = timeout(Duration::ZERO, changes.next()).await;
        assert!(next.is_err(), "{next:?}");
    }

    fn lists(change: &ListChange) -> (bool, bool) {
        let has = |list| change.lists.contains(&list);
        (has(HostList::Resources), has(HostList::Prompts))
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

        sender.send_replace(ServedState {
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
        let (sender, receiver) = watch::channel(ServedState::default());
        let (given, given_receiver) = watch::channel(GivenLists::default());
        let mut changes = ListChanges::new(receiver, given_receiver);
        let empty = ServedView::default();
        let full = state(vec![skill("skill://r/a", "a")]);
        let give = |list, view: &ServedView| {
            given.send_modify(|given| given.record(list, view));
        };

        give(HostList::Resources, &empty);
        sender.send_replace(full.clone());
        let change = changes.next().await.expect("a change");
        assert_eq!(lists(&change), (true, false));
        no_change(&mut changes).await;

        give(HostList::Resources, &full.view);
        no_change(&mut changes).await;
        // A list of the past, whose answer was slower than the change.
        give(HostList::Resources, &empty);
        assert_eq!(
            changes.next().await.expect("a change").lists,
            [HostList::Resources]
        );

        // The tools are reported at most once in an interval.
        for total in [1, 2] {
            let names = SkillNameList {
                total,
                ..SkillNameList::default()
            };
            give(HostList::Tools, &ServedView::new(&[], &[], false, names));
            assert_eq!(
                changes.next().await.expect("a change").lists,
                [HostList::Tools]
            );
            no_change(&mut changes).await;
        }
    }
}
