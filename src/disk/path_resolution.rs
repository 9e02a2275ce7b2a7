//! Resolves links in a path by reading them, one component at a time, without opening anything.
//! What comes out is only a text: whoever opens it does so beneath a descriptor, links refused, and
//! lets the kernel decide. Source: `path_resolution(7)`.

use rustix::fs::{CWD, PROC_SUPER_MAGIC, readlinkat, statfs};
use rustix::io::Errno;

/// The kernel's own bound, `MAXSYMLINKS`.
const MAX_LINKS: u32 = 40;

/// A path without links, `.` and `..`, as far as it exists.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PathResolution {
    /// Absolute, raw bytes, no trailing `/` (the root of the file system is empty). What does not
    /// exist is kept as it was written, `..` taken away.
    pub(super) real: Vec<u8>,
    /// Why the walk ended before the last component, if it did.
    pub(super) stop: Option<ResolveStop>,
}

/// Why a walk ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResolveStop {
    Missing,
    NotADirectory,
    Denied,
    Loop,
    /// At a link of procfs. Such a link leads to what a process holds, whatever its text says.
    MagicLink,
    Failed,
}

/// Walks an absolute path.
pub(super) fn resolve_path(path: &[u8]) -> PathResolution {
    resolve_path_from(Vec::new(), path, 0)
}

/// Every directory that the walk of an absolute path looks into, and for which name: where a change
/// may make the path lead elsewhere. What does not exist yet is in it with its deepest ancestor.
pub(super) fn path_lookups(path: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    path_lookups_from(Vec::new(), path)
}

/// The same of a path that is relative to `real`, a directory that is itself without links.
pub(super) fn path_lookups_from(real: Vec<u8>, path: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut steps = Vec::new();
    let note = |dir: &[u8], name: &[u8]| steps.push((dir.to_vec(), name.to_vec()));
    resolve_path_with(real, path, 0, note, |_| {});
    steps
}

/// Walks a path that is relative to `real`, a directory that is itself without links. So many links
/// were followed before.
pub(super) fn resolve_path_from(real: Vec<u8>, path: &[u8], links: u32) -> PathResolution {
    resolve_path_with(real, path, links, |_, _| {}, |_| {})
}

/// The same, telling each place that a `..` of the path itself, and not of a link on it, leads out of.
pub(super) fn resolve_path_reporting_exits(
    real: Vec<u8>,
    path: &[u8],
    links: u32,
    left: impl FnMut(&[u8]),
) -> PathResolution {
    resolve_path_with(real, path, links, |_, _| {}, left)
}

fn resolve_path_with(
    mut real: Vec<u8>,
    path: &[u8],
    mut links: u32,
    mut note: impl FnMut(&[u8], &[u8]),
    mut left: impl FnMut(&[u8]),
) -> PathResolution {
    let mut stopped = None;
    // The path's own segments lie below those of links.
    let mut pending: Vec<Vec<u8>> = Vec::new();
    push_segments(&mut pending, path, &mut real);
    let mut own = pending.len();
    while let Some(segment) = pending.pop() {
        let is_own = pending.len() < own;
        own = own.min(pending.len());
        if segment == b".." {
            if is_own {
                left(&real);
            }
            let parent = real.iter().rposition(|b| *b == b'/').unwrap_or(0);
            real.truncate(parent);
            continue;
        }
        let parent = real.len();
        real.push(b'/');
        real.extend(&segment);
        if stopped.is_some() {
            continue;
        }
        note(&real[..parent], &segment);
        match readlinkat(CWD, &*real, Vec::new()) {
            Ok(_) if is_procfs(&real[..parent]) => stopped = Some(ResolveStop::MagicLink),
            Ok(target) => {
                links += 1;
                if links > MAX_LINKS {
                    stopped = Some(ResolveStop::Loop);
                    continue;
                }
                real.truncate(parent);
                push_segments(&mut pending, target.as_bytes(), &mut real);
            }
            // It is there, and no link.
            Err(Errno::INVAL) => {}
            Err(error) => stopped = Some(stop_from_errno(error)),
        }
    }
    PathResolution { real, stop: stopped }
}

/// Whether a directory is of procfs.
fn is_procfs(dir: &[u8]) -> bool {
    let dir = if dir.is_empty() { b"/" } else { dir };
    statfs(dir).is_ok_and(|stat| stat.f_type == PROC_SUPER_MAGIC)
}

/// Puts a path's segments before those that are pending, and starts over where it is absolute.
fn push_segments(pending: &mut Vec<Vec<u8>>, path: &[u8], real: &mut Vec<u8>) {
    if path.first() == Some(&b'/') {
        real.clear();
    }
    let segments = path.split(|b| *b == b'/').filter(|s| !s.is_empty() && *s != b".");
    pending.extend(segments.rev().map(<[u8]>::to_vec));
}

fn stop_from_errno(error: Errno) -> ResolveStop {
    match error {
        Errno::NOENT => ResolveStop::Missing,
        Errno::NOTDIR => ResolveStop::NotADirectory,
        Errno::ACCESS | Errno::PERM => ResolveStop::Denied,
        Errno::LOOP => ResolveStop::Loop,
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
            assert_eq!(walked.real, base.join(real).as_os_str().as_bytes(), "{path}");
            assert_eq!(walked.stop, stopped, "{path}");
        }
    }
}
