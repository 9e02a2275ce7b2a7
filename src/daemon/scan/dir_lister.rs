//! Listing of one directory for a scan, with its skill files.

use super::file_problem::{
    link_problem, open_problem, read_failed_problem, removed_mount_problem, unreadable_problem,
    vanished_problem,
};
use super::namespaces::{MANIFEST_DIRECTORIES, manifest_paths};
use super::scanned_dir::{
    DirListing, DirToScan, ListedDir, ListingEntry, ListingEntryKind, SkillFileFingerprints,
    SkillFileRead,
};
use super::scanned_root::ScanContext;
use super::watches::{DIR_FLAGS, WatchRecorder};
use super::worktree::{GIT_FILE, is_copy_of_repository};
use crate::daemon::fs::dirs_snapshot::{AllowedDirsSnapshot, identity};
use crate::daemon::fs::file_head;
use crate::daemon::fs::open_file::{self, FileFingerprint, OpenError, OpenFile, read_names};
use crate::daemon::model::skill::{SidecarFile, SkillFile};
use crate::daemon::model::{Limits, ResolvedPath, Severity, SkillSidecar, sidecar_path};
use crate::daemon::parse::{frontmatter, sidecar};
use caproot_core::wire::ContentDigest;
use rustix::fs::{FileType, OFlags, fstat};
use rustix::io::{self, Errno};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

/// Parameters of a listing.
pub struct DirLister<'a> {
    pub snapshot: &'a AllowedDirsSnapshot,
    pub limits: &'a Limits,
    pub context: &'a ScanContext<'a>,
}

/// Buffers that are reused for each listing.
#[derive(Default)]
pub struct ListBuffers {
    names: Vec<u8>,
    head: Vec<u8>,
}

/// Watches and fingerprints of a listing in progress.
struct ListingRecord<'a> {
    watches: WatchRecorder<'a>,
    fingerprints: SkillFileFingerprints,
    buffers: &'a mut ListBuffers,
}

impl DirLister<'_> {
    /// Watches a directory under a token, then lists the directory: in this order no change is
    /// missed. Returns a problem if the directory cannot be listed.
    pub fn list_dir(
        &self,
        to_scan: &DirToScan,
        token: u64,
        buffers: &mut ListBuffers,
    ) -> ListedDir {
        let mut record = ListingRecord {
            watches: WatchRecorder::new(self.context.watcher, token),
            fingerprints: SkillFileFingerprints::default(),
            buffers,
        };

        // The result of a cancelled scan is discarded, so that any problem will do.
        let listing = if self.context.progress.is_cancelled() {
            Err(vanished_problem())
        } else {
            self.watch_and_list(to_scan, &mut record)
                .map_err(|errno| unreadable_problem(errno.into(), Severity::Warning))
        };

        record.fingerprints.has_hard_links = record.watches.has_hard_links;
        ListedDir {
            listing,
            guards: record.watches.guards.into(),
            fingerprints: record.fingerprints,
        }
    }

    fn watch_and_list(
        &self,
        to_scan: &DirToScan,
        record: &mut ListingRecord<'_>,
    ) -> io::Result<DirListing> {
        let dir = self.open_watched(&to_scan.resolved, record)?;
        let stat = fstat(&dir)?;
        let names = read_names(&dir, self.limits.max_entries, &mut record.buffers.names)?;

        let total_entries = names.len();
        let kind_of = |wanted: &[u8]| {
            let found = names.binary_search_by(|(name, _)| (**name).cmp(wanted));
            found.ok().map(|at| names[at].1)
        };
        let mut manifest_directories = MANIFEST_DIRECTORIES.into_iter();
        let may_hold_manifest = manifest_directories.any(|name| kind_of(name.as_bytes()).is_some());
        let has_sidecar_directory = kind_of(b"agents").is_some();
        if may_hold_manifest {
            self.watch_manifests(&to_scan.resolved, record);
        }
        let is_worktree = !to_scan.path.is_root()
            && kind_of(GIT_FILE) == Some(FileType::RegularFile)
            && is_copy_of_repository(self.snapshot, &to_scan.resolved, &self.context.target.path);

        let mut entries = Vec::new();
        for (ordinal, (name, kind)) in names.into_iter().enumerate() {
            let skill_file = (&*name == b"SKILL.md").then_some(has_sidecar_directory);
            let kind = match kind {
                FileType::RegularFile if name.eq_ignore_ascii_case(b"SKILL.md") => {
                    ListingEntryKind::File(skill_file.map(|sidecar| {
                        let path = to_scan.resolved.join(&name).ok_or_else(vanished_problem)?;
                        let opened = open_file::open_real_path(self.snapshot, path);
                        self.read_skill_file(to_scan, opened, sidecar, record)
                    }))
                }
                FileType::RegularFile => continue,
                FileType::Directory => ListingEntryKind::Directory,
                FileType::Symlink => self.read_link_entry(to_scan, &dir, &name, skill_file, record),
                _ => ListingEntryKind::SpecialFile,
            };
            entries.push(ListingEntry {
                name,
                ordinal,
                kind,
            });
        }

        entries.shrink_to_fit();
        Ok(DirListing {
            identity: identity(&stat),
            total_entries,
            entries,
            may_hold_manifest,
            is_worktree,
        })
    }

    /// Watches the manifests of a directory, which `namespaces` reads later.
    fn watch_manifests(&self, dir: &ResolvedPath, record: &mut ListingRecord<'_>) {
        for path in manifest_paths() {
            record.watches.watch_file_path(self.snapshot, dir, &path);
            let target = open_file::find_target(self.snapshot, dir, &path);
            if target.is_ok_and(|target| target.stat.st_nlink > 1)
                && let Ok(opened) = open_file::open_file(self.snapshot, dir, &path)
            {
                record.watches.track_file(&opened);
            }
        }
    }

    /// Watches a directory, and opens it to list its entries.
    fn open_watched(
        &self,
        path: &ResolvedPath,
        record: &mut ListingRecord<'_>,
    ) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        if let Ok(dir) = self.snapshot.open(path, flags) {
            record.watches.watch_dir(dir.as_fd());
            return Ok(dir);
        }

        // The watch may succeed without read permission. It reports when permission is granted.
        match self.snapshot.open(path, DIR_FLAGS) {
            Ok(dir) => record.watches.watch_dir(dir.as_fd()),
            // There is no watch, so the directory must not be listed: it would count as watched.
            Err(error @ (Errno::MFILE | Errno::NFILE)) => return Err(error),
            Err(_) => {}
        }

        // Permission may have been granted before the watch existed.
        self.snapshot.open(path, flags)
    }

    /// Watches a link, and reads its target.
    fn read_link_entry(
        &self,
        to_scan: &DirToScan,
        dir: &OwnedFd,
        name: &[u8],
        skill_file: Option<bool>,
        record: &mut ListingRecord<'_>,
    ) -> ListingEntryKind {
        // The watch comes before the read, as for the directory.
        let watches = &mut record.watches;
        watches.watch_link(self.snapshot, &to_scan.resolved, name);

        let target = match open_file::follow_link(self.snapshot, &to_scan.resolved, dir, name) {
            Ok(target) => target,
            Err(OpenError::NotRegular) => return ListingEntryKind::SpecialFile,
            Err(OpenError::Resolve(error)) => {
                return ListingEntryKind::BrokenLink(link_problem(error));
            }
        };

        match FileType::from_raw_mode(target.stat.st_mode) {
            FileType::Directory => {
                ListingEntryKind::LinkedDirectory(target.real_path, identity(&target.stat))
            }
            FileType::RegularFile => {
                // The resolved path is opened, because the link may lead elsewhere by now.
                let read = skill_file.map(|sidecar| {
                    let opened = open_file::open_real_path(self.snapshot, target.real_path.clone());
                    self.read_skill_file(to_scan, opened, sidecar, record)
                });
                ListingEntryKind::LinkedFile(target.real_path, read)
            }
            _ => ListingEntryKind::SpecialFile,
        }
    }

    fn read_skill_file(
        &self,
        to_scan: &DirToScan,
        opened: Result<OpenFile, OpenError>,
        has_sidecar_directory: bool,
        record: &mut ListingRecord<'_>,
    ) -> SkillFileRead {
        let opened = opened.map_err(open_problem)?;
        record.fingerprints.skill_file = Some(record.watches.track_file(&opened));

        let size = opened.version.size;
        let bytes = &mut record.buffers.head;
        let head = file_head::read_head(&opened.file, size, self.limits.max_file_bytes, bytes)
            .map_err(|_| read_failed_problem())?;
        // Some filesystems report a wrong size.
        let size = if head.is_complete {
            bytes.len() as u64
        } else {
            size
        };

        // A root without a name in its frontmatter has the name of its directory.
        let ScanContext {
            target, progress, ..
        } = self.context;
        let mut root_names = target.path.split(|b| *b == b'/');
        let root_name = root_names.rfind(|name| !name.is_empty());
        let name = to_scan.path.file_name().or(root_name);
        let (frontmatter, mut problems) = progress.parse_file(&opened.real_path, || {
            let parsed = frontmatter::read(bytes, head.is_complete, name);
            (parsed.frontmatter, parsed.problems)
        });
        problems.extend(head.hidden);
        problems.extend(opened.is_removed.then(removed_mount_problem));

        let sidecar = if has_sidecar_directory {
            self.read_sidecar(&to_scan.resolved, record)
        } else {
            None
        };
        Ok(Arc::new(SkillFile {
            digest: head.digest,
            size,
            frontmatter: frontmatter.map(Into::into),
            problems: problems.into(),
            sidecar: sidecar.map(Box::new),
            stale: false,
        }))
    }

    /// Returns `None` if there is no sidecar. If the sidecar cannot be read, the skill is closed to
    /// models.
    fn read_sidecar(
        &self,
        package: &ResolvedPath,
        record: &mut ListingRecord<'_>,
    ) -> Option<SidecarFile> {
        let path = sidecar_path();
        let ListingRecord {
            watches,
            fingerprints,
            ..
        } = record;
        watches.watch_file_path(self.snapshot, package, &path);

        let mut digest = None;
        let read = match open_file::open_file(self.snapshot, package, &path) {
            Err(e) if e.is_absent() => {
                // A comparison of fingerprints then finds a file that appears later.
                fingerprints.sidecar = Some(FileFingerprint::ABSENT);
                return None;
            }
            Err(e) => (None, vec![open_problem(e)]),
            Ok(opened) => {
                fingerprints.sidecar = Some(watches.track_file(&opened));
                if let Ok(bytes) = opened.read_small() {
                    digest = Some(ContentDigest::of(&bytes));
                    self.context.progress.parse_file(&opened.real_path, || {
                        let (content, problems) = sidecar::read(&bytes);
                        (Some(content), problems)
                    })
                } else {
                    (None, vec![read_failed_problem()])
                }
            }
        };
        Some(SidecarFile {
            content: read.0.unwrap_or_else(SkillSidecar::fail_closed),
            problems: read.1,
            digest,
        })
    }
}
