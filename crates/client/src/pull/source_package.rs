//! Package whose files a source fetches and verifies all at once, because they are few and small. The
//! pull writes them as those of a daemon.

use super::repeat::repeat_attempt;
use super::{PackageOrigin, PullError, PullProgress, PullReport, PullRequest, pull_from};
use futures_util::future::BoxFuture;
use std::collections::BTreeMap;

/// Contents of the fetched files of a package by handle.
pub type SourcePackage = BTreeMap<String, Vec<u8>>;

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
    let files = repeat_attempt(fetch).await?;
    pull_from(PackageOrigin::Source(&files), request, report_progress).await
}
