//! Catalogs that a caller holds, so that the daemon need not send them.

use crate::catalog::CatalogView;
use crate::model::SelectedRoot;
use crate::proto::caproot::v1 as pb;
use std::collections::BTreeSet;

/// Root ids with digests of their catalogs.
#[derive(Default)]
pub struct KnownCatalogs(BTreeSet<(String, String)>);

impl KnownCatalogs {
    /// Takes the catalogs of selected roots from a request.
    pub fn new(catalogs: Vec<pb::KnownCatalog>, selection: &[SelectedRoot]) -> Self {
        let ids: BTreeSet<_> = selection.iter().map(|root| root.id.as_str()).collect();
        let selected = catalogs.into_iter().filter(|catalog| ids.contains(&*catalog.root_id));
        Self(selected.map(|catalog| (catalog.root_id, catalog.catalog_digest)).collect())
    }

    /// Removes the catalogs of the roots that are ready in a view.
    pub fn remove_ready_roots(&mut self, view: &CatalogView) {
        let ready = view.roots.iter().filter(|root| root.state.catalog().is_some());
        let ready: BTreeSet<_> = ready.map(|root| root.id.as_str()).collect();
        self.0.retain(|(id, _)| !ready.contains(&**id));
    }

    /// Whether the caller holds no catalog of a root that was not ready yet.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes all catalogs.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Marks the roots whose catalogs the caller holds.
    pub fn mark_unchanged(&self, statuses: &mut [pb::RootStatus]) {
        if self.0.is_empty() {
            return;
        }
        for status in statuses.iter_mut().filter(|status| !status.catalog_digest.is_empty()) {
            let catalog = (status.id.clone(), status.catalog_digest.clone());
            status.unchanged = self.0.contains(&catalog);
        }
    }

    /// Appends the catalogs to the bytes that identify a query. A length precedes each text, and the
    /// first byte differs from a length.
    pub fn append_to(&self, query: &mut Vec<u8>) {
        if !self.0.is_empty() {
            query.push(u8::MAX);
        }
        for text in self.0.iter().flat_map(|(id, digest)| [id, digest]) {
            query.extend((text.len() as u64).to_be_bytes());
            query.extend(text.as_bytes());
        }
    }
}
