//! Opening of files beneath an open directory. No link is followed and `..` is never resolved, even
//! if components are replaced in the meantime. Uses openat2(2). If the kernel lacks it or a sandbox
//! forbids it, opens component by component with the same results.

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, openat, openat2, readlinkat, statat,
};
use rustix::io::{Errno, Result as Io};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

/// Maximum number of attempts if a component changes in the meantime.
const TRIES: usize = 32;
/// Maximum length of a path in the kernel, including the final NUL.
const PATH_MAX: usize = 4_096;
/// Suffix that the kernel adds to the path of a deleted file.
const DELETED_SUFFIX: &[u8] = b" (deleted)";
/// Flags that make openat2(2) refuse links.
const RESOLVE_NO_LINKS: ResolveFlags = ResolveFlags::NO_SYMLINKS.union(ResolveFlags::NO_MAGICLINKS);
/// Flags that keep openat2(2) beneath a directory.
const RESOLVE_BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(RESOLVE_NO_LINKS);
/// Flags for an intermediate directory. `O_DIRECTORY` triggers an automount, as any path lookup
/// does.
const INTERMEDIATE_DIR: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Method to open files beneath a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMethod {
    /// One call of openat2(2) per file.
    Openat2,
    /// One call of openat(2) per component of the path.
    Openat,
}

impl OpenMethod {
    /// Checks whether this process may use openat2(2). A sandbox that is applied later is not
    /// detected.
    #[must_use]
    pub fn probe() -> Self {
        let opened = openat(CWD, c"/", INTERMEDIATE_DIR, Mode::empty())
            .and_then(|top| open_with_openat2(&top, b".", OFlags::PATH | OFlags::DIRECTORY));
        match opened {
            // Errors of exhausted resources show that the call exists.
            Ok(_) | Err(Errno::AGAIN | Errno::MFILE | Errno::NFILE | Errno::NOMEM) => Self::Openat2,
            // ENOSYS comes from an old kernel or systemd. Other sandboxes return EPERM, EACCES, or
            // any error that their filter sets.
            Err(_) => Self::Openat,
        }
    }

    /// Name of the method on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Openat2 => "openat2",
            Self::Openat => "openat",
        }
    }

    /// Opens a directory by an absolute path without links.
    pub(super) fn open_absolute_dir(self, path: &[u8]) -> Io<OwnedFd> {
        let top = openat(CWD, c"/", INTERMEDIATE_DIR, Mode::empty())?;
        match path.strip_prefix(b"/").unwrap_or(path) {
            [] => Ok(top),
            rel => self.open(&top, rel, OFlags::PATH | OFlags::DIRECTORY),
        }
    }

    /// Opens a relative path beneath a directory. The path has no `..` and no link. A link as its
    /// last component is opened itself, if `O_PATH` and `O_NOFOLLOW` are set. The empty path opens
    /// the directory.
    pub(crate) fn open(self, base: &OwnedFd, rel: &[u8], flags: OFlags) -> Io<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        if rel.is_empty() {
            return openat(base, c".", flags, Mode::empty());
        }

        let mut tries = 0;
        loop {
            let opened = match self {
                Self::Openat2 => open_with_openat2(base, rel, flags),
                Self::Openat => open_with_openat(base, rel, flags),
            };
            tries += 1;
            // A component was replaced, or moved out of the directory.
            if tries == TRIES || !matches!(opened, Err(Errno::AGAIN | Errno::XDEV)) {
                return opened;
            }
        }
    }

    /// Opens a path like [`Self::open`], but only if the kernel has all of its components cached.
    /// Returns `EAGAIN` if a component is not cached, or if the method cannot tell.
    pub(super) fn open_cached(self, base: &OwnedFd, rel: &[u8], flags: OFlags) -> Io<OwnedFd> {
        let rel = if rel.is_empty() { b"." } else { rel };
        self.open_if_cached(base, rel, flags, RESOLVE_BENEATH)
    }

    /// Opens an absolute path without links with `O_PATH`, if its components are cached.
    pub(super) fn open_path_cached_no_links(self, path: &[u8]) -> Io<OwnedFd> {
        self.open_if_cached(CWD, path, OFlags::PATH | OFlags::NOFOLLOW, RESOLVE_NO_LINKS)
    }

    /// Opens an absolute path with `O_PATH`, following links, if its components are cached.
    pub(super) fn open_path_cached(self, path: &[u8]) -> Io<OwnedFd> {
        self.open_if_cached(CWD, path, OFlags::PATH, ResolveFlags::empty())
    }

    fn open_if_cached(
        self,
        base: impl AsFd,
        path: &[u8],
        flags: OFlags,
        resolve: ResolveFlags,
    ) -> Io<OwnedFd> {
        match self {
            Self::Openat2 => {
                let resolve = resolve | ResolveFlags::CACHED;
                openat2(base, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
            }
            Self::Openat => Err(Errno::AGAIN),
        }
    }
}

fn open_with_openat2(base: &OwnedFd, rel: &[u8], flags: OFlags) -> Io<OwnedFd> {
    openat2(
        base,
        rel,
        flags | OFlags::CLOEXEC,
        Mode::empty(),
        RESOLVE_BENEATH,
    )
}

/// Opens component by component, with the errors of openat2(2). At the end, checks that the file is
/// still beneath `base`, because a directory may be moved out between two steps.
fn open_with_openat(base: &OwnedFd, rel: &[u8], flags: OFlags) -> Io<OwnedFd> {
    if rel.len() >= PATH_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    let mut names = rel.split(|b| *b == b'/');
    let last = names.next_back().unwrap_or_default();
    let mut parent: Option<OwnedFd> = None;
    for name in names {
        parent = Some(open_component(
            parent.as_ref().unwrap_or(base),
            name,
            INTERMEDIATE_DIR,
        )?);
    }
    let opened = open_component(parent.as_ref().unwrap_or(base), last, flags)?;
    check_beneath(&opened, base, last).map(|()| opened)
}

fn open_component(dir: &OwnedFd, name: &[u8], flags: OFlags) -> Io<OwnedFd> {
    match openat(dir, name, flags | OFlags::NOFOLLOW, Mode::empty()) {
        // openat(2) returns the same error for a link if a directory is required.
        Err(Errno::NOTDIR) => {
            let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
            Err(match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink => Errno::LOOP,
                // The entry was replaced by a directory in the meantime.
                FileType::Directory => Errno::AGAIN,
                _ => Errno::NOTDIR,
            })
        }
        result => result,
    }
}

/// Returns `EXDEV` if an open file is no longer beneath its base. The kernel reports the whole path
/// of a descriptor at one moment, which a walk along the path cannot. For a deleted file the kernel
/// reports only the last path, so the result is `EAGAIN`. If /proc is not mounted, the check is
/// skipped.
fn check_beneath(opened: &OwnedFd, base: &OwnedFd, name: &[u8]) -> Io<()> {
    let Ok(base_path) = opened_path(base) else {
        return Ok(());
    };
    let inner = opened_path(opened)?;
    let outer = base_path.strip_suffix(b"/").unwrap_or(&base_path);

    if !inner
        .strip_prefix(outer)
        .is_some_and(|rest| rest.starts_with(b"/"))
    {
        return Err(Errno::XDEV);
    }

    let is_removed = inner.ends_with(DELETED_SUFFIX) && !name.ends_with(DELETED_SUFFIX);
    if is_removed {
        Err(Errno::AGAIN)
    } else {
        Ok(())
    }
}

/// Whether the kernel reports an open file as deleted. Without /proc, no file is.
pub fn is_deleted(fd: &OwnedFd) -> bool {
    opened_path(fd).is_ok_and(|path| path.ends_with(DELETED_SUFFIX))
}

/// Returns the path of an open file as the kernel knows it now.
fn opened_path(fd: &OwnedFd) -> Io<Vec<u8>> {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    readlinkat(CWD, link, Vec::new()).map(std::ffi::CString::into_bytes)
}

#[cfg(test)]
mod tests;
