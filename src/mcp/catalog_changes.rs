//! Change notifications for one MCP client. Only complete revisions are compared. For a slow
//! client, several revisions are one change.

use super::catalog::{McpCatalog, ServedSkill};
use super::feed::{FeedState, SyncState};
use std::sync::Arc;
use tokio::sync::watch;

/// Receiver of the catalog changes for one client.
pub struct CatalogChanges {
    state: watch::Receiver<FeedState>,
    /// Last catalog that the client was notified of; `None` before the first catalog.
    last_seen: Option<Arc<McpCatalog>>,
}

/// Difference of two revisions.
#[derive(Debug)]
pub struct CatalogChange {
    before: Arc<McpCatalog>,
    after: Arc<McpCatalog>,
}

impl CatalogChanges {
    /// Starts at the current revision.
    pub fn new(mut state: watch::Receiver<FeedState>) -> Self {
        let now = state.borrow_and_update();
        let last_seen = (now.sync != SyncState::Connecting).then(|| now.catalog.clone());
        drop(now);
        Self { state, last_seen }
    }

    /// Waits for the next change. Returns `None` after the last change. Cancel-safe.
    pub async fn next(&mut self) -> Option<CatalogChange> {
        loop {
            self.state.changed().await.ok()?;
            let now = self.state.borrow_and_update();
            if now.sync != SyncState::Synced {
                continue;
            }
            let after = now.catalog.clone();
            drop(now);
            let before = self.last_seen.replace(after.clone());
            if let Some(before) = before.filter(|before| !Arc::ptr_eq(before, &after)) {
                return Some(CatalogChange { before, after });
            }
        }
    }
}

impl CatalogChange {
    /// Whether lists of resources changed in names, descriptions or fields.
    pub fn resources_changed(&self) -> bool {
        !self.before.lists_same_resources(&self.after)
    }

    /// Whether lists of prompts changed in names or descriptions.
    pub fn prompts_changed(&self) -> bool {
        !self.before.lists_same_prompts(&self.after)
    }

    /// Whether the SKILL.md at this URI changed, appeared or disappeared.
    pub fn resource_updated(&self, uri: &str) -> bool {
        let before = self.before.skill_by_main_uri(uri);
        let after = self.after.skill_by_main_uri(uri);
        before.map(ServedSkill::file_version) != after.map(ServedSkill::file_version)
    }
}

#[cfg(test)]
mod tests {
    use super::{CatalogChanges, FeedState, SyncState};
    use crate::mcp::catalog::McpCatalog;
    use crate::mcp::skill_record::SkillRecord;
    use crate::mcp::skill_record::tests::skill;
    use caproot_core::proto::caproot::v1::{SelectedCapabilityRoot, Skill};
    use std::sync::Arc;
    use tokio::sync::watch;

    fn state(skills: Vec<Skill>) -> FeedState {
        let entries: Vec<_> = skills
            .into_iter()
            .map(|skill| Arc::new(SkillRecord::from_skill(0, skill)))
            .collect();
        let roots = vec![SelectedCapabilityRoot {
            id: "r".into(),
            location: None,
        }];
        let catalog = McpCatalog::new(roots.into(), entries.iter(), [].iter(), false);
        FeedState {
            catalog: Arc::new(catalog),
            sync: SyncState::Synced,
        }
    }

    #[tokio::test]
    async fn each_client_receives_its_changes() {
        let (sender, receiver) = watch::channel(FeedState::default());
        let mut changes = CatalogChanges::new(receiver.clone());
        sender.send_replace(state(vec![skill("skill://r/a", "a")]));
        let mut later = CatalogChanges::new(receiver);
        let edited = Skill {
            digest: "sha256:2".into(),
            ..skill("skill://r/a", "a")
        };
        let uri = "skill://r/a/SKILL.md";

        assert!(
            tokio::time::timeout(std::time::Duration::ZERO, changes.next())
                .await
                .is_err()
        );
        sender.send_replace(state(vec![edited.clone()]));
        for changes in [&mut changes, &mut later] {
            let change = changes.next().await.expect("a change");
            assert!(
                change.resource_updated(uri)
                    && !change.resources_changed()
                    && !change.resource_updated("skill://r/b/SKILL.md")
            );
        }
        sender.send_replace(FeedState {
            sync: SyncState::Lost("x".into()),
            ..state(vec![])
        });
        sender.send_replace(state(vec![edited, skill("skill://r/b", "b")]));
        let change = changes.next().await.expect("a change");
        assert!(
            change.resources_changed()
                && change.resource_updated("skill://r/b/SKILL.md")
                && !change.resource_updated(uri)
        );
        drop(sender);
        assert!(changes.next().await.is_none());
    }
}
