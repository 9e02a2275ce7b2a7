//! Reads and lists files of published packages. The catalog decides whether a package may be read.

use super::policy::{CatalogPolicy, RootKey};
use super::{
    CatalogStore, ConsistencyLevel, DeadlineExceeded, RootState, ScopedSelection, WaitBudget,
};
use crate::daemon::fs::package_walk::{FileListToken, WalkLimits};
use crate::daemon::fs::{
    FileListPage, FileListRequest, FilePage, FilePageRequest, FileReadError, ResolvedRootDir,
    read_page, read_page_cached,
};
use crate::daemon::model::{
    AccessScope, Catalog, FileVersion, RootReason, SelectedRoot, skill_file_name,
};
use caproot_core::sync::{BlockingError, run_blocking};
use caproot_core::wire::limits::{MAX_HANDLE_BYTES, MAX_PAGE_BYTES, MAX_READ_BYTES};
use caproot_core::wire::{RelPath, handle};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio_util::sync::CancellationToken;

/// Encoded size of a listed file without its handle: digest, media type, numbers and framing.
const FILE_OVERHEAD_BYTES: usize = 256;
/// Part of a page that is reserved for the page token, the epoch and the framing.
const PAGE_RESERVE_BYTES: usize = 8 << 10;

/// Request for a page of a file.
#[derive(Debug)]
pub struct ReadRequest {
    /// Directories that the caller may use.
    pub access_scope: Arc<AccessScope>,
    /// Root that lists the package.
    pub root: SelectedRoot,
    /// Path of the package below the root.
    pub package: RelPath,
    /// Path of the file below the package; `None` reads SKILL.md.
    pub resource: Option<RelPath>,
    /// Version and offset from which to continue after an earlier page.
    pub continue_from: Option<(FileVersion, u64)>,
    /// Maximum size of the page, at least 4.
    pub max_bytes: usize,
    /// Digest of the content that the caller has. If the digest matches, the page has no content.
    pub unless_digest: Option<String>,
    /// Required freshness of the catalog.
    pub consistency: ConsistencyLevel,
}

/// Request for a page of the file list of a package.
#[derive(Debug)]
pub struct FilesRequest {
    /// Directories that the caller may use.
    pub access_scope: Arc<AccessScope>,
    /// Root that lists the package.
    pub root: SelectedRoot,
    /// Path of the package below the root.
    pub package: RelPath,
    /// End of the previous page.
    pub bookmark: Option<FileListToken>,
    /// Maximum number of files.
    pub max_files: usize,
    /// Whether the list has digests of the files.
    pub with_digests: bool,
}

/// Reason why a file or file list could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackageReadError {
    /// The root cannot be used.
    RootUnavailable(RootReason),
    /// The first scan of the root has not ended.
    RootPending,
    /// The catalog does not list the package.
    PackageNotFound,
    /// The file cannot be read.
    File(FileReadError),
    /// The wait budget ended before a fresh scan.
    DeadlineExceeded,
    /// The system refused a thread for the read.
    NoThread,
}

impl From<DeadlineExceeded> for PackageReadError {
    fn from(_: DeadlineExceeded) -> Self {
        Self::DeadlineExceeded
    }
}

/// Catalog that lists the requested package.
struct KeyedCatalog {
    catalog: Arc<Catalog>,
    key: RootKey,
}

impl CatalogStore {
    /// Reads a page of a file: at once if the page cache of the kernel has all bytes, else on a
    /// blocking thread.
    pub async fn read(
        &self,
        request: ReadRequest,
        wait_budget: WaitBudget,
    ) -> Result<FilePage, PackageReadError> {
        match try_read_cached(self, &request) {
            Some(page) => Ok(page),
            // Boxed because the future is large and rarely needed.
            None => Box::pin(read_from_disk(self, request, wait_budget)).await,
        }
    }

    /// Lists a page of the files of a package.
    pub async fn list_files(
        &self,
        request: FilesRequest,
        wait_budget: WaitBudget,
    ) -> Result<FileListPage, PackageReadError> {
        let access_scope = request.access_scope.clone();
        let found = find_package(
            self,
            &access_scope,
            &request.root,
            &request.package,
            ConsistencyLevel::Cached,
            wait_budget,
        );

        run_disk_read(self, &access_scope, found.await?, move |disk| {
            let limits = disk.policy.limits();
            let package_bytes = handle::encoded_path_len(&request.package);
            let handle_bytes = handle::formatted_len(&request.root.id, package_bytes);
            let page = FileListRequest {
                package: &request.package,
                from: request.bookmark.as_ref(),
                limits: WalkLimits {
                    entries: limits.max_entries,
                    depth: limits.max_depth,
                    path_bytes: MAX_HANDLE_BYTES.saturating_sub(handle_bytes),
                },
                max_files: request.max_files,
                max_bytes: MAX_PAGE_BYTES - PAGE_RESERVE_BYTES,
                bytes_per_file: handle_bytes + FILE_OVERHEAD_BYTES,
                max_digest_bytes: request.with_digests.then_some(limits.max_file_bytes),
                digests_declarations: request.with_digests
                    && disk.catalog.plugin(&request.package).is_some(),
                rules: disk
                    .policy
                    .read_rules(disk.catalog, &request.package)
                    .ok_or(PackageReadError::PackageNotFound)?,
            };

            let digest_cache = &disk.store.inner.read_caches.digests;
            let listed =
                crate::daemon::fs::list_files(disk.root, &page, digest_cache, disk.cancel_token);
            let listed = listed.map_err(|error| match error {
                // The package was removed after the scan.
                FileReadError::NotFound => PackageReadError::PackageNotFound,
                // The error is about the package, not about a single file.
                FileReadError::Denied => PackageReadError::File(FileReadError::Failed),
                error => PackageReadError::File(error),
            })?;
            if listed.has_unapproved_file {
                disk.compare_again(&request.package);
            }
            Ok(listed)
        })
        .await
    }
}

/// Returns the page if the root has a snapshot and the page cache of the kernel has all bytes.
fn try_read_cached(store: &CatalogStore, request: &ReadRequest) -> Option<FilePage> {
    let access_scope = &request.access_scope;
    let (key, state) = cached_root_state(store, access_scope, &request.root, request.consistency)?;

    let catalog = catalog_with_package(&state, &request.package).ok()?;
    let policy = store.policy();
    let scope = policy.scope_for(access_scope);

    let resource = request.resource.clone().unwrap_or_else(skill_file_name);
    let page = request.to_file_page(&resource, &policy, &catalog).ok()?;
    read_page_cached(
        &scope.allowed_dirs,
        &key.path,
        &page,
        &store.inner.read_caches,
    )
}

async fn read_from_disk(
    store: &CatalogStore,
    request: ReadRequest,
    wait_budget: WaitBudget,
) -> Result<FilePage, PackageReadError> {
    let access_scope = request.access_scope.clone();
    let found = find_package(
        store,
        &access_scope,
        &request.root,
        &request.package,
        request.consistency,
        wait_budget,
    );

    run_disk_read(store, &access_scope, found.await?, move |disk| {
        let resource = request.resource.clone().unwrap_or_else(skill_file_name);
        let page = request.to_file_page(&resource, disk.policy, disk.catalog)?;
        read_page(
            disk.root,
            &page,
            &disk.store.inner.read_caches,
            disk.cancel_token,
        )
        .map_err(|error| {
            if let FileReadError::NotApproved { .. } = error {
                let refused = &disk.store.inner.refused_reads;
                refused.fetch_add(1, Ordering::Relaxed);
                disk.compare_again(&request.package);
            }
            PackageReadError::File(error)
        })
    })
    .await
}

/// Arguments of a disk read.
struct DiskRead<'a> {
    store: &'a CatalogStore,
    policy: &'a CatalogPolicy,
    catalog: &'a Catalog,
    root: &'a ResolvedRootDir,
    key: &'a RootKey,
    cancel_token: &'a CancellationToken,
}

impl DiskRead<'_> {
    /// Has a package compared again in which a file differs from the approved one: the change may have
    /// caused no event.
    fn compare_again(&self, package: &RelPath) {
        let mut state = self.store.lock_state();
        if let Some(task) = state.task_handle_mut(self.key) {
            task.changes.record_refused_package(package);
        }
    }
}

/// Runs a read on a blocking thread, after acquiring a read permit of the root.
async fn run_disk_read<T: Send + 'static>(
    store: &CatalogStore,
    access_scope: &AccessScope,
    found: KeyedCatalog,
    read: impl FnOnce(DiskRead<'_>) -> Result<T, PackageReadError> + Send + 'static,
) -> Result<T, PackageReadError> {
    let KeyedCatalog { catalog, key } = found;

    let store = store.clone();
    let policy = store.policy();
    let scope = policy.scope_for(access_scope);
    let permits = store
        .lock_state()
        .task_handle_mut(&key)
        .map(|task| task.read_permits.clone())
        .ok_or(PackageReadError::PackageNotFound)?;
    // The semaphore is never closed.
    let permit = permits
        .acquire_owned()
        .await
        .map_err(|_| PackageReadError::DeadlineExceeded)?;

    // Dropped with this call: the read stops between two chunks if the caller disconnects.
    let cancel_token = CancellationToken::new();
    let _cancel_guard = cancel_token.clone().drop_guard();

    let task = run_blocking(move || {
        // The thread keeps the permit: its read may go on for a while after the caller has gone.
        let _permit = permit;
        let root = scope
            .allowed_dirs
            .resolve(&key.path)
            .map_err(|error| PackageReadError::RootUnavailable(error.into()))?;
        read(DiskRead {
            store: &store,
            policy: &policy,
            catalog: &catalog,
            root: &root,
            key: &key,
            cancel_token: &cancel_token,
        })
    });

    match task.await {
        Ok(result) => result,
        Err(BlockingError::NoThread(_)) => Err(PackageReadError::NoThread),
        Err(error) => {
            tracing::error!(%error, "internal error: read of a package panicked");
            Err(PackageReadError::File(FileReadError::Failed))
        }
    }
}

/// Returns the catalog of a root if the catalog lists the package.
async fn find_package(
    store: &CatalogStore,
    access_scope: &Arc<AccessScope>,
    root: &SelectedRoot,
    package: &RelPath,
    consistency: ConsistencyLevel,
    wait_budget: WaitBudget,
) -> Result<KeyedCatalog, PackageReadError> {
    if let Some((key, state)) = cached_root_state(store, access_scope, root, consistency) {
        return Ok(KeyedCatalog {
            catalog: catalog_with_package(&state, package)?,
            key,
        });
    }

    let selection = ScopedSelection {
        access_scope: access_scope.clone(),
        roots: vec![root.clone()],
    };
    let mut view = store.view(&selection, consistency, wait_budget).await?;

    let state = view
        .roots
        .pop()
        .map(|root| root.state)
        .ok_or(PackageReadError::RootPending)?;
    let catalog = catalog_with_package(&state, package)?;

    let key = root_key(store, &selection.access_scope, root)
        .map_err(PackageReadError::RootUnavailable)?;
    Ok(KeyedCatalog { catalog, key })
}

/// Returns the snapshot of a root if the consistency level allows a cached snapshot. This is the
/// fast path of most reads: the caller listed the root before.
fn cached_root_state(
    store: &CatalogStore,
    access_scope: &AccessScope,
    root: &SelectedRoot,
    consistency: ConsistencyLevel,
) -> Option<(RootKey, RootState)> {
    if consistency == ConsistencyLevel::Fresh {
        return None;
    }
    let key = root_key(store, access_scope, root).ok()?;
    let mut state = store.lock_state();
    let root_state = RootState::Snapshot(state.touch_known(&key)?.clone());
    drop(state);
    Some((key, root_state))
}

fn root_key(
    store: &CatalogStore,
    access_scope: &AccessScope,
    root: &SelectedRoot,
) -> Result<RootKey, RootReason> {
    let policy = store.policy();
    policy
        .scope_for(access_scope)
        .root_key(root, &policy.environments)
}

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
        policy: &'a CatalogPolicy,
        catalog: &'a Catalog,
    ) -> Result<FilePageRequest<'a>, PackageReadError> {
        let rules = policy
            .read_rules(catalog, &self.package)
            .ok_or(PackageReadError::PackageNotFound)?;
        Ok(FilePageRequest {
            package: &self.package,
            resource,
            from: self.continue_from,
            max_bytes: self.max_bytes.min(MAX_READ_BYTES),
            unless_digest: self.unless_digest.as_deref(),
            rules,
            max_file_bytes: policy.limits().max_file_bytes,
        })
    }
}
