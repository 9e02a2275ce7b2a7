//! Opens what lies beneath a directory that is held, whatever is exchanged on the way meanwhile: no
//! link is followed and `..` is never taken. By openat2(2), or step by step where the kernel has none
//! or a sandbox forbids it, with the same answers. Leaves it to its callers what a link means.

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, openat, openat2, readlinkat, statat,
};
use rustix::io::{Errno, Result as Io};
use std::os::fd::{AsRawFd as _, OwnedFd};

/// How often what changes under our feet is tried again.
const TRIES: usize = 32;
/// The kernel's bound on a path, the NUL at its end included.
const PATH_MAX: usize = 4_096;
/// What the kernel says behind the path of what has no name any more.
const DELETED_SUFFIX: &[u8] = b" (deleted)";
/// How openat2(2) is kept from links.
const RESOLVE_NO_LINKS: ResolveFlags = ResolveFlags::NO_SYMLINKS.union(ResolveFlags::NO_MAGICLINKS);
/// How it is kept beneath a directory.
const RESOLVE_BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(RESOLVE_NO_LINKS);
/// A directory that is only passed through. Of one that mounts itself when it is entered, `O_DIRECTORY`
/// asks for that, as the way of any path does.
const INTERMEDIATE_DIR: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// How things are opened beneath a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMethod {
    /// By one call of openat2(2) each.
    Openat2,
    /// By one openat(2) for each component of the path.
    Openat,
}

impl OpenMethod {
    /// Asks the kernel whether this process may use openat2(2) now: what a sandbox forbids only
    /// later is not seen.
    #[must_use]
    pub fn probe() -> Self {
        let asked = openat(CWD, c"/", INTERMEDIATE_DIR, Mode::empty())
            .and_then(|top| open_with_openat2(&top, b".", OFlags::PATH | OFlags::DIRECTORY));
        match asked {
            // What is only short of something for now is there.
            Ok(_) | Err(Errno::AGAIN | Errno::MFILE | Errno::NFILE | Errno::NOMEM) => Self::Openat2,
            // ENOSYS of an old kernel and of systemd, EPERM or EACCES of others, or what else a
            // filter was told to say.
            Err(_) => Self::Openat,
        }
    }

    /// Its name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Openat2 => "openat2",
            Self::Openat => "openat",
        }
    }

    /// Opens a directory by its absolute path, on which no link may be.
    pub(super) fn open_absolute_dir(self, path: &[u8]) -> Io<OwnedFd> {
        let top = openat(CWD, c"/", INTERMEDIATE_DIR, Mode::empty())?;
        match path.strip_prefix(b"/").unwrap_or(path) {
            [] => Ok(top),
            rel => self.open(&top, rel, OFlags::PATH | OFlags::DIRECTORY),
        }
    }

    /// Opens a relative path beneath a directory: no `..` in it, and no link on the way. A link at
    /// its end is opened only with `O_PATH` and `O_NOFOLLOW`, as itself. The empty path is the
    /// directory.
    pub(super) fn open(self, base: &OwnedFd, rel: &[u8], flags: OFlags) -> Io<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        if rel.is_empty() {
            return openat(base, c".", flags, Mode::empty());
        }
        let once = || match self {
            Self::Openat2 => open_with_openat2(base, rel, flags),
            Self::Openat => open_with_openat(base, rel, flags),
        };
        let mut opened = once();
        for _ in 1..TRIES {
            // Something was exchanged on the way, or moved out of the base meanwhile.
            if !matches!(opened, Err(Errno::AGAIN | Errno::XDEV)) {
                break;
            }
            opened = once();
        }
        opened
    }

    /// The same where the kernel has the whole way in memory: what it would have to ask a disk or a
    /// server for is `EAGAIN`, and so is what it cannot be asked like this.
    pub(super) fn open_cached(self, base: &OwnedFd, rel: &[u8], flags: OFlags) -> Io<OwnedFd> {
        let rel = if rel.is_empty() { b"." } else { rel };
        match self {
            Self::Openat2 => {
                let resolve = RESOLVE_BENEATH | ResolveFlags::CACHED;
                openat2(base, rel, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
            }
            Self::Openat => Err(Errno::AGAIN),
        }
    }

    /// The same of an absolute path.
    pub(super) fn stat_cached_no_links(self, path: &[u8]) -> Io<OwnedFd> {
        match self {
            Self::Openat2 => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let resolve = RESOLVE_NO_LINKS | ResolveFlags::CACHED;
                openat2(CWD, path, flags, Mode::empty(), resolve)
            }
            Self::Openat => Err(Errno::AGAIN),
        }
    }

    /// What an absolute path leads to, links followed, with what the kernel has in memory.
    pub(super) fn stat_cached(self, path: &[u8]) -> Io<OwnedFd> {
        match self {
            Self::Openat2 => {
                let flags = OFlags::PATH | OFlags::CLOEXEC;
                openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED)
            }
            Self::Openat => Err(Errno::AGAIN),
        }
    }
}

fn open_with_openat2(base: &OwnedFd, rel: &[u8], flags: OFlags) -> Io<OwnedFd> {
    openat2(base, rel, flags | OFlags::CLOEXEC, Mode::empty(), RESOLVE_BENEATH)
}

/// Says what openat2(2) says. Like that, looks at the end whether it is still beneath the base: a
/// directory that is moved out between two steps takes the walk along.
fn open_with_openat(base: &OwnedFd, rel: &[u8], flags: OFlags) -> Io<OwnedFd> {
    if rel.len() >= PATH_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    let mut names = rel.split(|b| *b == b'/');
    let last = names.next_back().unwrap_or_default();
    let mut passed: Option<OwnedFd> = None;
    for name in names {
        passed = Some(open_component(passed.as_ref().unwrap_or(base), name, INTERMEDIATE_DIR)?);
    }
    let opened = open_component(passed.as_ref().unwrap_or(base), last, flags)?;
    check_beneath(&opened, base, last).map(|()| opened)
}

fn open_component(dir: &OwnedFd, name: &[u8], flags: OFlags) -> Io<OwnedFd> {
    match openat(dir, name, flags | OFlags::NOFOLLOW, Mode::empty()) {
        // openat(2) says this of a link, too, where a directory is wanted.
        Err(Errno::NOTDIR) => {
            let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
            Err(match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink => Errno::LOOP,
                // By now.
                FileType::Directory => Errno::AGAIN,
                _ => Errno::NOTDIR,
            })
        }
        done => done,
    }
}

/// `EXDEV` where what was opened does not lie beneath its base now. The kernel tells the whole way of
/// a descriptor as it is at one moment, which no walk along it can. Of what was removed since, it
/// tells where that was last, which proves nothing: `EAGAIN`. Where /proc is not mounted there is
/// nobody to ask, and the steps must do.
fn check_beneath(opened: &OwnedFd, base: &OwnedFd, name: &[u8]) -> Io<()> {
    let place = |fd: &OwnedFd| {
        let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
        readlinkat(CWD, link, Vec::new()).map(std::ffi::CString::into_bytes)
    };
    let Ok(outer) = place(base) else { return Ok(()) };
    let inner = place(opened)?;
    let outer = outer.strip_suffix(b"/").unwrap_or(&outer);
    if !inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with(b"/")) {
        return Err(Errno::XDEV);
    }
    let is_removed = inner.ends_with(DELETED_SUFFIX) && !name.ends_with(DELETED_SUFFIX);
    if is_removed { Err(Errno::AGAIN) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
