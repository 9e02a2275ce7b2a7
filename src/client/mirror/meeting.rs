//! What changed since an earlier mirror, exactly up to the state that a new one holds. A daemon tells the
//! changes since a token on a stream of their own, and the whole on another; the two are asked again,
//! in turn, until both are of one revision. Where they cannot be, fingerprints say which roots changed.

use super::resume::Changed;
use super::{Catalog, ResumePoint, Since};
use crate::client::call::Client;
use crate::client::handle::root_id;
use crate::client::watch::Heard;
use crate::proto::caproot::v1::watch_skills_response::Event;
use crate::proto::caproot::v1::{ResetReason, SkillDelta, WatchSkillsRequest};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long a mirror waits at most for what changed before it shows its first state without it.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the two are asked at most.
const ROUNDS: usize = 64;

/// A whole state that is held.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) epoch: Arc<str>,
    pub(super) revision: u64,
    pub(super) token: Arc<str>,
}

/// A mirror that has not met its earlier self yet.
pub(super) struct Meeting {
    client: Client,
    request: WatchSkillsRequest,
    from: ResumePoint,
    max_bytes: usize,
    rounds: usize,
    /// From the first state on.
    until: Option<Instant>,
}

/// What a daemon told of the time since.
enum Told {
    /// All up to this state.
    Changed { epoch: String, revision: u64, changed: Changed },
    /// It cannot tell, or is not to be trusted with it.
    Cannot(String),
    /// It did not come to an end, and may the next time.
    Lost,
}

impl Meeting {
    pub(super) fn new(
        client: &Client,
        request: &WatchSkillsRequest,
        from: ResumePoint,
        max_bytes: usize,
    ) -> Self {
        let request = WatchSkillsRequest { resume_token: from.token.clone(), ..request.clone() };
        Self { client: client.clone(), request, from, max_bytes, rounds: 0, until: None }
    }

    /// What changed up to this state; `None`: the daemon is at another by now, so come back with that.
    pub(super) async fn meet(&mut self, at: &State, catalog: Option<&Catalog>) -> Option<Since> {
        let empty = Catalog::default();
        let from = self.from.clone();
        let by_fingerprints =
            |why: String| Some(from.compare(catalog.unwrap_or(&empty), at.revision, why));
        if from.token.is_empty() {
            let why = "there was no token to go on from";
            return by_fingerprints(why.to_owned());
        }
        self.rounds += 1;
        let until = *self.until.get_or_insert_with(|| Instant::now() + PATIENCE);
        match timeout_at(until, self.ask()).await {
            Ok(Told::Changed { epoch, revision, changed })
                if *epoch == *at.epoch && revision == at.revision =>
            {
                Some(changed.up_to(revision))
            }
            Ok(Told::Cannot(why)) => by_fingerprints(why),
            Ok(Told::Changed { .. } | Told::Lost) if self.rounds < ROUNDS => None,
            Ok(_) => by_fingerprints("changes followed each other too fast".to_owned()),
            Err(_) => by_fingerprints("the daemon did not say in time what changed".to_owned()),
        }
    }

    /// One stream from the token on, up to its first whole state.
    async fn ask(&self) -> Told {
        let mut watch = self.client.watch_skills(self.request.clone());
        let (mut changed, mut bytes) = (Changed::default(), 0);
        loop {
            let message = match watch.next().await {
                Ok(Heard::Event(message)) => message,
                Ok(Heard::Lost { wait, .. }) => {
                    tokio::time::sleep(wait).await;
                    return Told::Lost;
                }
                Err(cause) => return Told::Cannot(cause.to_string()),
            };
            let new = match message.event {
                Some(Event::Reset(reset)) => return Told::Cannot(why(reset.reason()).to_owned()),
                Some(Event::Synced(_) | Event::Bookmark(_)) => {
                    let (epoch, revision) = (message.epoch, message.revision);
                    return Told::Changed { epoch, revision, changed };
                }
                Some(Event::RootStatus(status)) => self.root(&mut changed, status.id),
                Some(Event::Diagnostics(list)) => self.root(&mut changed, list.root_id),
                Some(Event::Delta(delta)) => self.delta(&mut changed, delta),
                None => None,
            };
            let Some(new) = new else {
                let why = "the daemon spoke of what was not selected, or of nothing";
                return Told::Cannot(why.to_owned());
            };
            bytes += new;
            if bytes > self.max_bytes {
                return Told::Cannot("more changed than this mirror may take".to_owned());
            }
        }
    }

    /// Notes a root; the bytes that this takes, `None` where it was not selected.
    fn root(&self, changed: &mut Changed, id: String) -> Option<usize> {
        let len = id.len();
        self.is_selected(&id).then(|| changed.roots.insert(id)).map(|_| len)
    }

    /// Notes skills; the bytes that this takes, `None` where one is not the root's.
    fn delta(&self, changed: &mut Changed, delta: SkillDelta) -> Option<usize> {
        let is_its = |package: &str| root_id(package).as_ref() == Some(&delta.root_id);
        let packages = || {
            let removed = delta.removed.iter().map(|removed| &removed.package);
            removed.chain(delta.upserted.iter().map(|skill| &skill.package))
        };
        if !self.is_selected(&delta.root_id) || !packages().all(|package| is_its(package)) {
            return None;
        }
        let len = packages().map(String::len).sum();
        for removed in delta.removed {
            changed.upserted.remove(&removed.package);
            changed.removed.insert(removed.package);
        }
        for skill in delta.upserted {
            changed.removed.remove(&skill.package);
            changed.upserted.insert(skill.package);
        }
        Some(len)
    }

    fn is_selected(&self, id: &str) -> bool {
        self.request.selected_capability_roots.iter().any(|root| root.id == id)
    }
}

fn why(reason: ResetReason) -> &'static str {
    match reason {
        ResetReason::EpochChanged => "the daemon was started again since",
        ResetReason::Compacted => "it is too long ago for the daemon to know",
        ResetReason::SelectionChanged => "it was of another selection",
        ResetReason::Initial | ResetReason::Resync | ResetReason::Unspecified => {
            "the daemon does not know the token"
        }
    }
}
