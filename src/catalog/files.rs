//! Lists of a package's files: permitted by the published catalog, then walked on the disk.

use super::reads::Found;
use super::{Consistency, Keeper, Patience, ReadError};
use crate::disk::{FilesFound, FilesPage, Unread, Wanted, list_files};
use crate::domain::files::{Bookmark, Bounds};
use crate::domain::limits::{MAX_HANDLE_BYTES, MAX_PAGE_BYTES};
use crate::domain::{RelPath, Selected, handle};

/// What a file takes of an answer beside its handle: digest, media type, numbers and framing.
const FILE_BYTES: usize = 256;
/// Kept free for the page token, the epoch and the framing.
const SPARE_BYTES: usize = 8 << 10;

/// One page of a package's files.
#[derive(Debug)]
pub struct FilesRequest {
    /// The root that listed the package.
    pub root: Selected,
    /// The package below the root.
    pub package: RelPath,
    /// Where the page before ended.
    pub from: Option<Bookmark>,
    /// The most files.
    pub max_files: usize,
    /// Whether files are digested.
    pub digests: bool,
}

impl Keeper {
    /// Lists one page.
    pub async fn files(
        &self,
        request: FilesRequest,
        patience: Patience,
    ) -> Result<FilesFound, ReadError> {
        let FilesRequest { root, package, .. } = &request;
        let found = self.find(root, package, Consistency::Cached, patience).await?;
        let Found { catalog, key } = found;
        let permit = self.turn(&key).await?;
        let (shared, regime, bound) = (self.0.clone(), self.regime(), self.bound());
        // As of a read.
        let (_waiting, wanted) = Wanted::new();
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let root = bound.allowed.resolve(&key.path).map_err(|b| ReadError::Root(b.into()))?;
            let limits = &regime.rules.limits;
            let above = handle::encoded_len(&request.package);
            let above = handle::printed_len(&request.root.id, above);
            let page = FilesPage {
                package: &request.package,
                from: request.from.as_ref(),
                bounds: Bounds {
                    entries: limits.max_entries,
                    depth: limits.max_depth,
                    path_bytes: MAX_HANDLE_BYTES.saturating_sub(above),
                },
                max_files: request.max_files,
                max_bytes: MAX_PAGE_BYTES - SPARE_BYTES,
                file_bytes: above + FILE_BYTES,
                digest: request.digests.then_some(limits.max_file_bytes),
                rule: regime.rule(&catalog, &request.package),
            };
            list_files(&root, &page, &shared.versions, &wanted).map_err(|unread| match unread {
                // It was in the catalog a moment ago.
                Unread::NotFound => ReadError::NoPackage,
                // No file is meant, but the package as a whole.
                Unread::Denied => ReadError::Unread(Unread::Failed),
                unread => ReadError::Unread(unread),
            })
        });
        done.await.unwrap_or_else(|panic| {
            tracing::error!(%panic, "a list of files ended by a defect");
            Err(ReadError::Unread(Unread::Failed))
        })
    }
}
