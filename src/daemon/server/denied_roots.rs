//! Default roots that were created after the start, in directories that the sandbox denies.

use super::service_manager::has_service_manager;
use crate::daemon::catalog::CatalogStore;
use crate::daemon::model::RootReason;
use std::collections::HashSet;
use std::future::pending;
use tokio::sync::watch;

/// Looks for default roots that a new process could read. A sandbox cannot be widened.
#[derive(Debug)]
pub struct DeniedRoots {
    store: CatalogStore,
    revisions: watch::Receiver<u64>,
    /// Roots that were once in a state in which the sandbox did not deny them. A root that is denied from the
    /// start of a process stays denied in the next process.
    not_denied: HashSet<String>,
}

impl DeniedRoots {
    pub fn new(store: &CatalogStore) -> Self {
        Self {
            store: store.clone(),
            revisions: store.subscribe_revisions(),
            not_denied: HashSet::new(),
        }
    }

    /// Returns the id of a root once a service manager that starts a new process would make the root
    /// readable. Never returns without a service manager.
    pub async fn wait_for_new(&mut self) -> String {
        if !has_service_manager() {
            return pending().await;
        }
        loop {
            if let Some(id) = self.find_new() {
                return id;
            }
            if self.revisions.changed().await.is_err() {
                // The sender was dropped, at the end of the daemon.
                return pending().await;
            }
        }
    }

    fn find_new(&mut self) -> Option<String> {
        let selection = self.store.select_published_roots();
        let published = self.store.published_roots(&selection.access_scope);
        // Only the daemon's own user can create a default root. The author of another root could end one
        // process after the other.
        let is_default = |id: &str| {
            published
                .iter()
                .any(|root| root.is_optional && root.id.as_str() == id)
        };

        let mut new = None;
        for root in self.store.current_view(&selection).roots {
            let (id, reason) = (root.id.as_str(), root.state.reason());
            if reason == Some(RootReason::SandboxDenied) {
                if is_default(id) && self.not_denied.contains(id) {
                    new = Some(id.to_owned());
                }
            } else if reason.is_some() || root.state.catalog().is_some() {
                self.not_denied.insert(id.to_owned());
            }
        }
        new
    }
}
