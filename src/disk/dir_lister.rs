//! Lists one directory for the search, and reads the skill in it. Leaves every decision to
//! `domain::search`.

use super::allowed_dirs::{AllowedDirsSnapshot, ResolveError, identity};
use super::content;
use super::dir_watcher::{DirWatcher, DirWatches, WatchGuard, watch_hard_links};
use super::fingerprint::{FileFingerprint, SkillFileFingerprints};
use super::open_file::{self, OpenError, OpenFile, resolve_error};
use crate::domain::listing::{DirListing, DirToScan, ListingEntry, ListingEntryKind};
use crate::domain::sidecar::{self, SkillSidecar};
use crate::domain::skill::SkillFile;
use crate::domain::{
    DiagnosticCode, FileProblem, Limits, RelPath, ResolvedPath, Severity, frontmatter, manifest,
};
use rustix::fs::{AtFlags, FileType, OFlags, RawDir, fstat, readlinkat, statat};
use rustix::io::Errno;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

/// What one listing needs to know.
#[derive(Debug, Clone, Copy)]
pub(super) struct DirLister<'a> {
    pub(super) snapshot: &'a AllowedDirsSnapshot,
    pub(super) limits: &'a Limits,
    /// The name of the root itself, should it be a skill without one.
    pub(super) root_name: Option<&'a [u8]>,
    /// Who wants to know of changes.
    pub(super) watcher: &'a dyn DirWatcher,
}

/// What one listing after another is read into, so that no memory is asked for each time.
#[derive(Debug, Default)]
pub(super) struct ListBuffers {
    names: Vec<u8>,
    head: Vec<u8>,
}

/// A listing, and what keeps watch over it.
#[derive(Debug)]
pub(super) struct ListedDir {
    pub(super) listing: Result<DirListing, FileProblem>,
    pub(super) guards: DirWatches,
    pub(super) fingerprints: SkillFileFingerprints,
}

/// The watches and the fingerprints of one listing.
struct ListingRecord {
    token: u64,
    guards: Vec<WatchGuard>,
    fingerprints: SkillFileFingerprints,
}

impl DirLister<'_> {
    /// Watches a directory under a token, then lists it: what changes in between is told, and what
    /// changed before is seen. A problem says why it cannot be listed.
    pub(super) fn list_dir(
        &self,
        visit: &DirToScan,
        token: u64,
        scratch: &mut ListBuffers,
    ) -> ListedDir {
        let (guards, files) = (Vec::with_capacity(1), SkillFileFingerprints::default());
        let mut record = ListingRecord { token, guards, fingerprints: files };
        let listing = self.watch_and_list(visit, scratch, &mut record);
        ListedDir { listing, guards: record.guards.into(), fingerprints: record.fingerprints }
    }

    fn watch_and_list(
        &self,
        visit: &DirToScan,
        scratch: &mut ListBuffers,
        record: &mut ListingRecord,
    ) -> Result<DirListing, FileProblem> {
        let token = record.token;
        let unreadable = |error| unreadable_problem(resolve_error(error), Severity::Warning);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let dir = if let Ok(dir) = self.snapshot.open(&visit.resolved, flags) {
            record.guards.extend(self.watcher.watch_dir(dir.as_fd(), token, None));
            dir
        } else {
            // May be watched even where it may not be read, so that permission is noticed when it comes.
            match self.snapshot.open(&visit.resolved, OFlags::PATH | OFlags::DIRECTORY) {
                Ok(dir) => record.guards.extend(self.watcher.watch_dir(dir.as_fd(), token, None)),
                // What is not watched for this must not be taken for watched and listed.
                Err(error @ (Errno::MFILE | Errno::NFILE)) => return Err(unreadable(error)),
                Err(_) => {}
            }
            // It may have come before the watch.
            self.snapshot.open(&visit.resolved, flags).map_err(unreadable)?
        };
        let stat = fstat(&dir).map_err(unreadable)?;
        let names = read_names(&dir, self.limits.max_entries, &mut scratch.names);
        let names = names.map_err(unreadable)?;
        let total = names.len();
        let has = |wanted: &[u8]| names.binary_search_by(|(n, _)| (**n).cmp(wanted)).is_ok();
        let may_hold_manifest = MANIFEST_DIRECTORIES.iter().any(|d| has(d.as_bytes()));
        let has_sidecar_directory = has(b"agents");
        if is_manifest_directory(&visit.resolved) {
            self.watch_manifest(&visit.resolved, record);
        }
        let mut entries = Vec::new();
        for (ordinal, (name, kind)) in names.into_iter().enumerate() {
            let main = (&*name == b"SKILL.md").then_some(has_sidecar_directory);
            let what = match kind {
                FileType::RegularFile if main.is_some() || is_skill_like(&name) => {
                    ListingEntryKind::File(main.map(|sidecar| {
                        let spot = visit.resolved.join(&name).ok_or_else(vanished_problem)?;
                        let opened = open_file::open_real_path(self.snapshot, spot);
                        self.read_skill_file(visit, opened, sidecar, &mut scratch.head, record)
                    }))
                }
                FileType::RegularFile => continue,
                FileType::Directory => ListingEntryKind::Directory,
                FileType::Symlink => {
                    // Watched first, for the same reason as the directory.
                    self.watch_link_path(visit, &dir, &name, record);
                    self.read_link_entry(visit, &dir, &name, main, &mut scratch.head, record)
                }
                _ => ListingEntryKind::SpecialFile,
            };
            entries.push(ListingEntry { name, ordinal, kind: what });
        }
        entries.shrink_to_fit();
        Ok(DirListing {
            identity: identity(&stat),
            total_entries: total,
            entries,
            may_hold_manifest,
        })
    }

    /// Watches the way of a link: each directory that it leads through, for the name that it goes on
    /// with, its end included. What lies outside is left to the look from time to time.
    fn watch_link_path(
        &self,
        visit: &DirToScan,
        dir: &OwnedFd,
        name: &[u8],
        record: &mut ListingRecord,
    ) {
        let Ok(target) = readlinkat(dir, name, Vec::new()) else { return };
        for (step, name) in self.snapshot.link_lookups(&visit.resolved, target.as_bytes()) {
            let opened = self.snapshot.open(&step, OFlags::PATH | OFlags::DIRECTORY);
            if let Ok(fd) = opened {
                let watch = self.watcher.watch_dir(fd.as_fd(), record.token, Some(&name));
                record.guards.extend(watch);
            }
        }
    }

    /// Watches a manifest that has other names. `namespaces` reads it later.
    fn watch_manifest(&self, dir: &ResolvedPath, record: &mut ListingRecord) {
        if let Ok(opened) = open_file::open_file(self.snapshot, dir, &manifest_file()) {
            record.record_file(&opened, self.watcher);
        }
    }

    /// What a link is.
    fn read_link_entry(
        &self,
        visit: &DirToScan,
        dir: &OwnedFd,
        name: &[u8],
        main: Option<bool>,
        head: &mut Vec<u8>,
        record: &mut ListingRecord,
    ) -> ListingEntryKind {
        let target = match open_file::follow_link(self.snapshot, &visit.resolved, dir, name) {
            Ok(target) => target,
            Err(OpenError::NotRegular) => return ListingEntryKind::SpecialFile,
            Err(OpenError::Resolve(why)) => return ListingEntryKind::BrokenLink(link_problem(why)),
        };
        match FileType::from_raw_mode(target.stat.st_mode) {
            FileType::Directory => {
                ListingEntryKind::LinkedDirectory(target.real_path, identity(&target.stat))
            }
            FileType::RegularFile => {
                let read = main.map(|sidecar| {
                    let opened = open_file::open_real_path(self.snapshot, target.real_path.clone());
                    self.read_skill_file(visit, opened, sidecar, head, record)
                });
                ListingEntryKind::LinkedFile(target.real_path, read)
            }
            _ => ListingEntryKind::SpecialFile,
        }
    }

    fn read_skill_file(
        &self,
        visit: &DirToScan,
        opened: Result<OpenFile, OpenError>,
        has_sidecar_directory: bool,
        bytes: &mut Vec<u8>,
        record: &mut ListingRecord,
    ) -> Result<Arc<SkillFile>, FileProblem> {
        let opened = opened.map_err(|e| open_problem(e, Severity::Error))?;
        record.fingerprints.skill_file = Some(record.record_file(&opened, self.watcher));
        let (size, most) = (opened.version.size, self.limits.max_file_bytes);
        let head = content::read_head(&opened.file, size, most, bytes)
            .map_err(|_| unreadable_problem(ResolveError::Failed, Severity::Error))?;
        // Not every filesystem tells the size.
        let size = if head.is_complete { bytes.len() as u64 } else { size };
        let name = visit.path.file_name().or(self.root_name);
        let reading = frontmatter::read(bytes, head.is_complete, name);
        let sidecar = has_sidecar_directory.then(|| self.read_sidecar(&visit.resolved, record));
        let sidecar = sidecar.flatten();
        Ok(Arc::new(SkillFile {
            digest: head.digest,
            size,
            frontmatter: reading.frontmatter.map(Into::into),
            problems: reading.problems.into_iter().chain(head.hidden).collect(),
            sidecar: sidecar.map(Box::new),
            stale: false,
        }))
    }

    /// `None` where there is none. One that cannot be read closes the skill to models.
    fn read_sidecar(
        &self,
        package: &ResolvedPath,
        record: &mut ListingRecord,
    ) -> Option<(SkillSidecar, Vec<FileProblem>)> {
        let walked = sidecar_path();
        let read = match open_file::open_file(self.snapshot, package, &walked) {
            Err(OpenError::Resolve(ResolveError::Missing | ResolveError::NotADirectory)) => {
                return None;
            }
            Err(e) => Err(open_problem(e, Severity::Error)),
            Ok(opened) => {
                record.fingerprints.sidecar = Some(record.record_file(&opened, self.watcher));
                content::read_small_file(&opened.file)
                    .map_err(|_| unreadable_problem(ResolveError::Failed, Severity::Error))
            }
        };
        Some(match read {
            Ok(bytes) => sidecar::read(&bytes),
            Err(problem) => (SkillSidecar::fail_closed(), vec![problem]),
        })
    }
}

impl ListingRecord {
    /// Watches a file if it has other names. Read the file after this call, not before.
    fn record_file(&mut self, opened: &OpenFile, watching: &dyn DirWatcher) -> FileFingerprint {
        self.fingerprints.has_hard_links |= opened.has_hard_links;
        watch_hard_links(watching, opened, self.token, &mut self.guards);
        FileFingerprint::from_version(&opened.version)
    }
}

/// Where a skill's sidecar is, below its package.
pub(super) fn sidecar_path() -> RelPath {
    RelPath::new(b"agents/openai.yaml").expect("two segments")
}

pub(super) const MANIFEST_DIRECTORIES: [&str; 3] =
    [".codex-plugin", ".claude-plugin", ".cursor-plugin"];

/// Whether a directory is one that holds a plugin's manifest.
pub(super) fn is_manifest_directory(dir: &ResolvedPath) -> bool {
    let name = dir.rel_path.file_name().unwrap_or_default();
    MANIFEST_DIRECTORIES.iter().any(|manifest| manifest.as_bytes() == name)
}

/// The place of a manifest in such a directory.
pub(super) fn manifest_file() -> RelPath {
    RelPath::new(b"plugin.json").expect("one segment")
}

const _: () = assert!(MANIFEST_DIRECTORIES.len() == manifest::MANIFEST_PATHS.len());

fn is_skill_like(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"SKILL.md")
}

/// The names in a directory with their kinds, in byte order; beyond `most`, and one more to show
/// that there are more, the last by name are dropped, so that memory is bounded. What `buffer` holds
/// is lost.
pub(super) fn read_names(
    dir: &OwnedFd,
    most: usize,
    buffer: &mut Vec<u8>,
) -> rustix::io::Result<Vec<(Box<[u8]>, FileType)>> {
    let mut names: Vec<(Box<[u8]>, FileType)> = Vec::new();
    buffer.clear();
    buffer.reserve(32 << 10);
    let mut entries = RawDir::new(dir, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let kind = match entry.file_type() {
            // Some filesystems do not say.
            FileType::Unknown => match statat(dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(_) => continue,
            },
            kind => kind,
        };
        names.push((name.into(), kind));
        if names.len() > 2 * most + 2 {
            names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
            names.truncate(most + 1);
        }
    }
    names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    names.truncate(most + 1);
    Ok(names)
}

pub(super) fn vanished_problem() -> FileProblem {
    unreadable_problem(ResolveError::Missing, Severity::Error)
}

/// What a file that cannot be opened means for whoever needs it.
pub(super) fn open_problem(error: OpenError, severity: Severity) -> FileProblem {
    match error {
        OpenError::NotRegular => FileProblem::new(
            DiagnosticCode::NotRegular,
            severity,
            "not a regular file; it was not opened",
        ),
        OpenError::Resolve(
            why @ (ResolveError::Outside | ResolveError::Missing | ResolveError::Loop),
        ) => FileProblem { severity, ..link_problem(why) },
        OpenError::Resolve(why) => unreadable_problem(why, severity),
    }
}

fn link_problem(why: ResolveError) -> FileProblem {
    match why {
        ResolveError::Outside => FileProblem::warning(
            DiagnosticCode::OutsideRoot,
            "leads outside every allowed root; allow the target's directory, or replace the link",
        ),
        ResolveError::Missing | ResolveError::NotADirectory => FileProblem::note(
            DiagnosticCode::DanglingLink,
            "leads to nothing; mend or remove the link",
        ),
        ResolveError::Loop => FileProblem::note(
            DiagnosticCode::DanglingLink,
            "its links go round in a circle, or are over 40; mend or remove the link",
        ),
        ResolveError::Denied | ResolveError::TooManyOpenFiles | ResolveError::Failed => {
            unreadable_problem(why, Severity::Warning)
        }
    }
}

fn unreadable_problem(why: ResolveError, severity: Severity) -> FileProblem {
    let message = match why {
        ResolveError::Denied => "may not be read by the daemon's user; give it permission",
        ResolveError::Missing => "vanished while it was read",
        ResolveError::TooManyOpenFiles => TOO_MANY_OPEN_FILES,
        ResolveError::Outside
        | ResolveError::NotADirectory
        | ResolveError::Loop
        | ResolveError::Failed => READ_FAILED,
    };
    FileProblem::new(DiagnosticCode::Unreadable, severity, message)
}

const TOO_MANY_OPEN_FILES: &str =
    "no file descriptor was left to read it with; raise the limit of open files";
pub(super) const READ_FAILED: &str = "could not be read; look at the filesystem";

/// Whether a problem may go without anything below the root being changed, so that no event tells.
pub(super) fn is_transient(problem: &FileProblem) -> bool {
    [TOO_MANY_OPEN_FILES, READ_FAILED].contains(&&*problem.message)
}
