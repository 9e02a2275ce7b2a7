//! Reads what one plugin declares: files of JSON and Markdown at the places that its manifest names,
//! or at the usual ones. Nothing outside the plugin's directory is opened. Leaves what is in them to
//! `domain::plugin`, directories of Markdown to `prompts`, and when to read to `plugins`.

use super::allowed_dirs::{AllowedDirsSnapshot, ResolveError};
use super::content;
use super::dir_lister::{is_transient, open_problem};
use super::dir_watcher::{DirWatcher, WatchGuard, watch_hard_links};
use super::fingerprint::FileFingerprint;
use super::open_file::{self, OpenError, OpenFile};
use crate::domain::plugin::{ComponentKind, PluginComponents, read_file};
use crate::domain::{
    DiagnosticCode, FileProblem, Limits, PluginManifest, RelPath, ResolvedPath, Severity,
    resource_filter,
};
use rustix::fs::{FileType, OFlags};
use std::os::fd::AsFd as _;

/// What reading needs to know.
#[derive(Debug, Clone, Copy)]
pub(super) struct PluginReader<'a> {
    pub(super) snapshot: &'a AllowedDirsSnapshot,
    pub(super) limits: &'a Limits,
    pub(super) skipped_dirs: &'a [Box<[u8]>],
    pub(super) follow_links: bool,
    pub(super) watcher: &'a dyn DirWatcher,
}

/// What was read of one plugin.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct PluginContents {
    /// Files that declare something, in the order of the kinds.
    pub(super) files: Vec<PluginFile>,
    /// About what is at a place below the plugin.
    pub(super) problems: Vec<(RelPath, FileProblem)>,
    /// The images that are there.
    pub(super) images: [Option<RelPath>; 3],
    pub(super) screenshots: Vec<RelPath>,
}

/// What was read of one file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PluginFile {
    pub(super) kind: ComponentKind,
    /// As it is named, below the plugin.
    pub(super) file: RelPath,
    /// Where it really is.
    pub(super) real_path: Option<ResolvedPath>,
    pub(super) fingerprint: FileFingerprint,
    /// `None` where it cannot be used.
    pub(super) components: Option<PluginComponents>,
    pub(super) problems: Vec<FileProblem>,
    /// Whether `components` are those of an earlier version, since this one cannot be used.
    pub(super) stale: bool,
}

/// A plugin that is being read.
pub(super) struct PluginScan<'a> {
    pub(super) reader: PluginReader<'a>,
    pub(super) dir: &'a ResolvedPath,
    /// Where its manifest is.
    manifest_file: &'a RelPath,
    pub(super) token: u64,
    pub(super) guards: Vec<WatchGuard>,
    pub(super) contents: PluginContents,
}

/// What is at a place that is named.
enum DeclaredTarget {
    Nothing,
    File(OpenFile),
    Directory(ResolvedPath),
    Problem(FileProblem),
}

impl PluginContents {
    /// Whether something could not be read, and may be by now.
    pub(super) fn has_transient_error(&self) -> bool {
        let mut problems = self.files.iter().flat_map(|file| &file.problems);
        problems.any(is_transient) || self.problems.iter().any(|(_, problem)| is_transient(problem))
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

impl PluginReader<'_> {
    /// Watches and reads what a plugin declares; `manifest` is at the place `file` below it.
    pub(super) fn read(
        &self,
        dir: &ResolvedPath,
        manifest: &PluginManifest,
        file: &RelPath,
        token: u64,
    ) -> (PluginContents, Vec<WatchGuard>) {
        let mut reading = PluginScan {
            reader: *self,
            dir,
            manifest_file: file,
            token,
            guards: Vec::new(),
            contents: PluginContents::default(),
        };
        for kind in ComponentKind::ALL {
            reading.read_kind(manifest, kind);
        }
        reading.find_images(manifest);
        (reading.contents, reading.guards)
    }

    /// Watches the way to a place below a directory: each entry that leads there.
    pub(super) fn watch_path(
        &self,
        dir: &ResolvedPath,
        place: &RelPath,
        token: u64,
        guards: &mut Vec<WatchGuard>,
    ) {
        let mut here = dir.clone();
        for name in place.segments() {
            let opened = self.snapshot.open(&here, OFlags::PATH | OFlags::DIRECTORY);
            let Ok(fd) = opened else { return };
            guards.extend(self.watcher.watch_dir(fd.as_fd(), token, Some(name)));
            let Some(next) = here.join(name) else { return };
            here = next;
        }
    }

    /// Opens a regular file below a directory, if nothing leads out of that on the way.
    pub(super) fn open(
        &self,
        dir: &ResolvedPath,
        place: &RelPath,
    ) -> Result<OpenFile, FileProblem> {
        let opened = open_file::open_file(self.snapshot, dir, place);
        let opened = opened.map_err(|e| open_problem(e, Severity::Error))?;
        self.check_path(dir, place, &opened.real_path)?;
        Ok(opened)
    }

    fn check_path(
        &self,
        dir: &ResolvedPath,
        place: &RelPath,
        real: &ResolvedPath,
    ) -> Result<(), FileProblem> {
        let invalid = |why| Err(FileProblem::warning(DiagnosticCode::PathInvalid, why));
        let direct =
            ResolvedPath { dir_index: dir.dir_index, rel_path: dir.rel_path.join_path(place) };
        match real.strip_prefix(dir) {
            None => invalid("a link leads out of the plugin, and is not followed; use a copy"),
            Some(below) if !resource_filter::may_serve_path(&below, self.skipped_dirs) => {
                invalid("it lies in a directory that is passed over, or is named `.env`")
            }
            Some(_) if !self.follow_links && *real != direct => Err(FileProblem::warning(
                DiagnosticCode::OutsideRoot,
                "links are not followed below this root",
            )),
            Some(_) => Ok(()),
        }
    }
}

impl PluginScan<'_> {
    fn read_kind(&mut self, manifest: &PluginManifest, kind: ComponentKind) {
        let sources = &manifest.declarations.sources;
        for place in sources.named_paths(kind) {
            match self.watch_and_find(place) {
                DeclaredTarget::Problem(problem) => {
                    self.contents.problems.push((place.clone(), problem))
                }
                DeclaredTarget::File(file) if kind.is_json() => self.read_json(kind, place, &file),
                DeclaredTarget::File(file) if kind != ComponentKind::Skills => {
                    self.read_prompt(kind, place, &file)
                }
                DeclaredTarget::Directory(spot)
                    if kind != ComponentKind::Skills && !kind.is_json() =>
                {
                    self.read_prompt_dir(kind, place, &spot);
                }
                DeclaredTarget::Directory(_) if kind == ComponentKind::Skills => {}
                DeclaredTarget::Nothing
                | DeclaredTarget::Directory(_)
                | DeclaredTarget::File(_) => {
                    self.report_missing(kind.manifest_key(), place);
                }
            }
        }
        for place in sources.default_paths(kind) {
            match self.watch_and_find(&place) {
                DeclaredTarget::Problem(problem) => self.contents.problems.push((place, problem)),
                DeclaredTarget::File(file) if kind.is_json() => self.read_json(kind, &place, &file),
                DeclaredTarget::Directory(spot) if !kind.is_json() => {
                    self.read_prompt_dir(kind, &place, &spot)
                }
                // An unrelated file may be called so.
                DeclaredTarget::Nothing
                | DeclaredTarget::File(_)
                | DeclaredTarget::Directory(_) => continue,
            }
            break;
        }
    }

    /// Looks at a place, once it is watched.
    fn watch_and_find(&mut self, place: &RelPath) -> DeclaredTarget {
        let Self { reader, dir, .. } = *self;
        if !resource_filter::may_serve_path(place, reader.skipped_dirs) {
            let why = "it lies in a directory that is passed over, or is named `.env`";
            return DeclaredTarget::Problem(FileProblem::warning(DiagnosticCode::PathInvalid, why));
        }
        reader.watch_path(dir, place, self.token, &mut self.guards);
        let target = match open_file::find_target(reader.snapshot, dir, place) {
            Ok(target) => target,
            Err(OpenError::Resolve(ResolveError::Missing | ResolveError::NotADirectory)) => {
                return DeclaredTarget::Nothing;
            }
            Err(e) => return DeclaredTarget::Problem(open_problem(e, Severity::Warning)),
        };
        if let Err(problem) = reader.check_path(dir, place, &target.real_path) {
            return DeclaredTarget::Problem(problem);
        }
        if let Some(real) = target.real_path.strip_prefix(dir).filter(|real| real != place) {
            reader.watch_path(dir, &real, self.token, &mut self.guards);
        }
        match FileType::from_raw_mode(target.stat.st_mode) {
            FileType::Directory => DeclaredTarget::Directory(target.real_path),
            _ => match reader.open(dir, place) {
                Ok(file) => DeclaredTarget::File(file),
                Err(problem) => DeclaredTarget::Problem(problem),
            },
        }
    }

    fn report_missing(&mut self, key: &str, place: &RelPath) {
        let place = place.to_string();
        let place: String = place.chars().take(64).collect();
        let why = format!("`{key}` names `./{}`, and there is no such thing", place.escape_debug());
        self.contents.problems.push((
            self.manifest_file.clone(),
            FileProblem::warning(DiagnosticCode::PathMissing, why),
        ));
    }

    pub(super) fn is_read(&self, kind: ComponentKind, place: &RelPath) -> bool {
        self.contents.files.iter().any(|known| known.kind == kind && known.file == *place)
    }

    fn read_json(&mut self, kind: ComponentKind, place: &RelPath, file: &OpenFile) {
        if self.is_read(kind, place) {
            return;
        }
        self.watch_hard_links(file);
        let (components, problems) = if let Ok(bytes) = content::read_small_file(&file.file) {
            read_file(kind, &bytes)
        } else {
            let failed = OpenError::Resolve(ResolveError::Failed);
            (None, vec![open_problem(failed, Severity::Error)])
        };
        let components = components.map(|components| components.with_declared_by(place));
        self.push_file(kind, place, file, components, problems);
    }

    pub(super) fn watch_hard_links(&mut self, file: &OpenFile) {
        watch_hard_links(self.reader.watcher, file, self.token, &mut self.guards);
    }

    pub(super) fn push_file(
        &mut self,
        kind: ComponentKind,
        place: &RelPath,
        file: &OpenFile,
        components: Option<PluginComponents>,
        problems: Vec<FileProblem>,
    ) {
        let (fingerprint, real) =
            (FileFingerprint::from_version(&file.version), Some(file.real_path.clone()));
        let (file, stale) = (place.clone(), false);
        let found =
            PluginFile { kind, file, real_path: real, fingerprint, components, problems, stale };
        self.contents.files.push(found);
    }

    fn find_images(&mut self, manifest: &PluginManifest) {
        let Some(interface) = &manifest.declarations.info.interface else { return };
        let keys = ["composerIcon", "logo", "logoDark"];
        for (at, key) in keys.into_iter().enumerate() {
            let place = interface.images[at].as_ref();
            self.contents.images[at] = place.filter(|place| self.has_image(key, place)).cloned();
        }
        let there: Vec<_> = interface.screenshots.iter().collect();
        let there = there.into_iter().filter(|place| self.has_image("screenshots", place));
        self.contents.screenshots = there.cloned().collect();
    }

    /// Whether there is a file for a picture.
    fn has_image(&mut self, key: &str, place: &RelPath) -> bool {
        match self.watch_and_find(place) {
            DeclaredTarget::File(_) => return true,
            DeclaredTarget::Problem(problem) => {
                self.contents.problems.push((place.clone(), problem))
            }
            DeclaredTarget::Nothing | DeclaredTarget::Directory(_) => {
                self.report_missing(key, place)
            }
        }
        false
    }
}
