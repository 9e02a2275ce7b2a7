//! Where what a handle names is on this machine, for a command that runs on the executor, with the
//! permissions of its user. Leaves it to the daemon what is listed. Blocking.

use crate::disk::{Allowed, Unread, locate};
use crate::domain::{Handle, RootPath};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// What the path of a selected root names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A directory of the executor, absolute.
    Directory(PathBuf),
    /// A published root, by its id.
    Published(String),
}

/// Why there is no path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotHere {
    /// A handle is none; the text goes on after it.
    Handle(&'static str),
    /// The root's directory cannot be opened.
    Root,
    /// No such package, or no such regular file in it.
    Missing,
    /// A link leads out of the root's directory and of every other that was given.
    Outside,
    /// This user may not read it.
    Denied,
    /// The filesystem failed.
    Failed,
}

impl Place {
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
pub fn path_of(
    handle: &str,
    package: &str,
    dir: &Path,
    allow: impl IntoIterator<Item = PathBuf>,
) -> Result<PathBuf, NotHere> {
    let handle = Handle::parse(handle).map_err(NotHere::Handle)?;
    let package = Handle::parse(package).map_err(NotHere::Handle)?;
    let resource = handle.path.below(&package.path).ok_or(NotHere::Missing)?;
    let resource = Some(resource).filter(|resource| !resource.is_root());
    let allowed = Allowed::new(std::iter::once(dir.to_owned()).chain(allow).collect());
    let root = allowed.resolve(dir.as_os_str().as_bytes()).map_err(|_| NotHere::Root)?;
    locate(&root, &package.path, resource.as_ref()).map_err(|unread| match unread {
        Unread::NotFound | Unread::TooLarge { .. } | Unread::Changed(_) => NotHere::Missing,
        Unread::Outside => NotHere::Outside,
        Unread::Denied => NotHere::Denied,
        Unread::Exhausted | Unread::Failed => NotHere::Failed,
    })
}
