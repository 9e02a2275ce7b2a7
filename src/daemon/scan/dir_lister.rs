//! Listing of one directory for a scan, with its skill files.

use super::file_problem::{
    link_problem, open_problem, removed_mount_problem, unreadable_problem, vanished_problem,
};
use super::namespaces::{MANIFEST_DIRECTORIES, manifest_paths};
use super::scan_progress::ScanProgress;
use super::scanned_dir::{
    DirListing, DirToScan, ListedDir, ListingEntry, ListingEntryKind, SkillFileFingerprints,
};
use super::watches::{DirWatcher, WatchRecorder};
use super::worktree::{GIT_FILE, is_copy_of_repository};
use crate::daemon::fs::dirs_snapshot::{AllowedDirsSnapshot, ResolveError, identity};
use crate::daemon::fs::file_head;
use crate::daemon::fs::open_file::{self, FileFingerprint, OpenError, OpenFile, read_names};
use crate::daemon::model::sidecar::{SkillSidecar, sidecar_path};
use crate::daemon::model::skill::{SidecarFile, SkillFile};
use crate::daemon::model::{FileProblem, Limits, ResolvedPath, Severity};
use crate::daemon::parse::frontmatter::{self, ParsedSkillMd};
use crate::daemon::parse::sidecar;
use caproot_core::wire::ContentDigest;
use rustix::fs::{FileType, OFlags, fstat};
use rustix::io::{self, Errno};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

/// Parameters of a listing.
#[derive(Debug, Clone, Copy)]
pub struct DirLister<'a> {
    snapshot: &'a AllowedDirsSnapshot,
    limits: &'a Limits,
    /// Absolute path of the root, as selected.
    root_path: &'a [u8],
    /// Name for the root, if the root is a skill without a name.
    root_name: Option<&'a [u8]>,
    watcher: &'a dyn DirWatcher,
    progress: &'a ScanProgress,
}

/// Buffers that are reused for each listing.
#[derive(Debug, Default)]
pub struct ListBuffers {
    names: Vec<u8>,
    head: Vec<u8>,
}

/// Watches and fingerprints of a listing in progress.
struct ListingRecord<'a> {
    watches: WatchRecorder<'a>,
    fingerprints: SkillFileFingerprints,
}

impl<'a> DirLister<'a> {
    /// Creates a lister for the root with this absolute path.
    pub fn new(
        snapshot: &'a AllowedDirsSnapshot,
        limits: &'a Limits,
        root_path: &'a [u8],
        watcher: &'a dyn DirWatcher,
        progress: &'a ScanProgress,
    ) -> Self {
        let root_name = root_path.split(|b| *b == b'/').rfind(|s| !s.is_empty());
        Self {
            snapshot,
            limits,
            root_path,
            root_name,
            watcher,
            progress,
        }
    }

    /// Watches a directory under a token, then lists the directory: in this order no change is
    /// missed. Returns a problem if the directory cannot be listed.
    pub fn list_dir(
        &self,
        to_scan: &DirToScan,
        token: u64,
        buffers: &mut ListBuffers,
    ) -> ListedDir {
        let watches = WatchRecorder::new(self.watcher, token);
        let mut record = ListingRecord {
            watches,
            fingerprints: SkillFileFingerprints::default(),
        };

        // The result of a cancelled scan is discarded, so that any problem will do.
        let listing = if self.progress.is_cancelled() {
            Err(vanished_problem())
        } else {
            self.watch_and_list(to_scan, buffers, &mut record)
                .map_err(|errno| unreadable_problem(errno.into(), Severity::Warning))
        };

        let ListingRecord {
            watches,
            mut fingerprints,
        } = record;
        fingerprints.has_hard_links = watches.has_hard_links;
        ListedDir {
            listing,
            guards: watches.into_guards().into(),
            fingerprints,
        }
    }

    fn watch_and_list(
        &self,
        to_scan: &DirToScan,
        buffers: &mut ListBuffers,
        record: &mut ListingRecord<'_>,
    ) -> io::Result<DirListing> {
        let dir = self.open_watched(&to_scan.resolved, record)?;
        let stat = fstat(&dir)?;
        let names = read_names(&dir, self.limits.max_entries, &mut buffers.names)?;

        let total_entries = names.len();
        let may_hold_manifest = MANIFEST_DIRECTORIES
            .iter()
            .any(|name| has_name(&names, name.as_bytes()));
        let has_sidecar_directory = has_name(&names, b"agents");
        if may_hold_manifest {
            self.watch_manifests(&to_scan.resolved, record);
        }
        let is_worktree = !to_scan.path.is_root()
            && has_file(&names, GIT_FILE)
            && is_copy_of_repository(self.snapshot, &to_scan.resolved, self.root_path);

        let mut entries = Vec::new();
        for (ordinal, (name, kind)) in names.into_iter().enumerate() {
            let skill_file = (&*name == b"SKILL.md").then_some(has_sidecar_directory);
            let kind = match kind {
                FileType::RegularFile if skill_file.is_some() || is_skill_like(&name) => {
                    ListingEntryKind::File(skill_file.map(|sidecar| {
                        let path = to_scan.resolved.join(&name).ok_or_else(vanished_problem)?;
                        let opened = open_file::open_real_path(self.snapshot, path);
                        self.read_skill_file(to_scan, opened, sidecar, &mut buffers.head, record)
                    }))
                }
                FileType::RegularFile => continue,
                FileType::Directory => ListingEntryKind::Directory,
                FileType::Symlink => {
                    // The watch comes before the read, as for the directory.
                    record
                        .watches
                        .watch_link(self.snapshot, &to_scan.resolved, &name);
                    let head = &mut buffers.head;
                    self.read_link_entry(to_scan, &dir, &name, skill_file, head, record)
                }
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
        match self.snapshot.open(path, OFlags::PATH | OFlags::DIRECTORY) {
            Ok(dir) => record.watches.watch_dir(dir.as_fd()),
            // There is no watch, so the directory must not be listed: it would count as watched.
            Err(error @ (Errno::MFILE | Errno::NFILE)) => return Err(error),
            Err(_) => {}
        }

        // Permission may have been granted before the watch existed.
        self.snapshot.open(path, flags)
    }

    /// Watches the manifests of a directory, which `namespaces` reads later.
    fn watch_manifests(&self, dir: &ResolvedPath, record: &mut ListingRecord) {
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

    /// Reads the target of a link.
    fn read_link_entry(
        &self,
        to_scan: &DirToScan,
        dir: &OwnedFd,
        name: &[u8],
        skill_file: Option<bool>,
        head: &mut Vec<u8>,
        record: &mut ListingRecord<'_>,
    ) -> ListingEntryKind {
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
                    self.read_skill_file(to_scan, opened, sidecar, head, record)
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
        bytes: &mut Vec<u8>,
        record: &mut ListingRecord<'_>,
    ) -> Result<Arc<SkillFile>, FileProblem> {
        let opened = opened.map_err(|e| open_problem(e, Severity::Error))?;
        record.fingerprints.skill_file = Some(record.watches.track_file(&opened));

        let size = opened.version.size;
        let head = file_head::read_head(&opened.file, size, self.limits.max_file_bytes, bytes)
            .map_err(|_| unreadable_problem(ResolveError::Failed, Severity::Error))?;
        // Some filesystems report a wrong size.
        let size = if head.is_complete {
            bytes.len() as u64
        } else {
            size
        };

        let name = to_scan.path.file_name().or(self.root_name);
        let parsed = self
            .progress
            .parse_file(&opened.real_path, || {
                frontmatter::read(bytes, head.is_complete, name)
            })
            .unwrap_or_else(ParsedSkillMd::unusable);

        let removed = opened.is_removed.then(removed_mount_problem);
        let sidecar = if has_sidecar_directory {
            self.read_sidecar(&to_scan.resolved, record)
        } else {
            None
        };
        Ok(Arc::new(SkillFile {
            digest: head.digest,
            size,
            frontmatter: parsed.frontmatter.map(Into::into),
            problems: parsed
                .problems
                .into_iter()
                .chain(head.hidden)
                .chain(removed)
                .collect(),
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
        record
            .watches
            .watch_file_path(self.snapshot, package, &path);

        let mut digest = None;
        let read = match open_file::open_file(self.snapshot, package, &path) {
            Err(e) if e.is_absent() => {
                // A comparison of fingerprints then finds a file that appears later.
                record.fingerprints.sidecar = Some(FileFingerprint::ABSENT);
                return None;
            }
            Err(e) => Err(open_problem(e, Severity::Error)),
            Ok(opened) => {
                record.fingerprints.sidecar = Some(record.watches.track_file(&opened));
                let bytes = opened
                    .read_small()
                    .map_err(|_| unreadable_problem(ResolveError::Failed, Severity::Error));
                bytes.and_then(|bytes| {
                    digest = Some(ContentDigest::of(&bytes));
                    self.progress
                        .parse_file(&opened.real_path, || sidecar::read(&bytes))
                })
            }
        };

        let (content, problems) =
            read.unwrap_or_else(|problem| (SkillSidecar::fail_closed(), vec![problem]));
        Some(SidecarFile {
            content,
            problems,
            digest,
        })
    }
}

/// Returns the problem of a directory that cannot be listed.
/// Whether sorted names contain a name.
fn has_name(names: &[(Box<[u8]>, FileType)], wanted: &[u8]) -> bool {
    names
        .binary_search_by(|(name, _)| (**name).cmp(wanted))
        .is_ok()
}

/// Whether sorted names contain a regular file.
fn has_file(names: &[(Box<[u8]>, FileType)], wanted: &[u8]) -> bool {
    let found = names.binary_search_by(|(name, _)| (**name).cmp(wanted));
    found.is_ok_and(|at| names[at].1 == FileType::RegularFile)
}

fn is_skill_like(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"SKILL.md")
}
