//! Contents of the JSON and Markdown files of one plugin, at the paths that its manifest names or at
//! the default paths.

use super::file_problem::{is_transient, read_failed_problem};
use super::plugin_reader::{DeclaredTarget, PluginReader};
use super::watches::WatchRecorder;
use crate::daemon::fs::file_head;
use crate::daemon::fs::open_file::{FileFingerprint, OpenFile, read_names};
use crate::daemon::model::plugin::{
    ComponentKind, ManifestProduct, PluginComponent, PluginComponents,
};
use crate::daemon::model::{
    DiagnosticCode, FileProblem, PluginManifest, ResolvedPath, resource_filter,
};
use crate::daemon::parse::plugin::{prompt, read_file};
use caproot_core::text::quote_word;
use caproot_core::wire::{ContentDigest, RelPath};
use rustix::fs::{FileType, OFlags};
use std::io;
use std::os::fd::AsFd as _;

/// Maximum depth below a directory of agents, commands or output styles.
const MAX_DEPTH: usize = 8;
/// Maximum number of entries of such a directory.
const MAX_ENTRIES: usize = 10_000;
/// Maximum number of files of one kind.
const MAX_FILES: usize = 1_000;
/// Maximum number of directories of one kind.
const MAX_DIRECTORIES: usize = 200;

/// Contents of a plugin's files.
#[derive(Debug, PartialEq, Default)]
pub struct PluginContents {
    /// Files with components, in the order of the kinds.
    pub files: Vec<PluginFile>,
    /// Problems by path below the plugin.
    pub problems: Vec<(RelPath, FileProblem)>,
    /// Images that exist.
    pub images: [Option<RelPath>; 3],
    pub screenshots: Vec<RelPath>,
}

/// Contents of one file.
#[derive(Debug, PartialEq)]
pub struct PluginFile {
    pub kind: ComponentKind,
    /// Path below the plugin, as named in the manifest.
    pub file: RelPath,
    /// Resolved path.
    pub real_path: ResolvedPath,
    pub fingerprint: FileFingerprint,
    /// Digest of the whole file; `None` if the file could not be read or is over `max_file_bytes`.
    pub digest: Option<ContentDigest>,
    /// Components; `None` if the file cannot be used.
    pub components: Option<PluginComponents>,
    pub problems: Vec<FileProblem>,
    /// Whether `components` are the last good version of a file that can no longer be used.
    pub stale: bool,
}

/// State of reading one plugin.
struct PluginScan<'a, 'w> {
    reader: &'a PluginReader<'a>,
    dir: &'a ResolvedPath,
    /// Path of the manifest below the plugin.
    manifest_file: &'a RelPath,
    product: ManifestProduct,
    watches: &'a mut WatchRecorder<'w>,
    contents: PluginContents,
}

impl PluginContents {
    /// Watches and reads the files of a plugin. `file` is the path of its manifest.
    pub fn read(
        reader: &PluginReader<'_>,
        dir: &ResolvedPath,
        manifest: &PluginManifest,
        file: &RelPath,
        watches: &mut WatchRecorder<'_>,
    ) -> Self {
        let mut scan = PluginScan {
            reader,
            dir,
            manifest_file: file,
            product: ManifestProduct::of_manifest(file),
            watches,
            contents: Self::default(),
        };

        scan.watch_plugin_dir(manifest);
        for kind in ComponentKind::ALL {
            scan.read_kind(manifest, kind);
        }

        scan.find_images(manifest);
        scan.contents
    }

    /// Whether a file could not be read, and a new attempt may succeed.
    pub fn has_transient_error(&self) -> bool {
        let of_files = self.files.iter().flat_map(|file| &file.problems);
        let of_paths = self.problems.iter().map(|(_, problem)| problem);
        of_files.chain(of_paths).any(is_transient)
    }

    /// Uses the last good version of files that can no longer be used. Returns whether there were
    /// any.
    pub fn keep_last_good(&mut self, last: &Self) -> bool {
        let mut kept = false;
        for file in &mut self.files {
            let is_same = |old: &&PluginFile| (old.kind, &old.file) == (file.kind, &file.file);
            if file.components.is_none()
                && let Some(old) = last.files.iter().find(is_same)
            {
                file.components.clone_from(&old.components);
                file.stale = file.components.is_some();
                kept |= file.stale;
            }
        }
        kept
    }
}

impl PluginScan<'_, '_> {
    /// Watches the entries of the plugin's directory through which the paths of the plugin go.
    fn watch_plugin_dir(&mut self, manifest: &PluginManifest) {
        let declarations = &manifest.declarations;
        let sources = &declarations.sources;
        let defaults = ComponentKind::ALL.map(|kind| sources.default_paths(kind, self.product));
        let named = sources.named_paths.iter().map(|(_, path)| path);
        let interface = declarations.info.interface.iter();
        let images = interface.flat_map(|i| i.images.iter().flatten().chain(&i.screenshots));
        let paths = named.chain(defaults.iter().flatten()).chain(images);
        self.reader
            .watch_first_components(self.dir, paths, self.watches);
    }

    fn read_kind(&mut self, manifest: &PluginManifest, kind: ComponentKind) {
        let sources = &manifest.declarations.sources;

        // A file at a default path comes first: the manifest may declare its servers again.
        for path in sources.default_paths(kind, self.product) {
            match self.reader.watch_and_find(self.dir, &path, self.watches) {
                DeclaredTarget::Problem(problem) => self.report(&path, problem),
                DeclaredTarget::File(file) if kind.is_json() => self.read_file(kind, &path, &file),
                DeclaredTarget::Directory(resolved) if !kind.is_json() => {
                    self.read_prompt_dir(kind, &path, &resolved);
                }
                // An unrelated file may have a default name.
                DeclaredTarget::Nothing
                | DeclaredTarget::File(_)
                | DeclaredTarget::Directory(_) => continue,
            }
            break;
        }

        for path in sources.named_paths(kind) {
            match self.reader.watch_and_find(self.dir, path, self.watches) {
                DeclaredTarget::Problem(problem) => self.report(path, problem),
                DeclaredTarget::File(file) if kind != ComponentKind::Skills => {
                    self.check_not_loaded_twice(kind, path, &file);
                    self.read_file(kind, path, &file);
                }
                DeclaredTarget::Directory(_) if kind == ComponentKind::Skills => {}
                DeclaredTarget::Directory(resolved) if !kind.is_json() => {
                    self.read_prompt_dir(kind, path, &resolved);
                }
                DeclaredTarget::Nothing => {
                    self.report_path(kind.manifest_key(), path, "does not exist");
                }
                DeclaredTarget::Directory(_) | DeclaredTarget::File(_) => {
                    self.report_wrong_target(kind, path);
                }
            }
        }
    }

    /// Reports a file of hooks that Claude Code loads without the key, and then rejects with the whole
    /// plugin: "Duplicate hooks file detected".
    fn check_not_loaded_twice(&mut self, kind: ComponentKind, path: &RelPath, file: &OpenFile) {
        let mut loaded = self.contents.files.iter();
        let is_loaded =
            loaded.any(|loaded| loaded.kind == kind && loaded.real_path == file.real_path);
        if self.product != ManifestProduct::Claude || kind != ComponentKind::Hooks || !is_loaded {
            return;
        }
        let path = quote_word(&format!("./{path}"));
        let why = format!(
            "`hooks` names {path}, which Claude Code loads anyway: it rejects the plugin; remove the path"
        );
        self.report_in_manifest(DiagnosticCode::FieldInvalid, why);
    }

    /// Reports a path to a file where a directory is expected, or the reverse.
    fn report_wrong_target(&mut self, kind: ComponentKind, path: &RelPath) {
        let why = match (kind, path.parent()) {
            (ComponentKind::Skills, Some(parent)) => {
                let parent = quote_word(&format!("./{parent}"));
                format!("is a file; name its directory {parent}")
            }
            _ => "is a directory; name a file in it".to_owned(),
        };
        self.report_path(kind.manifest_key(), path, &why);
    }

    fn report_path(&mut self, key: &str, path: &RelPath, why: &str) {
        let path = quote_word(&format!("./{path}"));
        self.report_in_manifest(
            DiagnosticCode::PathMissing,
            format!("`{key}` names {path}, which {why}"),
        );
    }

    fn report_in_manifest(&mut self, code: DiagnosticCode, message: String) {
        self.report(self.manifest_file, FileProblem::warning(code, message));
    }

    fn report(&mut self, path: &RelPath, problem: FileProblem) {
        self.contents.problems.push((path.clone(), problem));
    }

    /// Reads a file with components of a kind, unless it was read before.
    fn read_file(&mut self, kind: ComponentKind, path: &RelPath, file: &OpenFile) {
        let mut read = self.contents.files.iter();
        if read.any(|read| read.kind == kind && read.file == *path) {
            return;
        }

        let mut new = PluginFile {
            kind,
            file: path.clone(),
            real_path: file.real_path.clone(),
            fingerprint: self.watches.track_file(file),
            digest: None,
            components: None,
            problems: Vec::new(),
            stale: false,
        };
        if !kind.is_json() {
            if self.parse_prompt(file, &mut new).is_err() {
                return self.report(path, read_failed_problem());
            }
        } else if let Ok(bytes) = file.read_small() {
            let progress = self.reader.context.progress;
            let (components, problems) =
                progress.parse_file(&file.real_path, || read_file(kind, &bytes));
            new.components = components.map(|found| found.with_file(path).with_content(&bytes));
            new.digest = Some(ContentDigest::of(&bytes));
            new.problems = problems;
        } else {
            new.problems.push(read_failed_problem());
        }
        self.contents.files.push(new);
    }

    fn find_images(&mut self, manifest: &PluginManifest) {
        let Some(interface) = &manifest.declarations.info.interface else {
            return;
        };
        let keys = ["composerIcon", "logo", "logoDark"];
        for (at, key) in keys.into_iter().enumerate() {
            let path = interface.images[at].as_ref();
            self.contents.images[at] = path.filter(|path| self.has_image(key, path)).cloned();
        }
        let mut screenshots = interface.screenshots.to_vec();
        screenshots.retain(|path| self.has_image("screenshots", path));
        self.contents.screenshots = screenshots;
    }

    /// Whether an image exists at a path. Reports a problem if not.
    fn has_image(&mut self, key: &str, path: &RelPath) -> bool {
        match self.reader.watch_and_find(self.dir, path, self.watches) {
            DeclaredTarget::File(_) => return true,
            DeclaredTarget::Problem(problem) => self.report(path, problem),
            DeclaredTarget::Nothing => self.report_path(key, path, "does not exist"),
            DeclaredTarget::Directory(_) => {
                self.report_path(key, path, "is a directory; name an image in it");
            }
        }
        false
    }

    fn parse_prompt(&self, file: &OpenFile, new: &mut PluginFile) -> io::Result<()> {
        let size = file.version.size;
        let mut bytes = Vec::new();
        let max_bytes = self.reader.rules.limits.max_file_bytes;
        let head = file_head::read_head(&file.file, size, max_bytes, &mut bytes)?;

        let file_name = new.file.file_name().unwrap_or_default();
        let name = file_name.strip_suffix(b".md").unwrap_or(file_name);

        let (prompt, problems) = self
            .reader
            .context
            .progress
            .parse_file(&file.real_path, || {
                prompt::read(new.kind, &bytes, head.is_complete, name)
            });
        new.components = prompt.map(|prompt| PluginComponents {
            others: vec![PluginComponent {
                digest: head.digest,
                // Some filesystems report a wrong size.
                size: if head.is_complete {
                    bytes.len() as u64
                } else {
                    size
                },
                file: new.file.clone(),
                ..prompt
            }],
            ..PluginComponents::default()
        });
        new.digest = head.digest;
        new.problems = problems;
        new.problems.extend(head.hidden);
        Ok(())
    }

    /// Reads the Markdown files in a directory and below it, in byte order of their names. Links to
    /// directories are not followed, and SKILL.md files are not read.
    fn read_prompt_dir(&mut self, kind: ComponentKind, path: &RelPath, resolved: &ResolvedPath) {
        let Self { reader, dir, .. } = *self;

        let mut queue = vec![(path.clone(), resolved.clone(), 0)];
        let mut files = 0;
        let mut directories = 0;
        let mut buffer = Vec::new();

        while let Some((walked, resolved, depth)) = queue.pop() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let Ok(fd) = reader.snapshot.open(&resolved, flags) else {
                continue;
            };

            // The watch comes before the read of the names, so that no change is missed.
            self.watches.watch_dir(fd.as_fd());
            let Ok(names) = read_names(&fd, MAX_ENTRIES, &mut buffer) else {
                continue;
            };
            directories += 1;

            let mut below = Vec::new();
            for (name, kind_of_entry) in names {
                let Some(at) = walked.join(&name) else {
                    continue;
                };
                if !resource_filter::may_serve_path(&at, &reader.rules.skipped_dirs) {
                    continue;
                }

                let is_text = name.ends_with(b".md") && !name.eq_ignore_ascii_case(b"SKILL.md");
                match kind_of_entry {
                    FileType::Directory if depth < MAX_DEPTH => {
                        if let Some(resolved) = resolved.join(&name) {
                            below.push((at, resolved, depth + 1));
                        }
                    }
                    FileType::RegularFile | FileType::Symlink if is_text => {
                        if files == MAX_FILES {
                            return self.report_limit_reached(kind, &at);
                        }
                        files += 1;
                        // A change of a link's target causes no event of its directory: inotify(7).
                        if kind_of_entry == FileType::Symlink
                            && let Some(link) = RelPath::root().join(&name)
                        {
                            let snapshot = reader.snapshot;
                            self.watches.watch_file_path(snapshot, &resolved, &link);
                        }
                        let real_path = resolved.join(&name);
                        match reader.open_listed(dir, &at, kind_of_entry, real_path) {
                            Ok(file) => self.read_file(kind, &at, &file),
                            Err(problem) => self.report(&at, problem),
                        }
                    }
                    _ => {}
                }
            }

            // Directories that are not read yet count, too, so that the queue is bounded.
            if directories + queue.len() + below.len() > MAX_DIRECTORIES {
                return self.report_limit_reached(kind, &walked);
            }

            // The queue is read from its end, so that the first name comes next.
            queue.extend(below.into_iter().rev());
        }
    }

    fn report_limit_reached(&mut self, kind: ComponentKind, at: &RelPath) {
        let message = format!(
            "a plugin may have {MAX_FILES} files of `{}`, in {MAX_DIRECTORIES} directories; \
             further files are omitted",
            kind.manifest_key()
        );
        self.report(
            at,
            FileProblem::warning(DiagnosticCode::LimitReached, message),
        );
    }
}
