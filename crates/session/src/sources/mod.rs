//! Sources of skills: executors, local directories, MCP servers and sites. A source lists skills, reports
//! changes, and returns pages of files.
//!
//! Begin with `daemon`, the source of an executor. `remote` has the parts that the sources of `mcp` and
//! `site` share. `approved` shows only the skills of a lock.

mod approved;
mod daemon;
#[cfg(feature = "mcp")]
pub mod mcp;
mod mirror_changes;
#[cfg(target_os = "linux")]
mod pull;
#[cfg(feature = "mcp")]
mod remote;
#[cfg(feature = "mcp")]
pub mod site;
mod verified_file;

pub use crate::skills::skill_source::{
    FetchedFile, PackageFile, PackageFilesPage, PackageFilesRequest, SkillListing, SkillSource,
    SourceChanges, SourceKind, SourceSnapshot, TextPage, TextPageRequest, WholeFile,
};
pub(super) use approved::ApprovedSource;
pub use daemon::{DaemonSource, ExecutorState, ExecutorStatus};
#[cfg(target_os = "linux")]
pub use pull::pull_skill;
#[cfg(feature = "mcp")]
pub use remote::RemoteSource;

use crate::skills::result::{ToolError, ToolErrorCode};
use crate::skills::skill_source::{unavailable_error, unknown_digests_error};
use caproot_client::root_id;
use caproot_core::proto::caproot::v1::read_resource_response::Body;
use caproot_core::proto::caproot::v1::{ReadResourceRequest, ReadResourceResponse};

/// Checks that a page is of the requested file.
fn check_requested(
    request: &ReadResourceRequest,
    page: &ReadResourceResponse,
) -> Result<(), ToolError> {
    let is_requested = if request.resource.is_empty() {
        root_id(&page.resource) == root_id(&request.package)
    } else {
        page.resource == request.resource
    };
    if is_requested {
        Ok(())
    } else {
        let reason = "the page is of another file";
        Err(invalid_response_error("the executor", reason))
    }
}

/// Returns the error of a page without a body.
fn missing_body_error() -> ToolError {
    invalid_response_error("the executor", "a page of a file has no body")
}

impl WholeFile {
    /// Returns the file of a response, which must have the whole file.
    fn from_response(page: ReadResourceResponse, max_bytes: usize) -> Result<Self, ToolError> {
        if !page.next_cursor.is_empty() {
            return Err(larger_file_error(page.total_bytes, max_bytes as u64));
        }
        let bytes = match page.body {
            Some(Body::Contents(text)) => text.into_bytes(),
            Some(Body::Data(data)) => data,
            None => return Err(missing_body_error()),
        };
        Ok(Self {
            bytes,
            media_type: page.media_type,
        })
    }
}

impl TextPage {
    /// Returns the page of a response, which must be text.
    fn from_response(page: ReadResourceResponse) -> Result<Self, ToolError> {
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

            None => Err(missing_body_error()),
        }
    }
}

/// Returns the error of a file that is over the limit of a read.
fn larger_file_error(bytes: u64, max_bytes: u64) -> ToolError {
    let message = format!("the file has {bytes} bytes; the limit is {max_bytes}");
    ToolError::from_code(ToolErrorCode::TooLarge, &message)
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
pub(crate) fn invalid_response_error(server: &str, reason: &str) -> ToolError {
    let message = format!("invalid response of {server}: {reason}");
    ToolError::from_code(ToolErrorCode::InvalidResponse, &message)
}
