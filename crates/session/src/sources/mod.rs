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
use caproot_core::proto::caproot::v1::{Authority, ReadResourceRequest, ReadResourceResponse};

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
        return Ok(());
    }
    Err(invalid_response_error(
        "the executor",
        "the page is of another file",
    ))
}

/// Returns the error of a page without a body.
fn missing_body_error() -> ToolError {
    invalid_response_error("the executor", "a page of a file has no body")
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
                Err(ToolError::from_code(
                    ToolErrorCode::NotText,
                    &format!("the file is not text: {media}, {} bytes", page.total_bytes),
                ))
            }

            None => Err(missing_body_error()),
        }
    }
}

/// Returns the authority of a source.
fn authority_of(kind: SourceKind, id: &str) -> Authority {
    Authority {
        kind: kind.name().to_owned(),
        id: id.to_owned(),
    }
}

/// Returns the error of a file that is over the limit of a read.
fn larger_file_error(bytes: u64, max_bytes: u64) -> ToolError {
    ToolError::from_code(
        ToolErrorCode::TooLarge,
        &format!("the file has {bytes} bytes; the limit is {max_bytes}"),
    )
}

/// Returns the error of a package that belongs to another authority than the requested one.
fn wrong_authority_error() -> ToolError {
    ToolError::from_code(
        ToolErrorCode::WrongAuthority,
        "the package belongs to another authority",
    )
}

/// Returns the error of a package that the source does not list.
fn unlisted_package_error() -> ToolError {
    ToolError::from_code(
        ToolErrorCode::PackageNotFound,
        "the skill does not exist now",
    )
}

/// Returns the error of an invalid response. `server` is a phrase, such as `the executor`.
pub(crate) fn invalid_response_error(server: &str, reason: &str) -> ToolError {
    ToolError::from_code(
        ToolErrorCode::InvalidResponse,
        &format!("invalid response of {server}: {reason}"),
    )
}
