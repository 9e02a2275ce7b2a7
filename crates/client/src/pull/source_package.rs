//! Package whose files a source fetches and verifies all at once, because they are few and small. The
//! pull writes them as those of a daemon.

use super::pull_error::SystemResult as _;
use super::repeat::PullAttempts;
use super::{PackageOrigin, PullError, PullProgress, PullReport, PullRequest, pull_from};
use caproot_core::proto::caproot::v1::Resource;
use caproot_core::wire::ContentDigest;
use futures_util::future::BoxFuture;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

/// Fetched files of a package.
pub struct SourcePackage {
    package: String,
    /// Contents by name: the handle of the file without the handle of the package.
    files: BTreeMap<String, Vec<u8>>,
}

/// Writes a package that a source fetches to a directory. If `fetch` reports that the package changed
/// in the meantime, the pull starts again, at most four times.
///
/// # Errors
///
/// The errors of `fetch` and of [`super::pull_package`].
pub async fn pull_fetched<'a>(
    fetch: &mut (dyn FnMut() -> BoxFuture<'a, Result<SourcePackage, PullError>> + Send),
    request: &PullRequest,
    report_progress: &mut (dyn FnMut(PullProgress) + Send),
) -> Result<PullReport, PullError> {
    let mut attempts = PullAttempts::new();
    let package = loop {
        let fetched = fetch().await;
        if let Some(fetched) = attempts.finish(fetched).await {
            break fetched?;
        }
    };
    pull_from(PackageOrigin::Source(&package), request, report_progress).await
}

impl SourcePackage {
    /// Creates the package with a handle, without files.
    #[must_use]
    pub fn new(package: &str) -> Self {
        Self {
            package: package.to_owned(),
            files: BTreeMap::new(),
        }
    }

    /// Adds a file.
    ///
    /// # Errors
    ///
    /// A handle that is outside the package.
    pub fn add_file(&mut self, handle: &str, contents: Vec<u8>) -> Result<(), PullError> {
        let name = handle.strip_prefix(&*self.package);
        let Some(name) = name.and_then(|rest| rest.strip_prefix('/')) else {
            return Err(PullError::invalid(handle, "is outside the package"));
        };
        self.files.insert(name.to_owned(), contents);
        Ok(())
    }

    /// Returns the files as a daemon lists them.
    pub(super) fn resources(&self) -> Vec<Resource> {
        let files = self.files.iter().map(|(name, bytes)| Resource {
            resource: format!("{}/{name}", self.package),
            size_bytes: bytes.len() as u64,
            digest: ContentDigest::of(bytes).to_string(),
            ..Resource::default()
        });
        files.collect()
    }

    /// Writes a file.
    pub(super) fn write_file(
        &self,
        name: &str,
        mut out: File,
        path: &Path,
    ) -> Result<(), PullError> {
        let bytes = self.files.get(name).ok_or(PullError::KeepsChanging)?;
        out.write_all(bytes).at(path)
    }
}
