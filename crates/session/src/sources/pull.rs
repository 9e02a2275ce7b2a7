//! Skill of an MCP server or a site as files on this machine.

use super::SkillSource;
use crate::{ToolError, ToolErrorCode};
use caproot_client::pull::{
    PullError, PullProgress, PullReport, PullRequest, SourcePackage, pull_fetched,
};

/// Writes a skill of an MCP server or a site to a directory. The package of the request is the handle
/// of the skill. A file is written only if it passes the checks of a read. If the skill changes in the
/// meantime, the pull starts again, at most four times.
///
/// # Errors
///
/// A source that does not return the files, files that fail verification, and the errors of
/// [`pull_package`](caproot_client::pull::pull_package).
pub async fn pull_skill(
    source: &dyn SkillSource,
    request: &PullRequest,
    report_progress: &mut (dyn FnMut(PullProgress) + Send),
) -> Result<PullReport, PullError> {
    pull_fetched(
        &mut || {
            Box::pin(async {
                let files = source.fetch_package(&request.package).await?.into_iter();
                let fetched: SourcePackage =
                    files.map(|file| (file.resource, file.bytes)).collect();
                Ok::<_, PullError>(fetched)
            })
        },
        request,
        report_progress,
    )
    .await
}

impl From<ToolError> for PullError {
    fn from(error: ToolError) -> Self {
        match error.code() {
            ToolErrorCode::ResourceChanged => Self::KeepsChanging,
            code => Self::Source {
                message: error.sentence(),
                is_temporary: code == ToolErrorCode::SourceUnavailable,
            },
        }
    }
}
