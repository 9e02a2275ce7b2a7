//! Follows the daemon: applies its events to what is held, and publishes each revision whole. Goes on
//! by itself when the daemon is gone and comes back. Leaves what clients are told to `notices`.

use super::catalog::Catalog;
use super::entry::Entry;
use super::limits::{MAX_CATALOG_BYTES, MAX_SKILLS};
use crate::client::{CallError, Client, Heard, SkillWatch};
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
const REFUSED_WAIT: Duration = Duration::from_secs(10);

/// What is served, and whether it is what the daemon has now.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    /// The last revision that was whole.
    pub(super) catalog: Arc<Catalog>,
    /// Whether the daemon is being heard.
    pub(super) standing: Standing,
}

/// How things are with the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Standing {
    /// Its first state is on the way.
    #[default]
    Begun,
    /// The catalog is its current one.
    InStep,
    /// It cannot be heard, for this reason.
    Lost(String),
}

/// Which skills are followed.
#[derive(Debug, Clone)]
pub struct Followed {
    /// The roots, in order.
    pub roots: Vec<SelectedCapabilityRoot>,
    /// Whether these are what the daemon publishes, and are to stay so when it starts again.
    pub published: bool,
    /// Only skills for this product, or for every product; all if empty.
    pub product: String,
}

/// Follows for ever. An error is of a daemon that refused from the start.
pub(super) async fn follow(
    client: Client,
    mut followed: Followed,
    state: watch::Sender<State>,
    say: impl Fn(String),
) -> Result<(), CallError> {
    let mut went_well = false;
    loop {
        let mut watch = watch_of(&client, &followed);
        let mut held = Held::new(followed.roots.clone());
        let mut epoch = String::new();
        let cause = loop {
            match watch.next().await {
                Ok(Heard::Event(event)) => {
                    let restarted = !epoch.is_empty() && epoch != event.epoch;
                    epoch.clone_from(&event.epoch);
                    if restarted && followed.published && moved(&client, &mut followed).await {
                        say("the daemon publishes other roots now".to_owned());
                        break None;
                    }
                    if held.hear(*event) {
                        went_well = true;
                        publish(&state, held.catalog(), &say);
                    }
                }
                Ok(Heard::Lost { cause, .. }) => lose(&state, &cause, &say),
                Err(cause) => break Some(cause),
            }
        };
        let Some(cause) = cause else { continue };
        if !went_well {
            return Err(cause);
        }
        lose(&state, &cause, &say);
        tokio::time::sleep(REFUSED_WAIT).await;
    }
}

fn watch_of(client: &Client, followed: &Followed) -> SkillWatch {
    client.watch_skills(WatchSkillsRequest {
        selected_capability_roots: followed.roots.clone(),
        product: followed.product.clone(),
        view: SkillView::Full.into(),
        ..WatchSkillsRequest::default()
    })
}

/// Whether the daemon publishes other roots than before; takes them over.
async fn moved(client: &Client, followed: &mut Followed) -> bool {
    // If it does not answer now, the watch will hear of it.
    let Ok(published) = client.clone().roots().await else { return false };
    let roots = published.roots.into_iter().filter_map(|root| root.selected_capability_root);
    let roots: Vec<_> = roots.collect();
    let differ = roots != followed.roots;
    followed.roots = roots;
    differ
}

fn publish(state: &watch::Sender<State>, catalog: Option<Catalog>, say: &impl Fn(String)) {
    let mut was_lost = false;
    state.send_modify(|state| {
        was_lost = matches!(state.standing, Standing::Lost(_));
        state.standing = Standing::InStep;
        if let Some(catalog) = catalog {
            state.catalog = Arc::new(catalog);
        }
    });
    if was_lost {
        say("connected again".to_owned());
    }
}

fn lose(state: &watch::Sender<State>, cause: &CallError, say: &impl Fn(String)) {
    let lost = state.send_if_modified(|state| {
        let lost = !matches!(state.standing, Standing::Lost(_));
        if lost {
            state.standing = Standing::Lost(cause.to_string());
        }
        lost
    });
    if lost {
        say(format!("{cause}; connecting again"));
    }
}

/// What was heard so far.
struct Held {
    roots: Arc<[SelectedCapabilityRoot]>,
    places: HashMap<String, usize>,
    entries: HashMap<String, Arc<Entry>>,
    statuses: HashMap<String, RootStatus>,
    /// Bytes of text in `entries`.
    weight: usize,
    over: bool,
    /// Whether anything changed since the last catalog was made.
    changed: bool,
}

impl Held {
    fn new(roots: Vec<SelectedCapabilityRoot>) -> Self {
        let places = roots.iter().enumerate().map(|(n, root)| (root.id.clone(), n)).collect();
        Self {
            roots: roots.into(),
            places,
            entries: HashMap::new(),
            statuses: HashMap::new(),
            weight: 0,
            over: false,
            changed: true,
        }
    }

    /// Applies an event; whether a revision is whole with it. A state that is cut off is void, and
    /// the next one begins with a reset.
    fn hear(&mut self, event: WatchSkillsResponse) -> bool {
        match event.event {
            Some(Event::Reset(_)) => {
                *self = Self::new(self.roots.to_vec());
            }
            Some(Event::RootStatus(status)) => {
                self.changed = true;
                // Only of roots that were asked for, so that there are no more than these.
                if self.places.contains_key(&status.id) {
                    let RootStatus { id, state, reason, .. } = status;
                    let kept = RootStatus { id, state, reason, ..RootStatus::default() };
                    self.statuses.insert(kept.id.clone(), kept);
                }
            }
            Some(Event::Delta(delta)) => self.apply(delta),
            Some(Event::Synced(_) | Event::Bookmark(_)) => return true,
            Some(Event::Diagnostics(_)) | None => {}
        }
        false
    }

    fn apply(&mut self, delta: SkillDelta) {
        self.changed = true;
        let Some(root) = self.places.get(&delta.root_id).copied() else { return };
        for gone in delta.removed {
            self.remove(&gone.package);
        }
        for skill in delta.upserted {
            self.remove(&skill.package);
            let left = MAX_CATALOG_BYTES - self.weight;
            let mut entry = Entry::of(root, skill);
            if entry.weight() > left {
                self.over = true;
                entry = entry.bare();
            }
            if entry.weight() > left || self.entries.len() >= MAX_SKILLS {
                self.over = true;
                continue;
            }
            self.weight += entry.weight();
            self.entries.insert(entry.package.clone(), Arc::new(entry));
        }
    }

    fn remove(&mut self, package: &str) {
        if let Some(entry) = self.entries.remove(package) {
            self.weight -= entry.weight();
        }
    }

    /// What is held now; `None` where that is what it was.
    fn catalog(&mut self) -> Option<Catalog> {
        std::mem::take(&mut self.changed).then(|| {
            // In the order of the selection.
            let statuses = self.roots.iter().filter_map(|root| self.statuses.get(&root.id));
            Catalog::new(self.roots.clone(), self.entries.values(), statuses, self.over)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Entry, Event, Held, SkillDelta, WatchSkillsResponse};
    use crate::mcp::entry::tests::skill;
    use crate::proto::caproot::v1::{
        Bookmark, RemovedSkill, Reset, SelectedCapabilityRoot, Skill, Synced,
    };

    fn hear(held: &mut Held, event: Event) -> Option<Vec<String>> {
        let whole = held.hear(WatchSkillsResponse { event: Some(event), ..Default::default() });
        let catalog = whole.then(|| held.catalog()).flatten()?;
        Some(catalog.after(None).iter().map(super::super::catalog::Listed::main_uri).collect())
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
        let mut held = Held::new(vec![root]);
        let synced = || Event::Synced(Synced::default());
        assert_eq!(hear(&mut held, Event::Reset(Reset::default())), None);
        let both = vec![skill("skill://r/a", "a"), skill("skill://r/b", "b")];
        assert_eq!(hear(&mut held, delta(both, &[])), None);
        let uris = hear(&mut held, synced()).expect("a revision");
        assert_eq!(uris, ["skill://r/a/SKILL.md", "skill://r/b/SKILL.md"]);
        assert_eq!(hear(&mut held, Event::Bookmark(Bookmark::default())), None, "nothing new");
        assert_eq!(hear(&mut held, delta(vec![], &["skill://r/a", "skill://r/none"])), None);
        assert_eq!(hear(&mut held, synced()).expect("a revision"), ["skill://r/b/SKILL.md"]);
        let weight = held.weight;
        hear(&mut held, delta(vec![skill("skill://r/b", "b")], &[]));
        assert_eq!(held.weight, weight, "what is replaced is counted once");
        assert_eq!(hear(&mut held, Event::Reset(Reset::default())), None);
        assert_eq!(hear(&mut held, synced()), Some(vec![]));
    }

    #[test]
    fn what_is_beyond_the_bound_is_left_out() {
        let root = SelectedCapabilityRoot { id: "r".into(), location: None };
        let bare = Entry::of(0, skill("skill://r/a", "a")).bare().weight();
        for (left, skills) in [(bare, 1), (bare - 1, 0)] {
            let mut held = Held::new(vec![root.clone()]);
            held.weight = super::MAX_CATALOG_BYTES - left;
            hear(&mut held, delta(vec![skill("skill://r/a", "a")], &[]));
            let catalog = held.catalog().expect("a change");
            assert!(catalog.unseen().is_some());
            assert_eq!(catalog.after(None).len(), skills);
        }
    }
}
