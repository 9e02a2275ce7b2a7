//! Follows the daemon: applies its events to a replica and publishes each complete revision.
//! Reconnects if the daemon is lost.

use super::catalog::McpCatalog;
use super::limits::{MAX_CATALOG_BYTES, MAX_SKILLS};
use super::skill_record::SkillRecord;
use crate::client::{CallError, Client, SkillWatch, WatchMessage};
use crate::proto::caproot::v1::watch_skills_response::Event;
use crate::proto::caproot::v1::{
    RootStatus, SelectedCapabilityRoot, SkillDelta, SkillView, WatchSkillsRequest,
    WatchSkillsResponse,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Delay after a rejected watch, if the daemon had sent a state before.
const REJECTED_RETRY_DELAY: Duration = Duration::from_secs(10);

/// Published catalog and the state of its connection.
#[derive(Debug, Clone, Default)]
pub(super) struct FeedState {
    /// Catalog of the last complete revision.
    pub(super) catalog: Arc<McpCatalog>,
    /// State of the connection.
    pub(super) sync: SyncState,
}

/// State of the connection to the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum SyncState {
    /// The first state has not come yet.
    #[default]
    Connecting,
    /// The catalog is current.
    Synced,
    /// The daemon is lost. Has the cause.
    Lost(String),
}

/// Selection of skills to follow.
#[derive(Debug, Clone)]
pub struct SkillSubscription {
    /// Roots in the order of the selection.
    pub roots: Vec<SelectedCapabilityRoot>,
    /// Whether the roots are the published roots, and are read again after a restart of the daemon.
    pub follows_published: bool,
    /// Only skills for this product or for every product. Empty means all.
    pub product: String,
}

/// Follows the daemon. Returns only if the daemon rejects the first watch.
pub(super) async fn follow_daemon(
    client: Client,
    mut subscription: SkillSubscription,
    state: watch::Sender<FeedState>,
    say: impl Fn(String),
) -> Result<(), CallError> {
    let mut went_well = false;
    loop {
        let mut watch = open_watch(&client, &subscription);
        let mut replica = SkillReplica::new(subscription.roots.clone());
        let mut epoch = String::new();
        let cause = loop {
            match watch.next().await {
                Ok(WatchMessage::Event(event)) => {
                    let restarted = !epoch.is_empty() && epoch != event.epoch;
                    epoch.clone_from(&event.epoch);
                    if restarted
                        && subscription.follows_published
                        && refresh_roots(&client, &mut subscription).await
                    {
                        say("the published roots of the daemon have changed".to_owned());
                        break None;
                    }
                    if replica.apply_event(*event) {
                        went_well = true;
                        publish_catalog(&state, replica.take_catalog(), &say);
                    }
                }
                Ok(WatchMessage::Lost { cause, .. }) => publish_lost(&state, &cause, &say),
                Err(cause) => break Some(cause),
            }
        };
        let Some(cause) = cause else { continue };
        if !went_well {
            return Err(cause);
        }
        publish_lost(&state, &cause, &say);
        tokio::time::sleep(REJECTED_RETRY_DELAY).await;
    }
}

fn open_watch(client: &Client, subscription: &SkillSubscription) -> SkillWatch {
    client.watch_skills(WatchSkillsRequest {
        selected_capability_roots: subscription.roots.clone(),
        product: subscription.product.clone(),
        view: SkillView::Full.into(),
        ..WatchSkillsRequest::default()
    })
}

/// Reads the published roots again. Returns whether they changed.
async fn refresh_roots(client: &Client, subscription: &mut SkillSubscription) -> bool {
    // If the daemon does not respond, the watch reports the failure.
    let Ok(published) = client.clone().list_roots().await else { return false };
    let roots = published.roots.into_iter().filter_map(|root| root.selected_capability_root);
    let roots: Vec<_> = roots.collect();
    let differ = roots != subscription.roots;
    subscription.roots = roots;
    differ
}

fn publish_catalog(
    state: &watch::Sender<FeedState>,
    catalog: Option<McpCatalog>,
    say: &impl Fn(String),
) {
    let mut was_lost = false;
    state.send_modify(|state| {
        was_lost = matches!(state.sync, SyncState::Lost(_));
        state.sync = SyncState::Synced;
        if let Some(catalog) = catalog {
            state.catalog = Arc::new(catalog);
        }
    });
    if was_lost {
        say("reconnected".to_owned());
    }
}

fn publish_lost(state: &watch::Sender<FeedState>, cause: &CallError, say: &impl Fn(String)) {
    let lost = state.send_if_modified(|state| {
        let lost = !matches!(state.sync, SyncState::Lost(_));
        if lost {
            state.sync = SyncState::Lost(cause.to_string());
        }
        lost
    });
    if lost {
        say(format!("{cause}; reconnecting"));
    }
}

/// Copy of the daemon's skills to which events are applied.
struct SkillReplica {
    roots: Arc<[SelectedCapabilityRoot]>,
    root_indexes: HashMap<String, usize>,
    skills: HashMap<String, Arc<SkillRecord>>,
    statuses: HashMap<String, RootStatus>,
    /// Text bytes of `skills`.
    text_bytes: usize,
    is_truncated: bool,
    /// Whether an event was applied since the last catalog.
    has_changed: bool,
}

impl SkillReplica {
    fn new(roots: Vec<SelectedCapabilityRoot>) -> Self {
        let root_indexes = roots.iter().enumerate().map(|(n, root)| (root.id.clone(), n)).collect();
        Self {
            roots: roots.into(),
            root_indexes,
            skills: HashMap::new(),
            statuses: HashMap::new(),
            text_bytes: 0,
            is_truncated: false,
            has_changed: true,
        }
    }

    /// Applies an event. Returns whether the revision is complete. After an incomplete state, the
    /// next state begins with a `reset`.
    fn apply_event(&mut self, event: WatchSkillsResponse) -> bool {
        match event.event {
            Some(Event::Reset(_)) => {
                *self = Self::new(self.roots.to_vec());
            }
            Some(Event::RootStatus(status)) => {
                self.has_changed = true;
                // Statuses of other roots are ignored, so that their number is limited.
                if self.root_indexes.contains_key(&status.id) {
                    let RootStatus { id, state, reason, .. } = status;
                    let kept = RootStatus { id, state, reason, ..RootStatus::default() };
                    self.statuses.insert(kept.id.clone(), kept);
                }
            }
            Some(Event::Delta(delta)) => self.apply_delta(delta),
            Some(Event::Synced(_) | Event::Bookmark(_)) => return true,
            Some(Event::Diagnostics(_)) | None => {}
        }
        false
    }

    fn apply_delta(&mut self, delta: SkillDelta) {
        self.has_changed = true;
        let Some(root) = self.root_indexes.get(&delta.root_id).copied() else { return };
        for gone in delta.removed {
            self.remove_skill(&gone.package);
        }
        for skill in delta.upserted {
            self.remove_skill(&skill.package);
            let left = MAX_CATALOG_BYTES - self.text_bytes;
            let mut entry = SkillRecord::from_skill(root, skill);
            if entry.text_bytes() > left {
                self.is_truncated = true;
                entry = entry.without_frontmatter();
            }
            if entry.text_bytes() > left || self.skills.len() >= MAX_SKILLS {
                self.is_truncated = true;
                continue;
            }
            self.text_bytes += entry.text_bytes();
            self.skills.insert(entry.package.clone(), Arc::new(entry));
        }
    }

    fn remove_skill(&mut self, package: &str) {
        if let Some(entry) = self.skills.remove(package) {
            self.text_bytes -= entry.text_bytes();
        }
    }

    /// Returns the catalog of the events so far, or `None` if nothing changed.
    fn take_catalog(&mut self) -> Option<McpCatalog> {
        std::mem::take(&mut self.has_changed).then(|| {
            // In the order of the selection.
            let statuses = self.roots.iter().filter_map(|root| self.statuses.get(&root.id));
            McpCatalog::new(self.roots.clone(), self.skills.values(), statuses, self.is_truncated)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, SkillDelta, SkillRecord, SkillReplica, WatchSkillsResponse};
    use crate::mcp::skill_record::tests::skill;
    use crate::proto::caproot::v1::{
        Bookmark, RemovedSkill, Reset, SelectedCapabilityRoot, Skill, Synced,
    };

    fn apply_event(replica: &mut SkillReplica, event: Event) -> Option<Vec<String>> {
        let whole =
            replica.apply_event(WatchSkillsResponse { event: Some(event), ..Default::default() });
        let catalog = whole.then(|| replica.take_catalog()).flatten()?;
        Some(
            catalog
                .skills_after(None)
                .iter()
                .map(super::super::catalog::ServedSkill::main_uri)
                .collect(),
        )
    }

    fn delta(upserted: Vec<Skill>, removed: &[&str]) -> Event {
        let removed = removed
            .iter()
            .map(|package| RemovedSkill { package: (*package).into(), ..RemovedSkill::default() });
        Event::Delta(SkillDelta {
            root_id: "r".into(),
            upserted,
            removed: removed.collect(),
            ..SkillDelta::default()
        })
    }

    #[test]
    fn only_complete_revisions_are_published() {
        let root = SelectedCapabilityRoot { id: "r".into(), location: None };
        let mut replica = SkillReplica::new(vec![root]);
        let synced = || Event::Synced(Synced::default());
        assert_eq!(apply_event(&mut replica, Event::Reset(Reset::default())), None);
        let both = vec![skill("skill://r/a", "a"), skill("skill://r/b", "b")];
        assert_eq!(apply_event(&mut replica, delta(both, &[])), None);
        let uris = apply_event(&mut replica, synced()).expect("a revision");
        assert_eq!(uris, ["skill://r/a/SKILL.md", "skill://r/b/SKILL.md"]);
        assert_eq!(
            apply_event(&mut replica, Event::Bookmark(Bookmark::default())),
            None,
            "no change"
        );
        assert_eq!(
            apply_event(&mut replica, delta(vec![], &["skill://r/a", "skill://r/none"])),
            None
        );
        assert_eq!(
            apply_event(&mut replica, synced()).expect("a revision"),
            ["skill://r/b/SKILL.md"]
        );
        let weight = replica.text_bytes;
        apply_event(&mut replica, delta(vec![skill("skill://r/b", "b")], &[]));
        assert_eq!(replica.text_bytes, weight, "a replaced skill is counted once");
        assert_eq!(apply_event(&mut replica, Event::Reset(Reset::default())), None);
        assert_eq!(apply_event(&mut replica, synced()), Some(vec![]));
    }

    #[test]
    fn skills_beyond_the_limit_are_omitted() {
        let root = SelectedCapabilityRoot { id: "r".into(), location: None };
        let bare = SkillRecord::from_skill(0, skill("skill://r/a", "a"))
            .without_frontmatter()
            .text_bytes();
        for (left, skills) in [(bare, 1), (bare - 1, 0)] {
            let mut replica = SkillReplica::new(vec![root.clone()]);
            replica.text_bytes = super::MAX_CATALOG_BYTES - left;
            apply_event(&mut replica, delta(vec![skill("skill://r/a", "a")], &[]));
            let catalog = replica.take_catalog().expect("a change");
            assert!(catalog.omissions().is_some());
            assert_eq!(catalog.skills_after(None).len(), skills);
        }
    }
}
