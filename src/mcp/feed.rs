//! Follows the daemon: applies its events to what is held, and publishes each revision whole. Goes on
//! by itself when the daemon is gone and comes back. Leaves what clients are told to `notices`.

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

/// How long until a watch that was refused is tried again, once it went well.
const REJECTED_RETRY_DELAY: Duration = Duration::from_secs(10);

/// What is served, and whether it is what the daemon has now.
#[derive(Debug, Clone, Default)]
pub(super) struct FeedState {
    /// The last revision that was whole.
    pub(super) catalog: Arc<McpCatalog>,
    /// Whether the daemon is being heard.
    pub(super) sync: SyncState,
}

/// How things are with the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum SyncState {
    /// Its first state is on the way.
    #[default]
    Connecting,
    /// The catalog is its current one.
    Synced,
    /// It cannot be heard, for this reason.
    Lost(String),
}

/// Which skills are followed.
#[derive(Debug, Clone)]
pub struct SkillSubscription {
    /// The roots, in order.
    pub roots: Vec<SelectedCapabilityRoot>,
    /// Whether these are what the daemon publishes, and are to stay so when it starts again.
    pub follows_published: bool,
    /// Only skills for this product, or for every product; all if empty.
    pub product: String,
}

/// Follows for ever. An error is of a daemon that refused from the start.
pub(super) async fn follow_daemon(
    client: Client,
    mut followed: SkillSubscription,
    state: watch::Sender<FeedState>,
    say: impl Fn(String),
) -> Result<(), CallError> {
    let mut went_well = false;
    loop {
        let mut watch = open_watch(&client, &followed);
        let mut held = SkillReplica::new(followed.roots.clone());
        let mut epoch = String::new();
        let cause = loop {
            match watch.next().await {
                Ok(WatchMessage::Event(event)) => {
                    let restarted = !epoch.is_empty() && epoch != event.epoch;
                    epoch.clone_from(&event.epoch);
                    if restarted
                        && followed.follows_published
                        && refresh_roots(&client, &mut followed).await
                    {
                        say("the daemon publishes other roots now".to_owned());
                        break None;
                    }
                    if held.apply_event(*event) {
                        went_well = true;
                        publish_catalog(&state, held.take_catalog(), &say);
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

fn open_watch(client: &Client, followed: &SkillSubscription) -> SkillWatch {
    client.watch_skills(WatchSkillsRequest {
        selected_capability_roots: followed.roots.clone(),
        product: followed.product.clone(),
        view: SkillView::Full.into(),
        ..WatchSkillsRequest::default()
    })
}

/// Whether the daemon publishes other roots than before; takes them over.
async fn refresh_roots(client: &Client, followed: &mut SkillSubscription) -> bool {
    // If it does not answer now, the watch will hear of it.
    let Ok(published) = client.clone().list_roots().await else { return false };
    let roots = published.roots.into_iter().filter_map(|root| root.selected_capability_root);
    let roots: Vec<_> = roots.collect();
    let differ = roots != followed.roots;
    followed.roots = roots;
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
        say("connected again".to_owned());
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
        say(format!("{cause}; connecting again"));
    }
}

/// What was heard so far.
struct SkillReplica {
    roots: Arc<[SelectedCapabilityRoot]>,
    root_indexes: HashMap<String, usize>,
    skills: HashMap<String, Arc<SkillRecord>>,
    statuses: HashMap<String, RootStatus>,
    /// Bytes of text in `entries`.
    text_bytes: usize,
    is_truncated: bool,
    /// Whether anything changed since the last catalog was made.
    has_changed: bool,
}

impl SkillReplica {
    fn new(roots: Vec<SelectedCapabilityRoot>) -> Self {
        let places = roots.iter().enumerate().map(|(n, root)| (root.id.clone(), n)).collect();
        Self {
            roots: roots.into(),
            root_indexes: places,
            skills: HashMap::new(),
            statuses: HashMap::new(),
            text_bytes: 0,
            is_truncated: false,
            has_changed: true,
        }
    }

    /// Applies an event; whether a revision is whole with it. A state that is cut off is void, and
    /// the next one begins with a reset.
    fn apply_event(&mut self, event: WatchSkillsResponse) -> bool {
        match event.event {
            Some(Event::Reset(_)) => {
                *self = Self::new(self.roots.to_vec());
            }
            Some(Event::RootStatus(status)) => {
                self.has_changed = true;
                // Only of roots that were asked for, so that there are no more than these.
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

    /// What is held now; `None` where that is what it was.
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

    fn apply_event(held: &mut SkillReplica, event: Event) -> Option<Vec<String>> {
        let whole =
            held.apply_event(WatchSkillsResponse { event: Some(event), ..Default::default() });
        let catalog = whole.then(|| held.take_catalog()).flatten()?;
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
    fn a_revision_is_served_when_it_is_whole() {
        let root = SelectedCapabilityRoot { id: "r".into(), location: None };
        let mut held = SkillReplica::new(vec![root]);
        let synced = || Event::Synced(Synced::default());
        assert_eq!(apply_event(&mut held, Event::Reset(Reset::default())), None);
        let both = vec![skill("skill://r/a", "a"), skill("skill://r/b", "b")];
        assert_eq!(apply_event(&mut held, delta(both, &[])), None);
        let uris = apply_event(&mut held, synced()).expect("a revision");
        assert_eq!(uris, ["skill://r/a/SKILL.md", "skill://r/b/SKILL.md"]);
        assert_eq!(
            apply_event(&mut held, Event::Bookmark(Bookmark::default())),
            None,
            "nothing new"
        );
        assert_eq!(apply_event(&mut held, delta(vec![], &["skill://r/a", "skill://r/none"])), None);
        assert_eq!(apply_event(&mut held, synced()).expect("a revision"), ["skill://r/b/SKILL.md"]);
        let weight = held.text_bytes;
        apply_event(&mut held, delta(vec![skill("skill://r/b", "b")], &[]));
        assert_eq!(held.text_bytes, weight, "what is replaced is counted once");
        assert_eq!(apply_event(&mut held, Event::Reset(Reset::default())), None);
        assert_eq!(apply_event(&mut held, synced()), Some(vec![]));
    }

    #[test]
    fn skills_beyond_the_limit_are_omitted() {
        let root = SelectedCapabilityRoot { id: "r".into(), location: None };
        let bare = SkillRecord::from_skill(0, skill("skill://r/a", "a"))
            .without_frontmatter()
            .text_bytes();
        for (left, skills) in [(bare, 1), (bare - 1, 0)] {
            let mut held = SkillReplica::new(vec![root.clone()]);
            held.text_bytes = super::MAX_CATALOG_BYTES - left;
            apply_event(&mut held, delta(vec![skill("skill://r/a", "a")], &[]));
            let catalog = held.take_catalog().expect("a change");
            assert!(catalog.omissions().is_some());
            assert_eq!(catalog.skills_after(None).len(), skills);
        }
    }
}
