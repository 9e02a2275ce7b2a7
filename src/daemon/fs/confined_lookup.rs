//! Lookup of names for paths of callers and links, confined to the allowed directories.
//!
//! A link must not reveal which files exist outside. So a link ends at the first name outside, before
//! the name is looked up. `RESOLVE_BENEATH` of openat2(2) does the same. The names on the configured
//! path of an allowed directory are the only exception: a link may pass through them to an allowed
//! directory.
//!
//! The path of a root may be an alias: a path outside that leads to an allowed directory by links.
//! The authors of files below an allowed directory cannot change such a path.

use super::dirs_snapshot::{AllowedDirsSnapshot, VisibleDir, strip_dir_prefix};
use super::path_resolution::{
    LinkTarget, PathLookup, ResolveStop, SegmentOrigin, read_link_by_path, stop_from_errno,
};
use rustix::fs::{OFlags, PROC_SUPER_MAGIC, fstatfs, readlinkat};
use rustix::io::{Errno, Result as Io};
use std::os::fd::OwnedFd;

/// Lookup in a snapshot.
pub struct ConfinedLookup<'a> {
    pub snapshot: &'a AllowedDirsSnapshot,
    /// Whether a lookup fails if the kernel does not have the name in its cache.
    pub cached_only: bool,
    /// Further directories in which names may be looked up.
    pub visible: &'a [VisibleDir<'a>],
    /// Function that is called with each directory and name before the name is looked up.
    pub visit: Option<&'a mut VisitFn<'a>>,
}

/// Function that is called with a directory and a name.
pub type VisitFn<'a> = dyn FnMut(&[u8], &[u8]) + 'a;

impl<'a> ConfinedLookup<'a> {
    /// Creates a lookup that is confined to the allowed directories.
    pub fn new(snapshot: &'a AllowedDirsSnapshot) -> Self {
        Self {
            snapshot,
            cached_only: false,
            visible: &[],
            visit: None,
        }
    }

    /// Whether a name may be looked up in a directory without links in its path.
    fn may_look_up(&self, dir: &[u8], name: &[u8], origin: SegmentOrigin) -> bool {
        let entry = [dir, b"/", name].concat();
        self.snapshot.locate_absolute(dir).is_some()
            || self.snapshot.is_configured_step(&entry)
            || self
                .visible
                .iter()
                .any(|visible| visible.locate(dir).is_some() || visible.steps.contains(&entry))
            // The rest of an allowed directory belongs to other callers.
            || origin != SegmentOrigin::InsideLink && self.snapshot.split_at_dir(dir).is_none()
    }

    /// Opens an entry of a directory with `O_PATH`. Below an allowed directory, a component that was
    /// replaced by a link is not followed.
    fn open_entry(&self, dir: &[u8], name: &[u8]) -> Option<Io<OwnedFd>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let entry = [dir, b"/", name].concat();
        let place = self
            .snapshot
            .split_at_dir(dir)
            .and_then(|_| self.snapshot.split_at_dir(&entry));
        if let Some((dir_index, rel_path)) = place {
            return Some(
                self.snapshot
                    .open_entry(dir_index, rel_path, flags, self.cached_only),
            );
        }

        // A descriptor of a visible directory leads to the directory of the skill only by its path, so
        // the entry is opened beneath the link directory.
        let mut visible = self
            .visible
            .iter()
            .filter(|visible| visible.locate(dir).is_some());
        if let Some(visible) = visible.next() {
            let link_dir = &self.snapshot.dir_at(visible.dir_index).path;
            let place = strip_dir_prefix(&entry, link_dir);
            return Some(place.map_or(Err(Errno::XDEV), |rel_path| {
                self.snapshot
                    .open_entry(visible.dir_index, rel_path, flags, self.cached_only)
            }));
        }
        self.cached_only
            .then(|| self.snapshot.opener().open_path_cached_no_links(&entry))
    }
}

impl PathLookup for ConfinedLookup<'_> {
    fn read_link(
        &mut self,
        dir: &[u8],
        name: &[u8],
        origin: SegmentOrigin,
    ) -> Result<Option<LinkTarget>, ResolveStop> {
        if let Some(visit) = &mut self.visit {
            visit(dir, name);
        }
        if !self.may_look_up(dir, name, origin) {
            return Err(ResolveStop::Outside);
        }

        let target = match self.open_entry(dir, name) {
            Some(opened) => read_open_link(opened)?,
            None => read_link_by_path(dir, name)?,
        };

        let is_inside = self.snapshot.split_at_dir(dir).is_some();
        let origin = if is_inside || origin == SegmentOrigin::InsideLink {
            SegmentOrigin::InsideLink
        } else {
            SegmentOrigin::OutsideLink
        };

        Ok(target.map(|path| LinkTarget { path, origin }))
    }

    /// A path that leaves the allowed directories and returns by `..` is rejected even if it exists:
    /// otherwise the result would reveal whether a directory outside exists.
    fn leave_dir(&mut self, dir: &[u8], origin: SegmentOrigin) -> Result<(), ResolveStop> {
        if origin == SegmentOrigin::Request && !self.snapshot.is_inside_or_above(dir) {
            return Err(ResolveStop::Outside);
        }
        Ok(())
    }
}

/// Returns the target of an entry that was opened with `O_PATH`, if the entry is a link.
fn read_open_link(opened: Io<OwnedFd>) -> Result<Option<Vec<u8>>, ResolveStop> {
    let entry = opened.map_err(|error| match error {
        Errno::LOOP | Errno::AGAIN => ResolveStop::Replaced,
        error => stop_from_errno(error),
    })?;
    match readlinkat(&entry, c"", Vec::new()) {
        Ok(_) if fstatfs(&entry).is_ok_and(|stat| stat.f_type == PROC_SUPER_MAGIC) => {
            Err(ResolveStop::MagicLink)
        }
        Ok(target) => Ok(Some(target.into_bytes())),
        // readlinkat(2): with an empty path, the error of an entry that is not a link is ENOENT.
        Err(Errno::NOENT | Errno::INVAL) => Ok(None),
        Err(error) => Err(stop_from_errno(error)),
    }
}
