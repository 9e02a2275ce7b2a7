//! Path on this machine of the resource that a handle names, for a command that runs on the
//! executor with the permissions of its user. Does not check whether the daemon lists the resource.
//! Blocks.

use crate::fs::{AllowedDirs, FileReadError, locate_resource};
use crate::model::RootPath;
use caproot_core::wire::ResourceHandle;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// Location of a selected root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootLocation {
    /// Absolute path of a directory on the executor.
    Directory(PathBuf),
    /// Id of a published root.
    Published(String),
}

/// Reason why a handle has no path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocateError {
    /// The handle is invalid, for this reason.
    InvalidHandle(&'static str),
    /// The directory of the root cannot be opened.
    RootUnavailable,
    /// The package or its regular file does not exist.
    NotFound,
    /// A link leads out of the root and of all allowed directories.
    Outside,
    /// The user has no read permission.
    Denied,
    /// The filesystem failed.
    Failed,
}

impl RootLocation {
    /// Parses the `path` of a root's location; `None` if it is invalid.
    #[must_use]
    pub fn parse(path: &str) -> Option<Self> {
        Some(match RootPath::parse(path)? {
            RootPath::Native(path) => Self::Directory(OsString::from_vec(path.into()).into()),
            RootPath::Published(id) => Self::Published(id.into()),
        })
    }
}

/// Returns the absolute path, without links, of a package below the root's directory or of a
/// regular file in the package. Links may lead out of that directory only into the directories of
/// `allow`, which are absolute paths.
pub fn locate_handle(
    handle: &str,
    package: &str,
    dir: &Path,
    allow: impl IntoIterator<Item = PathBuf>,
) -> Result<PathBuf, LocateError> {
    let handle = ResourceHandle::parse(handle).map_err(LocateError::InvalidHandle)?;
    let package = ResourceHandle::parse(package).map_err(LocateError::InvalidHandle)?;

    let resource = handle
        .path
        .strip_prefix(&package.path)
        .ok_or(LocateError::NotFound)?;
    let resource = Some(resource).filter(|resource| !resource.is_root());

    let allowed = AllowedDirs::new(std::iter::once(dir.to_owned()).chain(allow).collect());
    let root = allowed
        .resolve(dir.as_os_str().as_bytes())
        .map_err(|_| LocateError::RootUnavailable)?;

    locate_resource(&root, &package.path, resource.as_ref()).map_err(|error| match error {
        FileReadError::NotFound
        | FileReadError::TooLarge { .. }
        | FileReadError::Changed(_)
        | FileReadError::NotApproved { .. }
        | FileReadError::Secret => LocateError::NotFound,
        FileReadError::Outside => LocateError::Outside,
        FileReadError::Denied => LocateError::Denied,
        FileReadError::TooManyOpenFiles | FileReadError::Failed => LocateError::Failed,
    })
}
