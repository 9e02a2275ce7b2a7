//! Waits until what a session shows may be another: a source's skills or state changed, or one was lost
//! for so long that its skills are no longer shown.

use super::source::{SkillSource, SourceKind, SourceWatch};
use futures_util::future::select_all;
use std::sync::Arc;

/// Waits for changes of a session's sources.
#[derive(Debug)]
pub struct SessionWatch(Vec<(ChangedSource, Box<dyn SourceWatch>)>);

/// The source that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedSource {
    /// Its kind.
    pub kind: SourceKind,
    /// Its name among those of its kind; an executor's is its environment.
    pub id: String,
}

impl SessionWatch {
    pub(super) fn new(sources: &[Arc<dyn SkillSource>]) -> Self {
        let watched = sources.iter().filter_map(|source| {
            let who = ChangedSource { kind: source.kind(), id: source.id().to_owned() };
            Some((who, source.watch()?))
        });
        Self(watched.collect())
    }

    /// Waits for the next change; whose it is. May be dropped while it waits, and called again.
    pub async fn next(&mut self) -> ChangedSource {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        let each = self.0.iter_mut().map(|(who, watch)| {
            Box::pin(async move {
                watch.changed().await;
                who.clone()
            })
        });
        select_all(each).await.0
    }
}
