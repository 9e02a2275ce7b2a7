//! Lists one directory for the search, and reads the skill in it. Leaves every decision to
//! `domain::search`.

use super::allowed::{Blocked, Ground, identity};
use super::content;
use super::fingerprint::{FilesRead, Fingerprint};
use super::resource::{self, Regular, Unopened, blocked};
use super::watching::{Guard, Guards, WatchDirs, watch_shared};
use crate::domain::listing::{Entry, Listing, Visit, What};
use crate::domain::sidecar::{self, Sidecar};
use crate::domain::skill::MainFile;
use crate::domain::{Code, Limits, Problem, RelPath, Severity, Spot, frontmatter, manifest};
use rustix::fs::{AtFlags, FileType, OFlags, RawDir, fstat, readlinkat, statat};
use rustix::io::Errno;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

/// What one listing needs to know.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lister<'a> {
    pub(super) ground: &'a Ground,
    pub(super) limits: &'a Limits,
    /// The name of the root itself, should it be a skill without one.
    pub(super) root_name: Option<&'a [u8]>,
    /// Who wants to know of changes.
    pub(super) watching: &'a dyn WatchDirs,
}

/// What one listing after another is read into, so that no memory is asked for each time.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    names: Vec<u8>,
    head: Vec<u8>,
}

/// A listing, and what keeps watch over it.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) listing: Result<Listing, Problem>,
    pub(super) guards: Guards,
    pub(super) files: FilesRead,
}

/// The watches and the fingerprints of one listing.
struct ListingRecord {
    token: u64,
    guards: Vec<Guard>,
    files: FilesRead,
}

impl Lister<'_> {
    /// Watches a directory under a token, then lists it: what changes in between is told, and what
    /// changed before is seen. A problem says why it cannot be listed.
    pub(super) fn list(&self, visit: &Visit, token: u64, scratch: &mut Scratch) -> Listed {
        let (guards, files) = (Vec::with_capacity(1), FilesRead::default());
        let mut record = ListingRecord { token, guards, files };
        let listing = self.watch_and_list(visit, scratch, &mut record);
        Listed { listing, guards: record.guards.into(), files: record.files }
    }

    fn watch_and_list(
        &self,
        visit: &Visit,
        scratch: &mut Scratch,
        record: &mut ListingRecord,
    ) -> Result<Listing, Problem> {
        let token = record.token;
        let unreadable = |error| unreadable(blocked(error), Severity::Warning);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let dir = if let Ok(dir) = self.ground.open(&visit.spot, flags) {
            record.guards.extend(self.watching.watch(dir.as_fd(), token, None));
            dir
        } else {
            // May be watched even where it may not be read, so that permission is noticed when it comes.
            match self.ground.open(&visit.spot, OFlags::PATH | OFlags::DIRECTORY) {
                Ok(dir) => record.guards.extend(self.watching.watch(dir.as_fd(), token, None)),
                // What is not watched for this must not be taken for watched and listed.
                Err(error @ (Errno::MFILE | Errno::NFILE)) => return Err(unreadable(error)),
                Err(_) => {}
            }
            // It may have come before the watch.
            self.ground.open(&visit.spot, flags).map_err(unreadable)?
        };
        let stat = fstat(&dir).map_err(unreadable)?;
        let names = read_names(&dir, self.limits.max_entries, &mut scratch.names);
        let names = names.map_err(unreadable)?;
        let total = names.len();
        let has = |wanted: &[u8]| names.binary_search_by(|(n, _)| (**n).cmp(wanted)).is_ok();
        let may_hold_manifest = MANIFEST_DIRECTORIES.iter().any(|d| has(d.as_bytes()));
        let has_sidecar_directory = has(b"agents");
        if is_manifest_directory(&visit.spot) {
            self.watch_manifest(&visit.spot, record);
        }
        let mut entries = Vec::new();
        for (ordinal, (name, kind)) in names.into_iter().enumerate() {
            let main = (&*name == b"SKILL.md").then_some(has_sidecar_directory);
            let what = match kind {
                FileType::RegularFile if main.is_some() || is_skill_like(&name) => {
                    What::File(main.map(|sidecar| {
                        let spot = visit.spot.join(&name).ok_or_else(gone)?;
                        let opened = resource::open_at(self.ground, spot);
                        self.read_main(visit, opened, sidecar, &mut scratch.head, record)
                    }))
                }
                FileType::RegularFile => continue,
                FileType::Directory => What::Directory,
                FileType::Symlink => {
                    // Watched first, for the same reason as the directory.
                    self.watch_steps(visit, &dir, &name, record);
                    self.link(visit, &dir, &name, main, &mut scratch.head, record)
                }
                _ => What::Special,
            };
            entries.push(Entry { name, ordinal, what });
        }
        entries.shrink_to_fit();
        Ok(Listing { identity: identity(&stat), total, entries, may_hold_manifest })
    }

    /// Watches the way of a link: each directory that it leads through, for the name that it goes on
    /// with, its end included. What lies outside is left to the look from time to time.
    fn watch_steps(&self, visit: &Visit, dir: &OwnedFd, name: &[u8], record: &mut ListingRecord) {
        let Ok(target) = readlinkat(dir, name, Vec::new()) else { return };
        for (step, name) in self.ground.steps(&visit.spot, target.as_bytes()) {
            let opened = self.ground.open(&step, OFlags::PATH | OFlags::DIRECTORY);
            if let Ok(fd) = opened {
                let watch = self.watching.watch(fd.as_fd(), record.token, Some(&name));
                record.guards.extend(watch);
            }
        }
    }

    /// Watches a manifest that has other names. `namespaces` reads it later.
    fn watch_manifest(&self, dir: &Spot, record: &mut ListingRecord) {
        if let Ok(opened) = resource::open(self.ground, dir, &manifest_file()) {
            record.take(&opened, self.watching);
        }
    }

    /// What a link is.
    fn link(
        &self,
        visit: &Visit,
        dir: &OwnedFd,
        name: &[u8],
        main: Option<bool>,
        head: &mut Vec<u8>,
        record: &mut ListingRecord,
    ) -> What {
        let target = match resource::follow_link(self.ground, &visit.spot, dir, name) {
            Ok(target) => target,
            Err(Unopened::NotRegular) => return What::Special,
            Err(Unopened::Blocked(why)) => return What::BadLink(bad_link(why)),
        };
        match FileType::from_raw_mode(target.stat.st_mode) {
            FileType::Directory => What::LinkedDirectory(target.spot, identity(&target.stat)),
            FileType::RegularFile => {
                let read = main.map(|sidecar| {
                    let opened = resource::open_at(self.ground, target.spot.clone());
                    self.read_main(visit, opened, sidecar, head, record)
                });
                What::LinkedFile(target.spot, read)
            }
            _ => What::Special,
        }
    }

    fn read_main(
        &self,
        visit: &Visit,
        opened: Result<Regular, Unopened>,
        has_sidecar_directory: bool,
        bytes: &mut Vec<u8>,
        record: &mut ListingRecord,
    ) -> Result<Arc<MainFile>, Problem> {
        let opened = opened.map_err(|e| unopened(e, Severity::Error))?;
        record.files.main = Some(record.take(&opened, self.watching));
        let (size, most) = (opened.version.size, self.limits.max_file_bytes);
        let head = content::head(&opened.file, size, most, bytes)
            .map_err(|_| unreadable(Blocked::Failed, Severity::Error))?;
        // Not every filesystem tells the size.
        let size = if head.whole { bytes.len() as u64 } else { size };
        let name = visit.walked.file_name().or(self.root_name);
        let reading = frontmatter::read(bytes, head.whole, name);
        let sidecar = has_sidecar_directory.then(|| self.read_sidecar(&visit.spot, record));
        let sidecar = sidecar.flatten();
        Ok(Arc::new(MainFile {
            digest: head.digest,
            size,
            authored: reading.skill.map(Into::into),
            problems: reading.problems.into_iter().chain(head.hidden).collect(),
            sidecar: sidecar.map(Box::new),
            stale: false,
        }))
    }

    /// `None` where there is none. One that cannot be read closes the skill to models.
    fn read_sidecar(
        &self,
        package: &Spot,
        record: &mut ListingRecord,
    ) -> Option<(Sidecar, Vec<Problem>)> {
        let walked = sidecar_path();
        let read = match resource::open(self.ground, package, &walked) {
            Err(Unopened::Blocked(Blocked::Missing | Blocked::NotADirectory)) => return None,
            Err(e) => Err(unopened(e, Severity::Error)),
            Ok(opened) => {
                record.files.sidecar = Some(record.take(&opened, self.watching));
                content::small(&opened.file)
                    .map_err(|_| unreadable(Blocked::Failed, Severity::Error))
            }
        };
        Some(match read {
            Ok(bytes) => sidecar::read(&bytes),
            Err(problem) => (Sidecar::closed(), vec![problem]),
        })
    }
}

impl ListingRecord {
    /// Watches a file if it has other names. Read the file after this call, not before.
    fn take(&mut self, opened: &Regular, watching: &dyn WatchDirs) -> Fingerprint {
        self.files.has_shared |= opened.has_other_names;
        watch_shared(watching, opened, self.token, &mut self.guards);
        Fingerprint::of(&opened.version)
    }
}

/// Where a skill's sidecar is, below its package.
pub(super) fn sidecar_path() -> RelPath {
    RelPath::new(b"agents/openai.yaml").expect("two segments")
}

pub(super) const MANIFEST_DIRECTORIES: [&str; 3] =
    [".codex-plugin", ".claude-plugin", ".cursor-plugin"];

/// Whether a directory is one that holds a plugin's manifest.
pub(super) fn is_manifest_directory(dir: &Spot) -> bool {
    let name = dir.rel.file_name().unwrap_or_default();
    MANIFEST_DIRECTORIES.iter().any(|manifest| manifest.as_bytes() == name)
}

/// The place of a manifest in such a directory.
pub(super) fn manifest_file() -> RelPath {
    RelPath::new(b"plugin.json").expect("one segment")
}

const _: () = assert!(MANIFEST_DIRECTORIES.len() == manifest::PATHS.len());

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

pub(super) fn gone() -> Problem {
    unreadable(Blocked::Missing, Severity::Error)
}

/// What a file that cannot be opened means for whoever needs it.
pub(super) fn unopened(error: Unopened, severity: Severity) -> Problem {
    match error {
        Unopened::NotRegular => {
            Problem::new(Code::NotRegular, severity, "not a regular file; it was not opened")
        }
        Unopened::Blocked(why @ (Blocked::Outside | Blocked::Missing | Blocked::Loop)) => {
            Problem { severity, ..bad_link(why) }
        }
        Unopened::Blocked(why) => unreadable(why, severity),
    }
}

fn bad_link(why: Blocked) -> Problem {
    match why {
        Blocked::Outside => Problem::warning(
            Code::OutsideRoot,
            "leads outside every allowed root; allow the target's directory, or replace the link",
        ),
        Blocked::Missing | Blocked::NotADirectory => {
            Problem::note(Code::DanglingLink, "leads to nothing; mend or remove the link")
        }
        Blocked::Loop => Problem::note(
            Code::DanglingLink,
            "its links go round in a circle, or are over 40; mend or remove the link",
        ),
        Blocked::Denied | Blocked::Exhausted | Blocked::Failed => {
            unreadable(why, Severity::Warning)
        }
    }
}

fn unreadable(why: Blocked, severity: Severity) -> Problem {
    let message = match why {
        Blocked::Denied => "may not be read by the daemon's user; give it permission",
        Blocked::Missing => "vanished while it was read",
        Blocked::Exhausted => EXHAUSTED,
        Blocked::Outside | Blocked::NotADirectory | Blocked::Loop | Blocked::Failed => FAILED,
    };
    Problem::new(Code::Unreadable, severity, message)
}

const EXHAUSTED: &str =
    "no file descriptor was left to read it with; raise the limit of open files";
pub(super) const FAILED: &str = "could not be read; look at the filesystem";

/// Whether a problem may go without anything below the root being changed, so that no event tells.
pub(super) fn may_pass(problem: &Problem) -> bool {
    [EXHAUSTED, FAILED].contains(&&*problem.message)
}
