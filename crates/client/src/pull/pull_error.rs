//! Error of a pull.

use super::DirDifference;
use super::repeat::MAX_ATTEMPTS;
use crate::CallError;
use caproot_core::lock::{FileDifference, FilesError};
use caproot_core::proto::caproot::v1::ErrorReason;
use caproot_core::wire::ContentDigest;
use caproot_core::wire::handle::encode_path;
use std::io;
use std::path::{Path, PathBuf};

/// Maximum number of files in a message.
const MAX_NAMED_FILES: usize = 3;

/// Failure of a pull. Unless the failure is in the removal of the old files, the directory is
/// unchanged.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// A call failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The source of a skill does not return its files.
    #[error("{message}")]
    Source {
        /// Sentence of the source.
        message: String,
        /// Whether a later pull may succeed.
        is_temporary: bool,
    },
    /// The list or a file of the daemon is not valid.
    #[error("invalid response from the daemon: {0}")]
    InvalidResponse(String),
    /// The package exceeds a limit of the request.
    #[error("the package has more than {0}; raise the limit if you trust the package")]
    TooLarge(String),
    /// The daemon serves no file of the package.
    #[error("the daemon serves no file of this package")]
    NoFiles,
    /// The daemon does not serve these files of a plugin, which may do something else without them.
    #[error(
        "the daemon does not serve {} of the plugin, so nothing is written: {}",
        if .0.len() == 1 { "a file" } else { "files" },
        .0.join(", ")
    )]
    Withheld(Vec<String>),
    /// The daemon has no digest of these files of a plugin, so that no lock can cover them.
    #[error(
        "the plugin has {} that no lock can cover, because the daemon does not read {}: {}",
        if .0.len() == 1 { "a file" } else { "files" },
        if .0.len() == 1 { "it" } else { "them" },
        .0.join(", ")
    )]
    NotDigested(Vec<String>),
    /// The daemon's list is incomplete.
    #[error("a limit of the daemon omits files of the package, so the package cannot be pulled")]
    Truncated,
    /// A file has a component that a pull never writes: `.git`, `.hg` or `.svn` in any letter case,
    /// or a name that begins with `..`.
    #[error(
        "the package has the file {0:?}, and a pull never writes .git, .hg, .svn or a name that \
         begins with `..`; move the file out of the package"
    )]
    ForbiddenName(String),
    /// The package has the checksum file of a pull.
    #[error("the package is a copy that a pull made; pull the skill that was copied")]
    PulledCopy,
    /// No lock can approve the files of the package.
    #[error("the package cannot be approved: it {0}")]
    Unapprovable(#[from] FilesError),
    /// The lock does not have these files of the package.
    #[error("the lock does not approve the package: {}", describe_differences(.0))]
    NotApproved(Vec<FileDifference>),
    /// The daemon cannot send a file.
    #[error(
        "the daemon has no digest of {0}: the file is over its limit max_file_bytes, or changes all the \
         time"
    )]
    NoDigest(String),
    /// The package or the directory changed during each attempt.
    #[error(
        "the package or the directory changed during each of {MAX_ATTEMPTS} attempts; try again later"
    )]
    KeepsChanging,
    /// The directory has files that are not from a pull, or that changed since.
    #[error("{} in the directory not as the last pull wrote them", count_files(.0.len()))]
    Conflicts(Vec<DirDifference>),
    /// The directory holds another package.
    #[error("the directory holds another package, {0}")]
    OtherPackage(String),
    /// The package does not have the file that the program runs.
    #[error("{}", describe_unlisted(.name, *.is_dir))]
    NotListed {
        /// Name of the file.
        name: String,
        /// Whether the package has files below the name.
        is_dir: bool,
    },
    /// The skill has another digest than the expected one.
    #[error("the skill changed: the daemon lists {0}")]
    OtherDigest(ContentDigest),
    /// Another pull is writing the directory.
    #[error("another pull is writing {}; try again later", .0.display())]
    InUse(PathBuf),
    /// The filesystem of the directory cannot exchange two directories.
    #[error(
        "cannot use {}: its filesystem cannot replace a directory, as the overlay of a container; pull \
         into a volume, which is a filesystem of its own",
        .0.display()
    )]
    NoExchange(PathBuf),
    /// The directory cannot be used.
    #[error("cannot use {}: {reason}", .path.display())]
    Unusable {
        /// Directory or file.
        path: PathBuf,
        /// Cause.
        reason: String,
    },
    /// A file or directory cannot be read or written.
    #[error("{}: {error}", .path.display())]
    Io {
        /// File or directory.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
}

fn describe_unlisted(name: &str, is_dir: bool) -> String {
    if is_dir {
        format!("{name} is a directory of the package")
    } else {
        format!("the package has no file {name} in the daemon's list")
    }
}

/// Names the first files that differ from the approved version.
fn describe_differences(differences: &[FileDifference]) -> String {
    if differences.is_empty() {
        return "the lock has no entry of its name".to_owned();
    }
    let first = differences.iter().take(MAX_NAMED_FILES);
    let names: Vec<_> = first.map(|file| encode_path(&file.path)).collect();
    let names = names.join(", ");
    match differences.len() - differences.len().min(MAX_NAMED_FILES) {
        0 => format!("{names} differ from the approved version"),
        more => format!("{names} and {more} more differ from the approved version"),
    }
}

fn count_files(count: usize) -> String {
    if count == 1 {
        "1 file is".to_owned()
    } else {
        format!("{count} files are")
    }
}

/// Result of a system call on a file or directory.
pub trait SystemResult<T> {
    /// Adds the path to the error.
    fn at(self, path: &Path) -> Result<T, PullError>;
}

impl<T, E: Into<io::Error>> SystemResult<T> for Result<T, E> {
    fn at(self, path: &Path) -> Result<T, PullError> {
        self.map_err(|error| PullError::io(path, error))
    }
}

impl PullError {
    pub(super) fn io(path: &Path, error: impl Into<io::Error>) -> Self {
        Self::Io {
            path: path.to_owned(),
            error: error.into(),
        }
    }

    pub(super) fn unusable(path: &Path, reason: impl Into<String>) -> Self {
        Self::Unusable {
            path: path.to_owned(),
            reason: reason.into(),
        }
    }

    pub(super) fn invalid(name: &str, reason: &str) -> Self {
        Self::InvalidResponse(format!("the file {name:?} {reason}"))
    }

    /// Whether the package or the directory changed during the attempt.
    pub(super) fn is_concurrent_change(&self) -> bool {
        matches!(
            self,
            Self::KeepsChanging
                | Self::NoDigest(_)
                | Self::Call(CallError::ChangedDuringRead | CallError::DigestMismatch)
        )
    }

    /// Converts the error of a call after the list. A package or file that is gone changed since.
    pub(super) fn after_list(error: CallError) -> Self {
        match error.reason() {
            Some(
                ErrorReason::PackageNotFound
                | ErrorReason::ResourceNotFound
                | ErrorReason::ResourceChanged,
            ) => Self::KeepsChanging,
            _ => Self::Call(error),
        }
    }
}
