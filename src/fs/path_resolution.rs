//! Resolution of the links in a path, component by component, without opening a file. The result is
//! only text: a user must open it beneath a descriptor without following links. Source:
//! `path_resolution(7)`.

use rustix::fs::{CWD, PROC_SUPER_MAGIC, readlinkat, statfs};
use rustix::io::Errno;

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
    Failed,
}

/// Resolves an absolute path.
pub fn resolve_path(path: &[u8]) -> PathResolution {
    resolve_path_from(Vec::new(), path, 0)
}

/// Returns each directory in which the resolution of an absolute path looks up a name, with the
/// name. A change of such an entry may change the resolution. A missing component is looked up in
/// its deepest existing ancestor.
pub fn path_lookups(path: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    path_lookups_from(Vec::new(), path)
}

/// Returns the lookups of a path relative to `real`, a directory without links in its path.
pub fn path_lookups_from(real: Vec<u8>, path: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut steps = Vec::new();
    let note = |dir: &[u8], name: &[u8]| steps.push((dir.to_vec(), name.to_vec()));
    resolve_path_with(real, path, 0, note, |_| {});
    steps
}

/// Resolves a path relative to `real`, a directory without links in its path. `links` is the number
/// of links that were followed before.
pub fn resolve_path_from(real: Vec<u8>, path: &[u8], links: u32) -> PathResolution {
    resolve_path_with(real, path, links, |_, _| {}, |_| {})
}

/// Resolves a path, and calls `left` with each directory that a `..` of the path itself leaves. A
/// `..` in the target of a link is not reported.
pub fn resolve_path_reporting_exits(
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
    // The components of the path itself lie below the components of links.
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
            // The component exists and is not a link.
            Err(Errno::INVAL) => {}
            Err(error) => stopped = Some(stop_from_errno(error)),
        }
    }
    PathResolution {
        real,
        stop: stopped,
    }
}

/// Whether a directory is in procfs.
fn is_procfs(dir: &[u8]) -> bool {
    let dir = if dir.is_empty() { b"/" } else { dir };
    statfs(dir).is_ok_and(|stat| stat.f_type == PROC_SUPER_MAGIC)
}

/// Pushes the components of a path on top of the pending components. An absolute path clears
/// `real`.
fn push_segments(pending: &mut Vec<Vec<u8>>, path: &[u8], real: &mut Vec<u8>) {
    if path.first() == Some(&b'/') {
        real.clear();
    }
    let segments = path
        .split(|b| *b == b'/')
        .filter(|s| !s.is_empty() && *s != b".");
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
            assert_eq!(
                walked.real,
                base.join(real).as_os_str().as_bytes(),
                "{path}"
            );
            assert_eq!(walked.stop, stopped, "{path}");
        }
    }
}
