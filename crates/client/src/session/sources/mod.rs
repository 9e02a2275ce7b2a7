//! Sources of skills: executors, local directories, MCP servers and sites. A source lists skills, reports
//! changes, and returns pages of files.

mod approved;
mod daemon;
#[cfg(feature = "mcp")]
pub mod mcp;
mod mirror_watch;
#[cfg(feature = "mcp")]
pub mod site;
mod verified_file;

pub use super::skill_source::{
    FetchedFile, PackageFile, PackageFilesPage, PackageFilesRequest, SkillListing, SkillSource,
    SourceKind, SourceSnapshot, SourceWatch, TextPage, TextPageRequest,
};
pub(super) use approved::ApprovedSource;
pub use daemon::{DaemonSource, ExecutorState, ExecutorStatus};

use super::result::{ToolError, ToolErrorCode};
use super::skill_source::unavailable_error;
use crate::root_id;
use caproot_core::proto::caproot::v1::read_resource_response::Body;
use caproot_core::proto::caproot::v1::{ReadResourceRequest, ReadResourceResponse};

impl TextPage {
    /// Returns the page of a response. The page must be of the requested file, and text.
    fn from_response(
        request: &ReadResourceRequest,
        page: ReadResourceResponse,
    ) -> Result<Self, ToolError> {
        let is_requested = if request.resource.is_empty() {
            root_id(&page.resource) == root_id(&request.package)
        } else {
            page.resource == request.resource
        };
        if !is_requested {
            let reason = "the page is of another file";
            return Err(invalid_response_error("the executor", reason));
        }

        match page.body {
            Some(Body::Contents(contents)) => Ok(Self {
                resource: page.resource,
                contents,
                next_cursor: page.next_cursor,
                digest: page.digest,
            }),

            Some(Body::Data(_)) => {
                let media = if page.media_type.is_empty() {
                    "unknown type"
                } else {
                    &page.media_type
                };
                let message = format!("the file is not text: {media}, {} bytes", page.total_bytes);
                Err(ToolError::from_code(ToolErrorCode::NotText, &message))
            }

            None => {
                let reason = "a page of a file has no body";
                Err(invalid_response_error("the executor", reason))
            }
        }
    }
}

/// Returns the error of a package that belongs to another authority than the requested one.
fn wrong_authority_error() -> ToolError {
    let message = "the package belongs to another authority";
    ToolError::from_code(ToolErrorCode::WrongAuthority, message)
}

/// Returns the error of a package that the source does not list.
fn unlisted_package_error() -> ToolError {
    let message = "the skill does not exist now";
    ToolError::from_code(ToolErrorCode::PackageNotFound, message)
}

/// Returns the error of an invalid response. `server` is a phrase, such as `the executor`.
fn invalid_response_error(server: &str, reason: &str) -> ToolError {
    let message = format!("invalid response of {server}: {reason}");
    ToolError::from_code(ToolErrorCode::InvalidResponse, &message)
}
