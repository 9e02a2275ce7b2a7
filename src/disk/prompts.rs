//! Reads the Markdown files of a plugin: its agents, commands and output styles, by themselves and in
//! directories. Leaves what is in them to `domain::plugin::prompt`.

use super::allowed_dirs::ResolveError;
use super::content;
use super::dir_lister::{open_problem, read_names};
use super::open_file::{OpenError, OpenFile};
use super::plugin_reader::PluginScan;
use crate::domain::plugin::{ComponentKind, PluginComponents, PluginPrompt, prompt};
use crate::domain::{
    DiagnosticCode, FileProblem, RelPath, ResolvedPath, Severity, resource_filter,
};
use rustix::fs::{FileType, OFlags};
use std::os::fd::AsFd as _;

/// Levels of directories below one that is named for agents, commands or output styles.
const MAX_DEPTH: usize = 8;
/// Entries of such a directory that are looked at.
const MAX_ENTRIES: usize = 10_000;
/// Files of one kind that are read.
const MAX_FILES: usize = 1_000;
/// Directories of one kind that are looked into.
const MAX_DIRECTORIES: usize = 200;

impl PluginScan<'_> {
    pub(super) fn read_prompt(&mut self, kind: ComponentKind, place: &RelPath, file: &OpenFile) {
        if self.is_read(kind, place) {
            return;
        }
        self.watch_hard_links(file);
        let size = file.version.size;
        let mut bytes = Vec::new();
        let most = self.reader.limits.max_file_bytes;
        let head = content::read_head(&file.file, size, most, &mut bytes);
        let Ok(head) = head else {
            let failed = open_problem(OpenError::Resolve(ResolveError::Failed), Severity::Error);
            return self.contents.problems.push((place.clone(), failed));
        };
        let name = place.file_name().unwrap_or_default();
        let name = name.strip_suffix(b".md").unwrap_or(name);
        let (prompt, mut problems) = prompt::read(kind, &bytes, head.is_complete, name);
        problems.extend(head.hidden);
        let components = prompt.map(|prompt| {
            let size = if head.is_complete { bytes.len() as u64 } else { size };
            let prompt = PluginPrompt { digest: head.digest, size, file: place.clone(), ..prompt };
            let mut components = PluginComponents::default();
            match kind {
                ComponentKind::Agents => components.agents.push(prompt),
                ComponentKind::Commands => components.commands.push(prompt),
                _ => components.output_styles.push(prompt),
            }
            components
        });
        self.push_file(kind, place, file, components, problems);
    }

    /// Reads every Markdown file in and below a directory, names in byte order. Links to directories
    /// are not followed, and skills are none of the kinds.
    pub(super) fn read_prompt_dir(
        &mut self,
        kind: ComponentKind,
        place: &RelPath,
        spot: &ResolvedPath,
    ) {
        let Self { reader, dir, .. } = *self;
        let mut queue = vec![(place.clone(), spot.clone(), 0)];
        let (mut files, mut directories) = (0, 0);
        let mut buffer = Vec::new();
        while let Some((walked, spot, depth)) = queue.pop() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let Ok(fd) = reader.snapshot.open(&spot, flags) else { continue };
            self.guards.extend(reader.watcher.watch_dir(fd.as_fd(), self.token, None));
            let Ok(names) = read_names(&fd, MAX_ENTRIES, &mut buffer) else { continue };
            directories += 1;
            let mut below = Vec::new();
            for (name, kind_of_entry) in names {
                let Some(at) = walked.join(&name) else { continue };
                if !resource_filter::may_serve_path(&at, reader.skipped_dirs) {
                    continue;
                }
                let is_text = name.ends_with(b".md") && !name.eq_ignore_ascii_case(b"SKILL.md");
                match kind_of_entry {
                    FileType::Directory if depth < MAX_DEPTH => {
                        if let Some(spot) = spot.join(&name) {
                            below.push((at, spot, depth + 1));
                        }
                    }
                    FileType::RegularFile | FileType::Symlink if is_text => {
                        if files == MAX_FILES {
                            return self.report_limit_reached(kind, &at);
                        }
                        files += 1;
                        match reader.open(dir, &at) {
                            Ok(file) => self.read_prompt(kind, &at, &file),
                            Err(problem) => self.contents.problems.push((at, problem)),
                        }
                    }
                    _ => {}
                }
            }
            if directories + queue.len() + below.len() > MAX_DIRECTORIES {
                return self.report_limit_reached(kind, &walked);
            }
            queue.extend(below.into_iter().rev());
        }
    }

    fn report_limit_reached(&mut self, kind: ComponentKind, at: &RelPath) {
        let why = format!(
            "a plugin may have {MAX_FILES} files of `{}`, in {MAX_DIRECTORIES} directories; the \
             reading stopped here",
            kind.manifest_key()
        );
        self.contents
            .problems
            .push((at.clone(), FileProblem::warning(DiagnosticCode::LimitReached, why)));
    }
}
