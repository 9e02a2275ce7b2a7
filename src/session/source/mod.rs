//! What a session needs of a source of skills: who it is, what it lists now, when that changes, and a
//! bounded page of a file. An executor is one, in `daemon`; others are made elsewhere and handed over.
//! Leaves merging several to `view`.

mod daemon;
mod wire;

pub use daemon::{DaemonSource, ExecutorState};

use super::result::{ToolError, ToolErrorCode};
use super::text::single_line;
use crate::proto::caproot::v1::Skill;
use futures_util::future::BoxFuture;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What kind of source, in the order in which names are given away: of two skills of one name, that of
/// the earlier kind is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceKind {
    /// An executor's daemon, for roots that a platform selected.
    Executor,
    /// Directories of the orchestrator's own machine.
    Local,
    /// A server of Skills over MCP.
    Mcp,
}

impl SourceKind {
    /// All of them, in their order.
    pub const ALL: [Self; 3] = [Self::Executor, Self::Local, Self::Mcp];

    /// As an authority has it: `executor`, `local` or `mcp`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Executor => "executor",
            Self::Local => "local",
            Self::Mcp => "mcp",
        }
    }

    /// A source of this kind, in a sentence.
    #[must_use]
    pub fn describe(self, id: &str) -> String {
        match self {
            Self::Executor => format!("the executor of environment {id:?}"),
            Self::Local => format!("the local source {id:?}"),
            Self::Mcp => format!("the MCP server {id:?}"),
        }
    }
}

/// One source of skills. What it is asked takes no longer than it says, and what it gives is its own:
/// a source that cannot be used says so, and never gives what is another's.
pub trait SkillSource: fmt::Debug + Send + Sync {
    /// Its kind.
    fn kind(&self) -> SourceKind;

    /// Its name among those of its kind, such as an executor's environment.
    fn id(&self) -> &str;

    /// The ids of the authorities that it answers for, as `authority.id` has them, in the order in which
    /// they are shown. Fixed; no other source of its kind has any of them.
    fn authorities(&self) -> Vec<String>;

    /// What it lists now. Cheap: the same list where nothing changed.
    fn snapshot(&self) -> SourceSnapshot;

    /// A way to wait for changes of what `listed` gives. `None`: there are none.
    fn watch(&self) -> Option<Box<dyn SourceWatch>>;

    /// The longest that a page may take; after it, the session says that the source does not answer.
    fn read_timeout(&self) -> Duration;

    /// A page of a file, which it looks up in what it lists now.
    fn read_page<'a>(
        &'a self,
        wanted: &'a TextPageRequest,
    ) -> BoxFuture<'a, Result<TextPage, ToolError>>;
}

/// Waits for changes of one source.
pub trait SourceWatch: fmt::Debug + Send {
    /// Waits until what is listed may be another than when the watch was made or this returned. May be
    /// dropped while it waits, and called again.
    fn changed(&mut self) -> BoxFuture<'_, ()>;
}

/// What a source lists at one moment.
#[derive(Debug, Clone)]
pub struct SourceSnapshot {
    /// The list; of a source that cannot be used, the last one, whose names stay its own.
    pub listing: Arc<SkillListing>,
    /// Why it cannot be used now, so that none of the skills are shown; the end of a sentence.
    pub unavailable_reason: Option<String>,
}

/// A list of skills. A change is a new one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SkillListing {
    /// Each with one of the source's authorities; those of one authority together, by name.
    pub skills: Vec<Arc<Skill>>,
    /// What a model should know of the list, each a sentence.
    pub warnings: Vec<String>,
    /// Whether a limit cut it short.
    pub truncated: bool,
}

/// A page that is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextPageRequest {
    /// The id of one of the source's authorities.
    pub authority: String,
    /// The skill's package, as the source lists it.
    pub package: String,
    /// The package, `/` and the path of one of its files; empty: the skill's main resource.
    pub resource: String,
    /// Where the page begins: what the page before gave. Empty at first.
    pub cursor: String,
    /// The most bytes of the page.
    pub max_bytes: usize,
}

/// A page of text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextPage {
    /// The file, by its handle.
    pub resource: String,
    /// At most as many bytes as were wanted.
    pub contents: String,
    /// Where the next page begins, at most 512 bytes; empty at the end.
    pub next_cursor: String,
}

impl TextPageRequest {
    /// That the file is one of the package's, by its handle.
    pub fn check_resource_in_package(&self) -> Result<(), ToolError> {
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
    /// The same list, and whether it can be used.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.listing, &other.listing)
            && self.unavailable_reason == other.unavailable_reason
    }
}

/// That a source gives nothing now.
pub(super) fn unavailable_error(kind: SourceKind, id: &str, why: &str) -> ToolError {
    let code = match kind {
        SourceKind::Executor => ToolErrorCode::ExecutorUnavailable,
        SourceKind::Local | SourceKind::Mcp => ToolErrorCode::SourceUnavailable,
    };
    let message = format!("{} cannot be used: {}", kind.describe(id), single_line(why));
    ToolError::from_code(code, &message)
}
