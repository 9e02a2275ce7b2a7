//! Resolution of the links in a path, component by component, without opening a file. The result is
//! only text: a user must open it beneath a descriptor without following links. Source:
//! `path_resolution(7)`.

use rustix::fs::{CWD, PROC_SUPER_MAGIC, readlinkat, statfs};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Limit of the kernel, `MAXSYMLINKS`.
const MAX_LINKS: u32 = 40;

/// A path without links, `.` and `..`, as far as it exists.
#[derive(Debug, PartialEq, Eq)]
pub struct PathResolution {
    /// Absolute path as raw bytes, without trailing `/`; the root of the file system is empty.
    /// Components that do not exist are kept, with `..` removed.
    pub real: Vec<u8>,
    /// Reason why the resolution stopped before the last component.
    pub stop: Option<ResolveStop>,
    /// Each name that was looked up. A change of such an entry may change the resolution. A missing
    /// component is recorded with its deepest existing ancestor.
    pub lookups: Vec<NameLookup>,
}

/// Reason why a resolution stopped early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResolveStop {
    Missing,
    NotADirectory,
    Denied,
    Loop,
    /// At a link in procfs. Such a link leads to an open file of a process, and its text is not a
    /// path.
    MagicLink,
    /// Before a name that may not be looked up.
    Outside,
    /// At a directory that was replaced by a link during the resolution.
    Replaced,
    TooManyOpenFiles,
    Failed,
}

/// Origin of a component of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentOrigin {
    /// The path itself.
    Request,
    /// A link outside the allowed directories, reached by the path itself.
    OutsideLink,
    /// A link below an allowed directory, or a link that such a link leads to.
    InsideLink,
}

/// Start of a resolution.
#[derive(Clone)]
pub struct PathStart<'a> {
    /// Directory without links in its path, to which `path` is relative.
    pub real: Vec<u8>,
    pub path: &'a [u8],
    pub origin: SegmentOrigin,
    /// Number of links that were followed before.
    pub links: u32,
}

/// Target of a link.
pub struct LinkTarget {
    pub path: Vec<u8>,
    pub origin: SegmentOrigin,
}

/// A name that a resolution looks up in a directory without links in its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameLookup {
    pub dir: Vec<u8>,
    pub name: Vec<u8>,
}

/// Access of a resolution to the file system.
pub trait PathLookup {
    /// Looks up a name. Returns the target if the entry is a link.
    fn read_link(
        &mut self,
        dir: &[u8],
        name: &[u8],
        origin: SegmentOrigin,
    ) -> Result<Option<LinkTarget>, ResolveStop>;

    /// Checks whether a `..` may leave a directory.
    fn leave_dir(&mut self, dir: &[u8], origin: SegmentOrigin) -> Result<(), ResolveStop>;
}

/// Lookup of every name, for paths of the operator.
pub struct OperatorLookup;

/// Component of a path in progress.
struct PendingSegment {
    name: Vec<u8>,
    origin: SegmentOrigin,
}

impl<'a> PathStart<'a> {
    /// Start of an absolute path.
    pub fn absolute(path: &'a [u8]) -> Self {
        Self {
            real: Vec::new(),
            path,
            origin: SegmentOrigin::Request,
            links: 0,
        }
    }
}

impl NameLookup {
    /// Absolute path of the entry.
    pub fn entry_path(&self) -> Vec<u8> {
        [&self.dir[..], b"/", &self.name].concat()
    }
}

impl PathLookup for OperatorLookup {
    fn read_link(
        &mut self,
        dir: &[u8],
        name: &[u8],
        origin: SegmentOrigin,
    ) -> Result<Option<LinkTarget>, ResolveStop> {
        let target = read_link_by_path(dir, name)?;
        Ok(target.map(|path| LinkTarget { path, origin }))
    }

    fn leave_dir(&mut self, _: &[u8], _: SegmentOrigin) -> Result<(), ResolveStop> {
        Ok(())
    }
}

/// Resolves an absolute path of the operator.
pub fn resolve_path(path: &[u8]) -> PathResolution {
    resolve_path_with(PathStart::absolute(path), &mut OperatorLookup)
}

/// Resolves a path. Looks up a name only if `lookup` permits it.
pub fn resolve_path_with(start: PathStart<'_>, lookup: &mut impl PathLookup) -> PathResolution {
    let PathStart {
        mut real,
        path,
        origin,
        mut links,
    } = start;
    let mut stop = None;
    let mut lookups = Vec::new();
    let mut pending = Vec::new();
    push_segments(&mut pending, path, origin, &mut real);

    while let Some(PendingSegment { name, origin }) = pending.pop() {
        if name == b".." {
            if let Err(outside) = lookup.leave_dir(&real, origin) {
                stop = Some(outside);
                break;
            }
            let parent = real.iter().rposition(|b| *b == b'/').unwrap_or(0);
            real.truncate(parent);
            continue;
        }

        let parent = real.len();
        real.push(b'/');
        real.extend(&name);
        // Nothing behind the first failure is looked up, but the names stay in the result.
        if stop.is_some() {
            continue;
        }

        match look_up_name(lookup, &real[..parent], name, origin, &mut lookups) {
            Ok(None) => {}
            Ok(Some(target)) => {
                links += 1;
                if links > MAX_LINKS {
                    stop = Some(ResolveStop::Loop);
                    continue;
                }
                real.truncate(parent);
                push_segments(&mut pending, &target.path, target.origin, &mut real);
            }
            Err(error) => {
                stop = Some(error);
                // The result must not depend on the rest of the path.
                if error == ResolveStop::Outside {
                    break;
                }
            }
        }
    }

    PathResolution {
        real,
        stop,
        lookups,
    }
}

/// Returns the target of the entry at an absolute path if the entry is a link.
pub fn read_link_by_path(dir: &[u8], name: &[u8]) -> Result<Option<Vec<u8>>, ResolveStop> {
    match readlinkat(CWD, [dir, b"/", name].concat(), Vec::new()) {
        Ok(_) if statfs(path_or_slash(dir)).is_ok_and(|stat| stat.f_type == PROC_SUPER_MAGIC) => {
            Err(ResolveStop::MagicLink)
        }
        Ok(target) => Ok(Some(target.into_bytes())),
        // The entry exists and is not a link.
        Err(Errno::INVAL) => Ok(None),
        Err(error) => Err(stop_from_errno(error)),
    }
}

/// Returns the path, or `/` if it is empty.
pub fn path_or_slash(path: &[u8]) -> &Path {
    let path = if path.is_empty() { b"/" } else { path };
    Path::new(OsStr::from_bytes(path))
}

/// Looks up a name in a directory, and records the lookup unless it was refused.
fn look_up_name(
    lookup: &mut impl PathLookup,
    dir: &[u8],
    name: Vec<u8>,
    origin: SegmentOrigin,
    lookups: &mut Vec<NameLookup>,
) -> Result<Option<LinkTarget>, ResolveStop> {
    let target = lookup.read_link(dir, &name, origin);
    if !matches!(target, Err(ResolveStop::Outside)) {
        let dir = dir.to_vec();
        lookups.push(NameLookup { dir, name });
    }
    target
}

/// Pushes the components of a path on top of the pending components. An absolute path clears
/// `real`.
fn push_segments(
    pending: &mut Vec<PendingSegment>,
    path: &[u8],
    origin: SegmentOrigin,
    real: &mut Vec<u8>,
) {
    if path.first() == Some(&b'/') {
        real.clear();
    }
    let segments = path
        .split(|b| *b == b'/')
        .filter(|s| !s.is_empty() && *s != b".");
    pending.extend(segments.rev().map(|name| PendingSegment {
        name: name.to_vec(),
        origin,
    }));
}

pub fn stop_from_errno(error: Errno) -> ResolveStop {
    match error {
        Errno::NOENT => ResolveStop::Missing,
        Errno::NOTDIR => ResolveStop::NotADirectory,
        Errno::ACCESS | Errno::PERM => ResolveStop::Denied,
        Errno::LOOP => ResolveStop::Loop,
        Errno::XDEV => ResolveStop::Outside,
        Errno::MFILE | Errno::NFILE => ResolveStop::TooManyOpenFiles,
        _ => ResolveStop::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::{ResolveStop, resolve_path};
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::symlink;

    #[test]
    fn resolves_like_the_kernel() {
        let tmp = tempfile::tempdir().expect("temp dir");
        let base = tmp.path().canonicalize().expect("real");
        std::fs::create_dir_all(base.join("a/b")).expect("dirs");
        std::fs::write(base.join("a/f"), "").expect("file");
        symlink("b", base.join("a/rel")).expect("link");
        symlink(base.join("a"), base.join("abs")).expect("link");
        symlink("../abs/rel/..", base.join("a/chain")).expect("link");
        symlink("round", base.join("round")).expect("link");
        symlink("nowhere/x", base.join("gone")).expect("link");
        for (path, real, stopped) in [
            ("a/b", "a/b", None),
            ("a/./rel//", "a/b", None),
            ("abs/rel", "a/b", None),
            ("a/chain", "a", None),
            ("a/b/../f", "a/f", None),
            ("gone", "nowhere/x", Some(ResolveStop::Missing)),
            ("nowhere/../a", "a", Some(ResolveStop::Missing)),
            ("a/f/x", "a/f/x", Some(ResolveStop::NotADirectory)),
            ("round/x", "round/x", Some(ResolveStop::Loop)),
        ] {
            let walked = resolve_path(base.join(path).as_os_str().as_bytes());
            assert_eq!(
                walked.real,
                base.join(real).as_os_str().as_bytes(),
                "{path}"
            );
            assert_eq!(walked.stop, stopped, "{path}");
        }
    }
}
