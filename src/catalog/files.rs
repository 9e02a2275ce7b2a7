//! Lists of a package's files: permitted by the published catalog, then walked on the disk.

use super::reads::KeyedCatalog;
use super::{CatalogStore, ConsistencyLevel, PackageReadError, WaitBudget};
use crate::disk::{CancelToken, FileListPage, FileListRequest, FileReadError, list_files};
use crate::domain::limits::{MAX_HANDLE_BYTES, MAX_PAGE_BYTES};
use crate::domain::package_walk::{FileListToken, WalkLimits};
use crate::domain::{RelPath, SelectedRoot, handle};

/// What a file takes of an answer beside its handle: digest, media type, numbers and framing.
const FILE_OVERHEAD_BYTES: usize = 256;
/// Kept free for the page token, the epoch and the framing.
const PAGE_RESERVE_BYTES: usize = 8 << 10;

/// One page of a package's files.
#[derive(Debug)]
pub struct FilesRequest {
    /// The root that listed the package.
    pub root: SelectedRoot,
    /// The package below the root.
    pub package: RelPath,
    /// Where the page before ended.
    pub bookmark: Option<FileListToken>,
    /// The most files.
    pub max_files: usize,
    /// Whether files are digested.
    pub with_digests: bool,
}

impl CatalogStore {
    /// Lists one page.
    pub async fn list_files(
        &self,
        request: FilesRequest,
        patience: WaitBudget,
    ) -> Result<FileListPage, PackageReadError> {
        let FilesRequest { root, package, .. } = &request;
        let found = self.find_package(root, package, ConsistencyLevel::Cached, patience).await?;
        let KeyedCatalog { catalog, key } = found;
        let permit = self.acquire_read_permit(&key).await?;
        let (shared, regime, bound) = (self.0.clone(), self.policy(), self.scope());
        // As of a read.
        let (_waiting, wanted) = CancelToken::new();
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let root = bound
                .allowed_dirs
                .resolve(&key.path)
                .map_err(|b| PackageReadError::RootUnavailable(b.into()))?;
            let limits = &regime.rules.limits;
            let above = handle::encoded_path_len(&request.package);
            let above = handle::formatted_len(&request.root.id, above);
            let page = FileListRequest {
                package: &request.package,
                from: request.bookmark.as_ref(),
                limits: WalkLimits {
                    entries: limits.max_entries,
                    depth: limits.max_depth,
                    path_bytes: MAX_HANDLE_BYTES.saturating_sub(above),
                },
                max_files: request.max_files,
                max_bytes: MAX_PAGE_BYTES - PAGE_RESERVE_BYTES,
                bytes_per_file: above + FILE_OVERHEAD_BYTES,
                max_digest_bytes: request.with_digests.then_some(limits.max_file_bytes),
                rules: regime.read_rule(&catalog, &request.package),
            };
            list_files(&root, &page, &shared.versions, &wanted).map_err(|unread| match unread {
                // It was in the catalog a moment ago.
                FileReadError::NotFound => PackageReadError::PackageNotFound,
                // No file is meant, but the package as a whole.
                FileReadError::Denied => PackageReadError::File(FileReadError::Failed),
                unread => PackageReadError::File(unread),
            })
        });
        done.await.unwrap_or_else(|panic| {
            tracing::error!(%panic, "a list of files ended by a defect");
            Err(PackageReadError::File(FileReadError::Failed))
        })
    }
}
