//! Part of one mirror in the shared catalogs of its fleet.

use super::MirrorSelection;
use super::root_contents::RootContents;
use super::shared_catalogs::{CatalogTransfer, SharedCatalogKey, SharedCatalogs};
use caproot_core::proto::caproot::v1::{RootState, RootStatus, SkillView};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Shared catalogs, and the executor of a mirror that uses them.
#[derive(Debug, Clone)]
pub struct SharingExecutor {
    shared: SharedCatalogs,
    environment_id: Arc<str>,
    /// Whether the executor was reported because of a wrong digest.
    has_warned: Arc<AtomicBool>,
}

/// Catalogs that one stream of a mirror shares.
#[derive(Debug)]
pub struct CatalogSharing {
    executor: SharingExecutor,
    product: String,
    view: SkillView,
    /// Shared catalogs of the last complete state, by root id.
    in_use: BTreeMap<String, (SharedCatalogKey, Arc<RootContents>)>,
    /// Transfers for which other mirrors wait.
    transfers: Vec<CatalogTransfer>,
}

impl SharingExecutor {
    pub fn new(shared: &SharedCatalogs, environment_id: &str) -> Self {
        Self {
            shared: shared.clone(),
            environment_id: environment_id.into(),
            has_warned: Arc::default(),
        }
    }

    /// Returns the part of a stream of this selection.
    pub fn start_stream(&self, selection: &MirrorSelection) -> CatalogSharing {
        CatalogSharing {
            executor: self.clone(),
            product: selection.product.clone(),
            view: selection.view,
            in_use: BTreeMap::new(),
            transfers: Vec::new(),
        }
    }

    fn report_wrong_digest(&self, root_id: &str) {
        self.shared.record_rejected();
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the executor of the environment {:?} sent a wrong digest of the catalog of the \
                 root {root_id:?}; its catalogs with a wrong digest are not shared",
                self.environment_id
            );
        }
    }
}

impl CatalogSharing {
    /// Returns the shared contents of roots with these digests, by root id. Waits while other mirrors
    /// transfer them. The stream transfers the others.
    pub async fn obtain(&mut self, roots: &[RootStatus]) -> HashMap<String, Arc<RootContents>> {
        let keys: Vec<_> = roots.iter().map(|root| self.key(root)).collect();
        let obtained = self.executor.shared.obtain(&keys).await;
        self.transfers = obtained.transfers;
        obtained.stored
    }

    /// Reports an event to the mirrors that wait for the transfers of this stream.
    pub fn record_progress(&self) {
        self.transfers
            .iter()
            .for_each(CatalogTransfer::record_progress);
    }

    /// Ends the transfers, after a complete state or the loss of the executor.
    pub fn end_transfers(&mut self) {
        self.transfers.clear();
    }

    /// Shares the contents of a root, or replaces them by equal shared contents. Contents without
    /// the digest that the executor sent stay with this mirror.
    pub fn share(&mut self, status: &RootStatus, contents: &mut Arc<RootContents>) {
        let before = self.in_use.remove(&status.id);
        if !has_digest(status) {
            return;
        }

        let unchanged = before.filter(|(key, shared)| {
            key.catalog_digest == status.catalog_digest && Arc::ptr_eq(shared, contents)
        });
        let entry = unchanged.or_else(|| self.share_verified(status, contents));
        self.in_use
            .extend(entry.map(|entry| (status.id.clone(), entry)));
    }

    /// Shares contents, if they have the digest that the executor sent.
    fn share_verified(
        &self,
        status: &RootStatus,
        contents: &mut Arc<RootContents>,
    ) -> Option<(SharedCatalogKey, Arc<RootContents>)> {
        if contents.digest() != status.catalog_digest {
            self.executor.report_wrong_digest(&status.id);
            return None;
        }
        let key = self.key(status);
        let shared = self.executor.shared.share(&key, contents);
        contents.clone_from(&shared);
        Some((key, shared))
    }

    fn key(&self, root: &RootStatus) -> SharedCatalogKey {
        SharedCatalogKey {
            root_id: root.id.clone(),
            catalog_digest: root.catalog_digest.clone(),
            product: self.product.clone(),
            view: self.view,
        }
    }
}

/// Whether a root is ready and has a digest.
pub fn has_digest(status: &RootStatus) -> bool {
    status.state() == RootState::Ready && !status.catalog_digest.is_empty()
}

impl Drop for CatalogSharing {
    fn drop(&mut self) {
        for (key, contents) in self.in_use.values() {
            self.executor.shared.retain(key, contents);
        }
    }
}
