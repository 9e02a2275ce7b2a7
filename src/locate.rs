//! Where what a handle names is on this machine, for a command that runs on the executor, with the
//! permissions of its user. Leaves it to the daemon what is listed. Blocking.

use crate::disk::{AllowedDirs, FileReadError, locate_resource};
use crate::domain::{ResourceHandle, RootPath};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// What the path of a selected root names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootLocation {
    /// A directory of the executor, absolute.
    Directory(PathBuf),
    /// A published root, by its id.
    Published(String),
}

/// Why there is no path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocateError {
    /// A handle is none; the text goes on after it.
    InvalidHandle(&'static str),
    /// The root's directory cannot be opened.
    RootUnavailable,
    /// No such package, or no such regular file in it.
    NotFound,
    /// A link leads out of the root's directory and of every other that was given.
    Outside,
    /// This user may not read it.
    Denied,
    /// The filesystem failed.
    Failed,
}

impl RootLocation {
    /// Reads the `path` of a root's location; `None` where it names no place.
    #[must_use]
    pub fn parse(path: &str) -> Option<Self> {
        Some(match RootPath::parse(path)? {
            RootPath::Native(path) => Self::Directory(OsString::from_vec(path.into()).into()),
            RootPath::Published(id) => Self::Published(id.into()),
        })
    }
}

/// The absolute path, without links, of a package below the root's directory, or of a regular file
/// in it. Links may lead out of that directory only into those of `allow`, all of them absolute.
pub fn locate_handle(
    handle: &str,
    package: &str,
    dir: &Path,
    allow: impl IntoIterator<Item = PathBuf>,
) -> Result<PathBuf, LocateError> {
    let handle = ResourceHandle::parse(handle).map_err(LocateError::InvalidHandle)?;
    let package = ResourceHandle::parse(package).map_err(LocateError::InvalidHandle)?;
    let resource = handle.path.strip_prefix(&package.path).ok_or(LocateError::NotFound)?;
    let resource = Some(resource).filter(|resource| !resource.is_root());
    let allowed = AllowedDirs::new(std::iter::once(dir.to_owned()).chain(allow).collect());
    let root =
        allowed.resolve(dir.as_os_str().as_bytes()).map_err(|_| LocateError::RootUnavailable)?;
    locate_resource(&root, &package.path, resource.as_ref()).map_err(|unread| match unread {
        FileReadError::NotFound | FileReadError::TooLarge { .. } | FileReadError::Changed(_) => {
            LocateError::NotFound
        }
        FileReadError::Outside => LocateError::Outside,
        FileReadError::Denied => LocateError::Denied,
        FileReadError::TooManyOpenFiles | FileReadError::Failed => LocateError::Failed,
    })
}
