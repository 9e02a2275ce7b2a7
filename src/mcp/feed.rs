//! Connects to the daemon, follows it, and publishes each complete revision of its catalog.

use super::catalog::McpCatalog;
use super::limits::{MAX_CATALOG_BYTES, MAX_SKILLS};
use super::skill_record::SkillRecord;
use super::{ConnectFailure, ServedDaemon};
use caproot_client::{
    CallError, Client, MirrorCatalog, MirrorSelection, MirrorStream, WatchMessage,
    published_selection,
};
use caproot_core::backoff::Backoff;
use caproot_core::lock::Lock;
use caproot_core::proto::caproot::v1::{SelectedCapabilityRoot, SkillView};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Delays between attempts to connect to a daemon that never answered.
const CONNECT_BACKOFF: Backoff = Backoff::new(Duration::from_millis(400), Duration::from_secs(10));
/// Delay after a rejected watch, if the daemon had sent a state before, and after a violation of
/// the protocol.
const REJECTED_RETRY_DELAY: Duration = Duration::from_secs(10);

/// Published catalog and the state of its connection.
#[derive(Debug, Clone, Default)]
pub struct FeedState {
    /// Catalog of the last complete revision.
    pub catalog: Arc<McpCatalog>,
    /// State of the connection.
    pub sync: SyncState,
}

/// State of the connection to the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SyncState {
    /// The first state has not come yet.
    #[default]
    Connecting,
    /// The catalog is current.
    Synced,
    /// The daemon is lost. Has the cause.
    Lost(String),
}

/// Selection of skills to follow.
#[derive(Debug, Clone, Default)]
pub struct SkillSubscription {
    /// Roots in the order of the selection.
    pub roots: Vec<SelectedCapabilityRoot>,
    /// Whether the roots are the published roots, and are read again after a restart of the daemon.
    pub follows_published: bool,
    /// Environment of the published roots; `None` for the daemon's first environment.
    pub environment_id: Option<String>,
    /// Only skills for this product or for every product. Empty means all.
    pub product: String,
    /// Lock that must approve the skills.
    pub lock: Option<Arc<Lock>>,
}

/// Reason why a stream ended.
enum FeedStreamEnd {
    /// The published roots changed.
    RootsChanged,
    /// The daemon rejected the watch.
    Rejected(CallError),
    /// The daemon violated the protocol, or the catalog exceeds the size limit. Has the reason.
    Invalid(String),
}

/// Publisher of the state of the feed.
pub struct FeedPublisher<F> {
    state: watch::Sender<FeedState>,
    /// Receives a message if the daemon is lost or connected again.
    say: F,
}

/// Calls `connect` until a daemon answers or the failure is final.
pub async fn connect_to_daemon<E>(
    connect: impl AsyncFn() -> Result<ServedDaemon, ConnectFailure<E>>,
    publisher: &FeedPublisher<impl Fn(String)>,
) -> Result<ServedDaemon, E> {
    let mut backoff = CONNECT_BACKOFF;

    loop {
        match connect().await {
            Ok(daemon) => return Ok(daemon),
            Err(ConnectFailure::Final(error)) => return Err(error),
            Err(ConnectFailure::Unavailable(cause)) => publisher.publish_lost(cause),
        }
        tokio::time::sleep(backoff.next_delay()).await;
    }
}

/// Follows the daemon. Returns only if the daemon rejects the first watch.
pub async fn follow_daemon(
    client: Client,
    subscription: SkillSubscription,
    publisher: FeedPublisher<impl Fn(String)>,
) -> Result<(), CallError> {
    let mut feed = CatalogFeed {
        client,
        subscription,
        publisher,
        had_state: false,
    };

    loop {
        let why = match feed.publish_stream().await {
            FeedStreamEnd::RootsChanged => continue,
            FeedStreamEnd::Rejected(cause) if !feed.had_state => return Err(cause),
            FeedStreamEnd::Rejected(cause) => cause.to_string(),
            FeedStreamEnd::Invalid(why) => why,
        };
        feed.publisher.publish_lost(why);
        tokio::time::sleep(REJECTED_RETRY_DELAY).await;
    }
}

/// Publisher of the daemon's catalog.
struct CatalogFeed<F> {
    client: Client,
    subscription: SkillSubscription,
    publisher: FeedPublisher<F>,
    /// Whether a state was published.
    had_state: bool,
}

impl<F: Fn(String)> CatalogFeed<F> {
    /// Publishes the states of one stream until the stream cannot go on.
    async fn publish_stream(&mut self) -> FeedStreamEnd {
        let roots: Arc<[SelectedCapabilityRoot]> = self.subscription.roots.clone().into();
        let selection = MirrorSelection {
            product: self.subscription.product.clone(),
            view: SkillView::Full,
            ..MirrorSelection::new(self.subscription.roots.clone())
        };

        let mut stream = MirrorStream::start(&self.client, &selection, SkillRecord::from_skill);
        let mut epoch = String::new();
        let lock = self.subscription.lock.clone();

        loop {
            let event = match stream.next().await {
                Ok(WatchMessage::Event(event)) => *event,
                Ok(WatchMessage::Lost { cause, .. }) => {
                    self.publisher.publish_lost(cause.to_string());
                    continue;
                }
                Err(cause) => return FeedStreamEnd::Rejected(cause),
            };

            let restarted = !epoch.is_empty() && epoch != event.epoch;
            epoch.clone_from(&event.epoch);
            if restarted && self.subscription.follows_published && self.refresh_roots().await {
                (self.publisher.say)("the published roots of the daemon have changed".to_owned());
                return FeedStreamEnd::RootsChanged;
            }

            match stream.apply_event(event) {
                Ok(None) => {}
                Ok(Some(update)) => {
                    let catalog = update
                        .changed
                        .then(|| build_catalog(&roots, &update.catalog, lock.as_deref()));
                    self.had_state = true;
                    self.publisher.publish_catalog(catalog);
                }
                Err(why) => return FeedStreamEnd::Invalid(why),
            }
        }
    }

    /// Reads the published roots again. Returns whether they changed.
    async fn refresh_roots(&mut self) -> bool {
        // If the daemon does not respond, the watch reports the failure.
        let Ok(published) = self.client.list_roots().await else {
            return false;
        };
        let roots = published_selection(published, self.subscription.environment_id.as_deref());
        let differ = roots != self.subscription.roots;
        self.subscription.roots = roots;
        differ
    }
}

impl<F: Fn(String)> FeedPublisher<F> {
    pub fn new(state: watch::Sender<FeedState>, say: F) -> Self {
        Self { state, say }
    }

    /// Publishes a complete state. If `catalog` is `None`, the catalog is unchanged.
    fn publish_catalog(&self, catalog: Option<McpCatalog>) {
        let mut was_lost = false;
        self.state.send_modify(|state| {
            was_lost = matches!(state.sync, SyncState::Lost(_));
            state.sync = SyncState::Synced;
            if let Some(catalog) = catalog {
                state.catalog = Arc::new(catalog);
            }
        });
        if was_lost {
            (self.say)("reconnected".to_owned());
        }
    }

    /// Publishes that the daemon is lost. The first cause stays until the daemon is back.
    fn publish_lost(&self, cause: String) {
        let sentence = format!("{cause}; reconnecting");
        let lost = self.state.send_if_modified(|state| {
            let lost = !matches!(state.sync, SyncState::Lost(_));
            if lost {
                state.sync = SyncState::Lost(cause);
            }
            lost
        });
        if lost {
            (self.say)(sentence);
        }
    }
}

fn build_catalog(
    roots: &Arc<[SelectedCapabilityRoot]>,
    catalog: &MirrorCatalog<SkillRecord>,
    lock: Option<&Lock>,
) -> McpCatalog {
    let approved: Vec<_> = match lock {
        None => catalog.skills().cloned().collect(),
        Some(lock) => catalog
            .skills()
            .filter_map(|record| record.approve(lock).map(Arc::new))
            .collect(),
    };
    let (records, is_truncated) = limit_records(approved.iter(), MAX_CATALOG_BYTES);
    McpCatalog::new(
        roots.clone(),
        records.iter(),
        catalog.roots().iter(),
        is_truncated,
    )
}

/// Returns the records that the limits allow, and whether a limit applied. If a record exceeds
/// `max_bytes` only with its frontmatter, the frontmatter is omitted.
fn limit_records<'a>(
    records: impl Iterator<Item = &'a Arc<SkillRecord>>,
    max_bytes: usize,
) -> (Vec<Arc<SkillRecord>>, bool) {
    let mut kept = Vec::new();
    let mut left = max_bytes;
    let mut is_truncated = false;

    for full in records {
        let mut record = full.clone();
        if record.text_bytes() > left {
            is_truncated = true;
            record = Arc::new(Arc::unwrap_or_clone(record).without_frontmatter());
        }
        if record.text_bytes() > left || kept.len() >= MAX_SKILLS {
            is_truncated = true;
            continue;
        }
        left -= record.text_bytes();
        kept.push(record);
    }
    (kept, is_truncated)
}

#[cfg(test)]
mod tests {
    use super::{MirrorSelection, SkillRecord, build_catalog, limit_records};
    use crate::mcp::skill_record::tests::skill;
    use caproot_client::MirrorReplica;
    use caproot_core::proto::caproot::v1::watch_skills_response::Event;
    use caproot_core::proto::caproot::v1::{
        Bookmark, RemovedSkill, Reset, SelectedCapabilityRoot, Skill, SkillDelta, Synced,
        WatchSkillsResponse,
    };
    use std::sync::Arc;

    fn apply_event(replica: &mut MirrorReplica<SkillRecord>, event: Event) -> Option<Vec<String>> {
        let message = WatchSkillsResponse {
            event: Some(event),
            ..Default::default()
        };
        let update = replica.apply_event(message).expect("a valid event")?;
        let catalog = update
            .changed
            .then(|| build_catalog(&[].into(), &update.catalog, None))?;
        let uris = catalog.skills_after(None).iter();
        Some(
            uris.map(super::super::catalog::ServedSkill::main_uri)
                .collect(),
        )
    }

    fn delta(upserted: Vec<Skill>, removed: &[&str]) -> Event {
        let removed = removed.iter().map(|package| RemovedSkill {
            package: (*package).into(),
            ..RemovedSkill::default()
        });
        Event::Delta(SkillDelta {
            root_id: "r".into(),
            upserted,
            removed: removed.collect(),
            ..SkillDelta::default()
        })
    }

    #[test]
    fn only_complete_revisions_are_published() {
        let root = SelectedCapabilityRoot {
            id: "r".into(),
            location: None,
        };
        let selection = MirrorSelection::new(vec![root]);
        let mut replica = MirrorReplica::new(&selection, SkillRecord::from_skill);
        let synced = || Event::Synced(Synced::default());
        assert_eq!(
            apply_event(&mut replica, Event::Reset(Reset::default())),
            None
        );
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
            apply_event(
                &mut replica,
                delta(vec![], &["skill://r/a", "skill://r/none"])
            ),
            None
        );
        assert_eq!(
            apply_event(&mut replica, synced()).expect("a revision"),
            ["skill://r/b/SKILL.md"]
        );
        apply_event(&mut replica, delta(vec![skill("skill://r/b", "b")], &[]));
        let uris = apply_event(&mut replica, synced()).expect("a revision");
        assert_eq!(
            uris,
            ["skill://r/b/SKILL.md"],
            "a replaced skill is listed once"
        );
        assert_eq!(
            apply_event(&mut replica, Event::Reset(Reset::default())),
            None
        );
        assert_eq!(apply_event(&mut replica, synced()), Some(vec![]));
    }

    #[test]
    fn skills_beyond_the_limit_are_omitted() {
        let records = ["a", "b"].map(|name| {
            Arc::new(SkillRecord::from_skill(
                0,
                skill(&format!("skill://r/{name}"), name),
            ))
        });
        let [full, _] = records.each_ref().map(|record| record.text_bytes());
        let bare = (*records[1]).clone().without_frontmatter().text_bytes();
        for (max, skills, with_frontmatter) in [
            (2 * full, 2, 2),
            (2 * full - 1, 2, 1),
            (full + bare, 2, 1),
            (full + bare - 1, 1, 1),
            (bare, 1, 0),
            (bare - 1, 0, 0),
        ] {
            let (kept, is_truncated) = limit_records(records.iter(), max);
            assert_eq!(
                (kept.len(), is_truncated),
                (skills, max < 2 * full),
                "{max}"
            );
            let complete = kept.iter().filter(|record| record.frontmatter.is_some());
            assert_eq!(complete.count(), with_frontmatter, "{max}");
        }
    }
}
