//! Interface of a source of skills, and its data: listings, snapshots and pages of files.

use super::result::{ToolError, ToolErrorCode};
use caproot_client::is_of_root;
use caproot_core::lock::ApprovedFiles;
use caproot_core::proto::caproot::v1::{Plugin, Skill};
use caproot_core::text::{single_line, truncate_with_ellipsis};
use caproot_core::wire::ContentDigest;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Limit of a text in the state of a source, in bytes.
const MAX_TEXT_BYTES: usize = 256;

/// Kind of a source. The order is the precedence of names: if two skills have one name, the session
/// lists the skill of the earlier kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceKind {
    /// Daemon of an executor, for roots that a platform selected.
    Executor,
    /// Directories on the machine of the orchestrator.
    Local,
    /// MCP server with skills.
    Mcp,
    /// Site with an index of skills.
    Site,
}

impl SourceKind {
    /// All kinds in their order.
    pub const ALL: [Self; 4] = [Self::Executor, Self::Local, Self::Mcp, Self::Site];

    /// Returns the kind of the authorities: `executor`, `local`, `mcp` or `site`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Executor => "executor",
            Self::Local => "local",
            Self::Mcp => "mcp",
            Self::Site => "site",
        }
    }

    /// Returns a phrase for a source of this kind.
    #[must_use]
    pub fn describe(self, id: &str) -> String {
        match self {
            Self::Executor => format!("the executor of environment {id:?}"),
            Self::Local => format!("the local source {id:?}"),
            Self::Mcp => format!("the MCP server {id:?}"),
            Self::Site => format!("the site {id:?}"),
        }
    }
}

/// State of one source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceState {
    /// Kind of the source: `executor`, `local`, `mcp` or `site`.
    pub kind: String,
    /// Id of the source, such as the environment of an executor.
    pub id: String,
    /// Reason if the skills of the source are not listed now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Number of its skills that the session has.
    pub skills: usize,
}

impl SourceState {
    /// Returns the state of a source of which the session has this number of skills.
    pub(crate) fn of_source(source: &dyn SkillSource, skills: usize) -> Self {
        let reason = source.snapshot().unavailable_reason;
        let shorten = |text: &str| truncate_with_ellipsis(&single_line(text), MAX_TEXT_BYTES);
        Self {
            kind: source.kind().name().to_owned(),
            id: shorten(source.id()),
            reason: reason.map(|reason| shorten(&reason)),
            skills,
        }
    }
}

/// Source of skills. A call of a source ends within [`SkillSource::read_timeout`]. A source returns
/// only its own files, and reports if it is unavailable.
pub trait SkillSource: fmt::Debug + Send + Sync {
    /// Returns the kind of the source.
    fn kind(&self) -> SourceKind;

    /// Returns the id of the source among the sources of its kind, such as the environment of an
    /// executor.
    fn id(&self) -> &str;

    /// Returns the ids of the authorities, as in `authority.id`, in the order of the list. The ids
    /// never change, and no other source of the kind has them.
    fn authorities(&self) -> Vec<String>;

    /// Returns the current listing. Cheap; the same `Arc` if nothing changed.
    fn snapshot(&self) -> SourceSnapshot;

    /// Returns the changes of the snapshot from now on. By default, the snapshot never changes.
    fn changes(&self) -> SourceChanges {
        Box::pin(stream::empty())
    }

    /// Returns the time limit of a page. After the limit, the session reports that the source does
    /// not answer.
    fn read_timeout(&self) -> Duration;

    /// Returns the plugins of the source, each with an authority of the source. Empty by default and
    /// while the source is unavailable.
    fn plugins(&self) -> Vec<Arc<Plugin>> {
        Vec::new()
    }

    /// Returns the package digests of the versions of a listed plugin that a lock approves. Empty by default
    /// and without a lock.
    fn approved_digests(&self, _plugin: &Plugin) -> Vec<ContentDigest> {
        Vec::new()
    }

    /// Tries again to use the source, if the program has to do something first, such as to log in. Does
    /// not wait. By default, does nothing.
    fn retry(&self) {}

    /// Returns a page of a file of a listed skill.
    fn read_page<'a>(
        &'a self,
        request: &'a TextPageRequest,
    ) -> BoxFuture<'a, Result<TextPage, ToolError>>;

    /// Returns whether a handle is of this authority of the source. By default, the id of an
    /// authority is the first part of its handles.
    fn owns_handle(&self, authority: &str, handle: &str) -> bool {
        is_of_root(handle, authority)
    }

    /// Returns a whole file of a listed skill, text or not, and an error if the file is over the limit of the
    /// request. By default, the source has text only.
    fn read_whole<'a>(
        &'a self,
        request: &'a TextPageRequest,
    ) -> BoxFuture<'a, Result<WholeFile, ToolError>> {
        Box::pin(async {
            let page = self.read_page(request).await?;
            if !page.next_cursor.is_empty() {
                return Err(ToolError::from_code(
                    ToolErrorCode::TooLarge,
                    &format!("the file has more than {} bytes", request.max_bytes),
                ));
            }
            Ok(WholeFile {
                bytes: page.contents.into_bytes(),
                media_type: String::new(),
            })
        })
    }

    /// Returns a page of the files of a listed skill, by handle in byte order. By default, the source
    /// cannot list files.
    fn list_files<'a>(
        &'a self,
        _request: &'a PackageFilesRequest,
    ) -> BoxFuture<'a, Result<PackageFilesPage, ToolError>> {
        let phrase = self.kind().describe(self.id());
        let message = format!("{phrase} does not list the files of a skill");
        Box::pin(std::future::ready(Err(unlisted_files_error(&message))))
    }

    /// Returns the digests of all files of a listed skill. By default, the source does not know them.
    fn skill_files<'a>(
        &'a self,
        _authority: &'a str,
        _package: &'a str,
    ) -> BoxFuture<'a, Result<ApprovedFiles, ToolError>> {
        Box::pin(std::future::ready(Err(unknown_digests_error())))
    }

    /// Returns all files of a skill in one version, for a copy. By default, the source has no copies.
    fn fetch_package<'a>(
        &'a self,
        _package: &'a str,
    ) -> BoxFuture<'a, Result<Vec<FetchedFile>, ToolError>> {
        let phrase = self.kind().describe(self.id());
        let message = format!("{phrase} has no copies of its skills");
        Box::pin(std::future::ready(Err(unlisted_files_error(&message))))
    }
}

/// File of a skill with its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedFile {
    /// Handle of the file: the package, `/` and the path of the file.
    pub resource: String,
    /// Content, verified as for a read.
    pub bytes: Vec<u8>,
}

/// Changes of one source: an item whenever the snapshot may have changed since the stream was created or the
/// item before. Ends if the snapshot changes no more.
pub type SourceChanges = BoxStream<'static, ()>;

/// Returns an item for each value that a channel has from now on.
#[cfg(feature = "mcp")]
pub(crate) fn channel_changes<T: Send + Sync + 'static>(
    receiver: tokio::sync::watch::Receiver<T>,
) -> SourceChanges {
    Box::pin(stream::unfold(receiver, async |mut receiver| {
        receiver.changed().await.ok()?;
        Some(((), receiver))
    }))
}

/// Listing of a source at one moment.
#[derive(Debug, Clone)]
pub struct SourceSnapshot {
    /// Listing; the latest listing if the source is unavailable, as the source keeps its names.
    pub listing: Arc<SkillListing>,
    /// Reason if the source is unavailable and none of its skills are listed; the end of a
    /// sentence.
    pub unavailable_reason: Option<String>,
}

/// Immutable list of skills.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SkillListing {
    /// Skills with an authority of the source; the skills of one authority are adjacent and sorted
    /// by name.
    pub skills: Vec<Arc<Skill>>,
    /// Warnings for a model, each a sentence.
    pub warnings: Vec<String>,
    /// Whether a limit cut the list short.
    pub truncated: bool,
    /// Names of skills that the source does not list because their files are not approved. No skill of a
    /// later kind gets such a name.
    pub reserved_names: Vec<String>,
}

/// Request of a page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextPageRequest {
    /// Id of an authority of the source.
    pub authority: String,
    /// Package of the skill, as the source lists it.
    pub package: String,
    /// Handle of the file: the package, `/` and the path of the file. Empty: the main resource.
    pub resource: String,
    /// Cursor of the page; empty for the first page.
    pub cursor: String,
    /// Limit of the page in bytes.
    pub max_bytes: usize,
}

/// Request of a page of the files of a package.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PackageFilesRequest {
    /// Id of an authority of the source.
    pub authority: String,
    /// Package of the skill, as the source lists it.
    pub package: String,
    /// Token of the page; empty for the first page.
    pub page_token: String,
}

/// Page of the files of a package.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PackageFilesPage {
    /// Files by handle in byte order.
    pub files: Vec<PackageFile>,
    /// Token of the next page, at most 3,000 bytes; empty at the end.
    pub next_page_token: String,
    /// Whether a limit of the source omitted files.
    pub truncated: bool,
}

/// File of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageFile {
    /// Handle of the file: the package, `/` and the path of the file.
    pub resource: String,
    /// Size in bytes; `None` if the source does not know the size.
    pub size_bytes: Option<u64>,
    /// Media type; empty if the source does not know it.
    pub media_type: String,
}

/// Whole file of a skill, text or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WholeFile {
    /// Content.
    pub bytes: Vec<u8>,
    /// Media type; empty if the source does not know it.
    pub media_type: String,
}

/// Page of a text file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextPage {
    /// Handle of the file.
    pub resource: String,
    /// Contents within the requested limit.
    pub contents: String,
    /// Cursor of the next page, at most 512 bytes; empty at the end.
    pub next_cursor: String,
    /// Digest of the whole file, such as `sha256:` and the hex digest; empty if the source has none. Two
    /// versions of a file have different digests.
    pub digest: String,
}

impl TextPageRequest {
    /// Checks that the handle of the file begins with the package.
    pub(crate) fn check_resource_in_package(&self) -> Result<(), ToolError> {
        let rest = self.resource.strip_prefix(self.package.as_str());
        if self.resource.is_empty() || rest.is_some_and(|rest| rest.starts_with('/')) {
            return Ok(());
        }
        Err(ToolError::from_code(
            ToolErrorCode::ResourceNotFound,
            "the resource is not in the package",
        ))
    }
}

impl SourceSnapshot {
    /// Returns whether the listing and the availability are the same.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.listing, &other.listing)
            && self.unavailable_reason == other.unavailable_reason
    }
}

/// Returns the error of an unavailable source.
pub(crate) fn unavailable_error(kind: SourceKind, id: &str, reason: &str) -> ToolError {
    let code = if kind == SourceKind::Executor {
        ToolErrorCode::ExecutorUnavailable
    } else {
        ToolErrorCode::SourceUnavailable
    };
    ToolError::from_code(
        code,
        &format!(
            "{} cannot be used: {}",
            kind.describe(id),
            single_line(reason)
        ),
    )
}

/// Returns the answer of a source, or an error after the time limit of the source.
pub(crate) async fn answer_in_time<T>(
    source: &dyn SkillSource,
    answer: impl Future<Output = Result<T, ToolError>>,
) -> Result<T, ToolError> {
    let answer = timeout(source.read_timeout(), answer).await;
    answer.unwrap_or_else(|_| {
        let reason = "it does not answer in time";
        Err(unavailable_error(source.kind(), source.id(), reason))
    })
}

/// Returns the error of a skill whose files no source lists.
pub fn unlisted_files_error(message: &str) -> ToolError {
    ToolError::with_hint(
        ToolErrorCode::ResourceNotFound,
        message,
        "Read the files that the skill's main resource names, or go on without them.",
    )
}

/// Returns the error of a skill whose files have no digests, or several possible ones.
pub fn unknown_digests_error() -> ToolError {
    ToolError::from_code(
        ToolErrorCode::NotVerified,
        "the digests of the skill's files are not known",
    )
}
