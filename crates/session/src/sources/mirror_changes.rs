//! Changes of a mirror that a session shows.

use super::SourceChanges;
use caproot_client::{Mirror, MirrorCatalog, MirrorSnapshot, MirrorState};
use futures_util::stream;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout_at;

/// Returns the changes of a mirror from its current snapshot on, and the end of the grace period.
pub fn mirror_changes(mirror: Mirror, grace_period: Duration) -> SourceChanges {
    let reported = ReportedState::new(&mirror.snapshot(), grace_period);
    Box::pin(stream::unfold(
        (mirror, reported),
        move |(mut mirror, reported)| async move {
            loop {
                let snapshot = mirror.snapshot();
                let now = ReportedState::new(&snapshot, grace_period);
                if !now.is_same(&reported) {
                    return Some(((), (mirror, now)));
                }

                match snapshot.state {
                    MirrorState::Stale { since, .. } if now.unavailable_reason.is_none() => {
                        // The next iteration reports the end of the grace period.
                        drop(timeout_at(since + grace_period, mirror.changed()).await);
                    }
                    _ => drop(mirror.changed().await),
                }
            }
        },
    ))
}

/// Part of a mirror's state that a session shows.
#[derive(Debug)]
struct ReportedState {
    catalog: Arc<MirrorCatalog>,
    unavailable_reason: Option<String>,
    /// Whether the changes since a save are known.
    has_changes_since: bool,
}

impl ReportedState {
    fn new(snapshot: &MirrorSnapshot, grace_period: Duration) -> Self {
        Self {
            catalog: snapshot.catalog.clone(),
            unavailable_reason: unavailable_reason(&snapshot.state, grace_period),
            has_changes_since: snapshot.changes_since.is_some(),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.catalog, &other.catalog)
            && self.unavailable_reason == other.unavailable_reason
            && self.has_changes_since == other.has_changes_since
    }
}

/// Returns the reason why the catalog of a mirror cannot be used. An executor that was lost less than
/// `grace_period` ago can be used.
pub fn unavailable_reason(state: &MirrorState, grace_period: Duration) -> Option<String> {
    match state {
        MirrorState::Live => None,
        MirrorState::Stale { since, .. } if since.elapsed() < grace_period => None,
        MirrorState::Stale { why, .. }
        | MirrorState::Connecting(Some(why))
        | MirrorState::Failed(why) => Some(why.to_string()),
        MirrorState::Connecting(None) => Some("it does not answer yet".to_owned()),
    }
}
