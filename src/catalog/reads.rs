//! Reads of resources: permitted by the published catalog, then done on the disk.

use super::policy::CatalogPolicy;
use super::state::RootKey;
use super::{CatalogStore, ConsistencyLevel, DeadlineExceeded, RootState, WaitBudget};
use crate::disk::{
    CancelToken, FilePage, FilePageRequest, FileReadError, read_page, read_page_cached,
};
use crate::domain::limits::MAX_READ_BYTES;
use crate::domain::{Catalog, FileVersion, RelPath, RootReason, SelectedRoot, skill_file_name};
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// One page of one file.
#[derive(Debug)]
pub struct ReadRequest {
    /// The root that listed the package.
    pub root: SelectedRoot,
    /// The package below the root.
    pub package: RelPath,
    /// The file below the package; its SKILL.md where there is none.
    pub resource: Option<RelPath>,
    /// The version and offset of a page that goes on.
    pub continue_from: Option<(FileVersion, u64)>,
    /// The most bytes, at least 4.
    pub max_bytes: usize,
    /// A digest for which no content is wanted.
    pub unless_digest: Option<String>,
    /// How recent the catalog must be.
    pub consistency: ConsistencyLevel,
}

/// Why nothing was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackageReadError {
    /// The root cannot be used.
    RootUnavailable(RootReason),
    /// The root's first search goes on.
    RootPending,
    /// The package is not in the catalog.
    PackageNotFound,
    /// The file cannot be read.
    File(FileReadError),
    /// The catalog could not be made fresh in time.
    DeadlineExceeded,
}

/// What a read of a package goes by.
pub(super) struct KeyedCatalog {
    pub(super) catalog: Arc<Catalog>,
    pub(super) key: RootKey,
}

impl CatalogStore {
    /// Reads one page: at once where the kernel has all of it in memory, else on a thread that may wait.
    pub async fn read(
        &self,
        request: ReadRequest,
        patience: WaitBudget,
    ) -> Result<FilePage, PackageReadError> {
        match self.try_read_cached(&request) {
            Some(read) => Ok(read),
            // Rare, and large.
            None => Box::pin(self.read_from_disk(request, patience)).await,
        }
    }

    /// What of a known root the kernel has in memory.
    fn try_read_cached(&self, request: &ReadRequest) -> Option<FilePage> {
        let (key, state) = self.cached_root_state(&request.root, request.consistency)?;
        let catalog = catalog_with_package(&state, &request.package).ok()?;
        let (shared, regime, bound) = (&self.0, self.policy(), self.scope());
        let resource = request.resource.clone().unwrap_or_else(skill_file_name);
        let page = request.to_file_page(&resource, &regime, &catalog);
        read_page_cached(&bound.allowed_dirs, &key.path, &page, &shared.versions)
    }

    async fn read_from_disk(
        &self,
        request: ReadRequest,
        patience: WaitBudget,
    ) -> Result<FilePage, PackageReadError> {
        let ReadRequest { root, package, consistency, .. } = &request;
        let KeyedCatalog { catalog, key } =
            self.find_package(root, package, *consistency, patience).await?;
        let (shared, regime, bound) = (self.0.clone(), self.policy(), self.scope());
        let resource = request.resource.clone().unwrap_or_else(skill_file_name);
        let permit = self.acquire_read_permit(&key).await?;
        // Gone with this call: what is read for a caller who is gone ends between two chunks.
        let (_waiting, wanted) = CancelToken::new();
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let root = bound
                .allowed_dirs
                .resolve(&key.path)
                .map_err(|b| PackageReadError::RootUnavailable(b.into()))?;
            let page = request.to_file_page(&resource, &regime, &catalog);
            read_page(&root, &page, &shared.versions, &wanted).map_err(PackageReadError::File)
        });
        done.await.unwrap_or_else(|panic| {
            tracing::error!(%panic, "a read ended by a defect");
            Err(PackageReadError::File(FileReadError::Failed))
        })
    }

    /// Looks a package up in its root's catalog.
    pub(super) async fn find_package(
        &self,
        root: &SelectedRoot,
        package: &RelPath,
        consistency: ConsistencyLevel,
        patience: WaitBudget,
    ) -> Result<KeyedCatalog, PackageReadError> {
        if let Some((key, state)) = self.cached_root_state(root, consistency) {
            return Ok(KeyedCatalog { catalog: catalog_with_package(&state, package)?, key });
        }
        let view = self.view(std::slice::from_ref(root), consistency, patience).await;
        let state = view
            .map_err(|DeadlineExceeded| PackageReadError::DeadlineExceeded)?
            .roots
            .pop()
            .map(|r| r.state);
        let catalog = catalog_with_package(&state.ok_or(PackageReadError::RootPending)?, package)?;
        let key = self
            .root_keys(std::slice::from_ref(root))
            .pop()
            .ok_or(PackageReadError::RootPending)?;
        let key = key.map_err(PackageReadError::RootUnavailable)?;
        Ok(KeyedCatalog { catalog, key })
    }

    /// What is known of a root, where that will do: most reads are of one that was listed before.
    fn cached_root_state(
        &self,
        root: &SelectedRoot,
        consistency: ConsistencyLevel,
    ) -> Option<(RootKey, RootState)> {
        if consistency == ConsistencyLevel::Fresh {
            return None;
        }
        let key = self.root_keys(std::slice::from_ref(root)).pop()?.ok()?;
        let mut ledger = self.lock_state();
        let (held, work) = ledger.touch_known(&key)?;
        work.last_used_at = Instant::now();
        let state = RootState::Snapshot(held.clone());
        drop(ledger);
        Some((key, state))
    }

    /// Waits for a turn to read in a root.
    pub(super) async fn acquire_read_permit(
        &self,
        key: &RootKey,
    ) -> Result<OwnedSemaphorePermit, PackageReadError> {
        let reads = self.lock_state().task_handle_mut(key).map(|work| work.read_permits.clone());
        let Some(reads) = reads else { return Err(PackageReadError::PackageNotFound) };
        // Closed never: the semaphore lives as long as this clone of it.
        reads.acquire_owned().await.map_err(|_| PackageReadError::DeadlineExceeded)
    }
}

/// The root's catalog, which lists the package.
fn catalog_with_package(
    state: &RootState,
    package: &RelPath,
) -> Result<Arc<Catalog>, PackageReadError> {
    if let Some(reason) = state.reason() {
        return Err(PackageReadError::RootUnavailable(reason));
    }
    let catalog = state.catalog().ok_or(PackageReadError::RootPending)?;
    if catalog.skill(package).is_none() && catalog.plugin(package).is_none() {
        return Err(PackageReadError::PackageNotFound);
    }
    Ok(catalog.clone())
}

impl ReadRequest {
    fn to_file_page<'a>(
        &'a self,
        resource: &'a RelPath,
        regime: &'a CatalogPolicy,
        catalog: &'a Catalog,
    ) -> FilePageRequest<'a> {
        FilePageRequest {
            package: &self.package,
            resource,
            from: self.continue_from,
            max_bytes: self.max_bytes.min(MAX_READ_BYTES),
            unless_digest: self.unless_digest.as_deref(),
            rules: regime.read_rule(catalog, &self.package),
            max_file_bytes: regime.rules.limits.max_file_bytes,
        }
    }
}
