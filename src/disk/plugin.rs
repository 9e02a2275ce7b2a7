//! Reads what one plugin declares: files of JSON and Markdown at the places that its manifest names,
//! or at the usual ones. Nothing outside the plugin's directory is opened. Leaves what is in them to
//! `domain::plugin`, directories of Markdown to `prompts`, and when to read to `plugins`.

use super::allowed::{Blocked, Ground};
use super::content;
use super::fingerprint::Fingerprint;
use super::list::{may_pass, unopened};
use super::resource::{self, Regular, Unopened};
use super::watching::{Guard, WatchDirs, watch_shared};
use crate::domain::plugin::{Components, Kind, read_file};
use crate::domain::{Code, Limits, Manifest, Problem, RelPath, Severity, Spot, permit};
use rustix::fs::{FileType, OFlags};
use std::os::fd::AsFd as _;

/// What reading needs to know.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) ground: &'a Ground,
    pub(super) limits: &'a Limits,
    pub(super) passed_over: &'a [Box<[u8]>],
    pub(super) follow_links: bool,
    pub(super) watching: &'a dyn WatchDirs,
}

/// What was read of one plugin.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Read {
    /// Files that declare something, in the order of the kinds.
    pub(super) files: Vec<FileRead>,
    /// About what is at a place below the plugin.
    pub(super) problems: Vec<(RelPath, Problem)>,
    /// The images that are there.
    pub(super) images: [Option<RelPath>; 3],
    pub(super) screenshots: Vec<RelPath>,
}

/// What was read of one file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FileRead {
    pub(super) kind: Kind,
    /// As it is named, below the plugin.
    pub(super) file: RelPath,
    /// Where it really is.
    pub(super) real: Option<Spot>,
    pub(super) fingerprint: Fingerprint,
    /// `None` where it cannot be used.
    pub(super) components: Option<Components>,
    pub(super) problems: Vec<Problem>,
    /// Whether `components` are those of an earlier version, since this one cannot be used.
    pub(super) stale: bool,
}

/// A plugin that is being read.
pub(super) struct Reading<'a> {
    pub(super) reader: Reader<'a>,
    pub(super) dir: &'a Spot,
    /// Where its manifest is.
    manifest: &'a RelPath,
    pub(super) token: u64,
    pub(super) guards: Vec<Guard>,
    pub(super) read: Read,
}

/// What is at a place that is named.
enum Found {
    Nothing,
    File(Regular),
    Directory(Spot),
    Problem(Problem),
}

impl Read {
    /// Whether something could not be read, and may be by now.
    pub(super) fn has_failed(&self) -> bool {
        let mut problems = self.files.iter().flat_map(|file| &file.problems);
        problems.any(may_pass) || self.problems.iter().any(|(_, problem)| may_pass(problem))
    }

    /// Takes what files last said that could be used, where they cannot be any more; says whether
    /// there were some.
    pub(super) fn keep_last_good(&mut self, last: &Self) -> bool {
        let mut kept = false;
        for file in self.files.iter_mut().filter(|file| file.components.is_none()) {
            let old =
                last.files.iter().find(|old| (old.kind, &old.file) == (file.kind, &file.file));
            let Some(old) = old.filter(|old| old.components.is_some()) else { continue };
            file.components.clone_from(&old.components);
            (file.stale, kept) = (true, true);
        }
        kept
    }
}

impl Reader<'_> {
    /// Watches and reads what a plugin declares; `manifest` is at the place `file` below it.
    pub(super) fn read(
        &self,
        dir: &Spot,
        manifest: &Manifest,
        file: &RelPath,
        token: u64,
    ) -> (Read, Vec<Guard>) {
        let mut reading = Reading {
            reader: *self,
            dir,
            manifest: file,
            token,
            guards: Vec::new(),
            read: Read::default(),
        };
        for kind in Kind::ALL {
            reading.kind(manifest, kind);
        }
        reading.images(manifest);
        (reading.read, reading.guards)
    }

    /// Watches the way to a place below a directory: each entry that leads there.
    pub(super) fn watch(&self, dir: &Spot, place: &RelPath, token: u64, guards: &mut Vec<Guard>) {
        let mut here = dir.clone();
        for name in place.segments() {
            let opened = self.ground.open(&here, OFlags::PATH | OFlags::DIRECTORY);
            let Ok(fd) = opened else { return };
            guards.extend(self.watching.watch(fd.as_fd(), token, Some(name)));
            let Some(next) = here.join(name) else { return };
            here = next;
        }
    }

    /// Opens a regular file below a directory, if nothing leads out of that on the way.
    pub(super) fn open(&self, dir: &Spot, place: &RelPath) -> Result<Regular, Problem> {
        let opened = resource::open(self.ground, dir, place);
        let opened = opened.map_err(|e| unopened(e, Severity::Error))?;
        self.check(dir, place, &opened.spot)?;
        Ok(opened)
    }

    fn check(&self, dir: &Spot, place: &RelPath, real: &Spot) -> Result<(), Problem> {
        let invalid = |why| Err(Problem::warning(Code::PathInvalid, why));
        let direct = Spot { base: dir.base, rel: dir.rel.join_all(place) };
        match real.below(dir) {
            None => invalid("a link leads out of the plugin, and is not followed; use a copy"),
            Some(below) if !permit::may_read(&below, self.passed_over) => {
                invalid("it lies in a directory that is passed over, or is named `.env`")
            }
            Some(_) if !self.follow_links && *real != direct => {
                Err(Problem::warning(Code::OutsideRoot, "links are not followed below this root"))
            }
            Some(_) => Ok(()),
        }
    }
}

impl Reading<'_> {
    fn kind(&mut self, manifest: &Manifest, kind: Kind) {
        let sources = &manifest.declared.sources;
        for place in sources.named(kind) {
            match self.find(place) {
                Found::Problem(problem) => self.read.problems.push((place.clone(), problem)),
                Found::File(file) if kind.is_json() => self.json(kind, place, &file),
                Found::File(file) if kind != Kind::Skills => self.prompt(kind, place, &file),
                Found::Directory(spot) if kind != Kind::Skills && !kind.is_json() => {
                    self.prompts(kind, place, &spot);
                }
                Found::Directory(_) if kind == Kind::Skills => {}
                Found::Nothing | Found::Directory(_) | Found::File(_) => {
                    self.missing(kind.key(), place);
                }
            }
        }
        for place in sources.usual(kind) {
            match self.find(&place) {
                Found::Problem(problem) => self.read.problems.push((place, problem)),
                Found::File(file) if kind.is_json() => self.json(kind, &place, &file),
                Found::Directory(spot) if !kind.is_json() => self.prompts(kind, &place, &spot),
                // An unrelated file may be called so.
                Found::Nothing | Found::File(_) | Found::Directory(_) => continue,
            }
            break;
        }
    }

    /// Looks at a place, once it is watched.
    fn find(&mut self, place: &RelPath) -> Found {
        let Self { reader, dir, .. } = *self;
        if !permit::may_read(place, reader.passed_over) {
            let why = "it lies in a directory that is passed over, or is named `.env`";
            return Found::Problem(Problem::warning(Code::PathInvalid, why));
        }
        reader.watch(dir, place, self.token, &mut self.guards);
        let target = match resource::find(reader.ground, dir, place) {
            Ok(target) => target,
            Err(Unopened::Blocked(Blocked::Missing | Blocked::NotADirectory)) => {
                return Found::Nothing;
            }
            Err(e) => return Found::Problem(unopened(e, Severity::Warning)),
        };
        if let Err(problem) = reader.check(dir, place, &target.spot) {
            return Found::Problem(problem);
        }
        if let Some(real) = target.spot.below(dir).filter(|real| real != place) {
            reader.watch(dir, &real, self.token, &mut self.guards);
        }
        match FileType::from_raw_mode(target.stat.st_mode) {
            FileType::Directory => Found::Directory(target.spot),
            _ => match reader.open(dir, place) {
                Ok(file) => Found::File(file),
                Err(problem) => Found::Problem(problem),
            },
        }
    }

    fn missing(&mut self, key: &str, place: &RelPath) {
        let place = place.to_string();
        let place: String = place.chars().take(64).collect();
        let why = format!("`{key}` names `./{}`, and there is no such thing", place.escape_debug());
        self.read.problems.push((self.manifest.clone(), Problem::warning(Code::PathMissing, why)));
    }

    pub(super) fn is_read(&self, kind: Kind, place: &RelPath) -> bool {
        self.read.files.iter().any(|known| known.kind == kind && known.file == *place)
    }

    fn json(&mut self, kind: Kind, place: &RelPath, file: &Regular) {
        if self.is_read(kind, place) {
            return;
        }
        self.watch_shared(file);
        let (components, problems) = if let Ok(bytes) = content::small(&file.file) {
            read_file(kind, &bytes)
        } else {
            let failed = Unopened::Blocked(Blocked::Failed);
            (None, vec![unopened(failed, Severity::Error)])
        };
        let components = components.map(|components| components.declared_by(place));
        self.take(kind, place, file, components, problems);
    }

    pub(super) fn watch_shared(&mut self, file: &Regular) {
        watch_shared(self.reader.watching, file, self.token, &mut self.guards);
    }

    pub(super) fn take(
        &mut self,
        kind: Kind,
        place: &RelPath,
        file: &Regular,
        components: Option<Components>,
        problems: Vec<Problem>,
    ) {
        let (fingerprint, real) = (Fingerprint::of(&file.version), Some(file.spot.clone()));
        let (file, stale) = (place.clone(), false);
        let found = FileRead { kind, file, real, fingerprint, components, problems, stale };
        self.read.files.push(found);
    }

    fn images(&mut self, manifest: &Manifest) {
        let Some(interface) = &manifest.declared.about.interface else { return };
        let keys = ["composerIcon", "logo", "logoDark"];
        for (at, key) in keys.into_iter().enumerate() {
            let place = interface.images[at].as_ref();
            self.read.images[at] = place.filter(|place| self.image(key, place)).cloned();
        }
        let there: Vec<_> = interface.screenshots.iter().collect();
        let there = there.into_iter().filter(|place| self.image("screenshots", place));
        self.read.screenshots = there.cloned().collect();
    }

    /// Whether there is a file for a picture.
    fn image(&mut self, key: &str, place: &RelPath) -> bool {
        match self.find(place) {
            Found::File(_) => return true,
            Found::Problem(problem) => self.read.problems.push((place.clone(), problem)),
            Found::Nothing | Found::Directory(_) => self.missing(key, place),
        }
        false
    }
}
