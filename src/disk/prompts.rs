//! Reads the Markdown files of a plugin: its agents, commands and output styles, by themselves and in
//! directories. Leaves what is in them to `domain::plugin::prompt`.

use super::allowed::Blocked;
use super::content;
use super::list::{read_names, unopened};
use super::plugin::Reading;
use super::resource::{Regular, Unopened};
use crate::domain::plugin::{Components, Kind, Prompt, prompt};
use crate::domain::{Code, Problem, RelPath, Severity, Spot, permit};
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

impl Reading<'_> {
    pub(super) fn prompt(&mut self, kind: Kind, place: &RelPath, file: &Regular) {
        if self.is_read(kind, place) {
            return;
        }
        self.watch_shared(file);
        let size = file.version.size;
        let mut bytes = Vec::new();
        let most = self.reader.limits.max_file_bytes;
        let head = content::head(&file.file, size, most, &mut bytes);
        let Ok(head) = head else {
            let failed = unopened(Unopened::Blocked(Blocked::Failed), Severity::Error);
            return self.read.problems.push((place.clone(), failed));
        };
        let name = place.file_name().unwrap_or_default();
        let name = name.strip_suffix(b".md").unwrap_or(name);
        let (prompt, mut problems) = prompt::read(kind, &bytes, head.whole, name);
        problems.extend(head.hidden);
        let components = prompt.map(|prompt| {
            let size = if head.whole { bytes.len() as u64 } else { size };
            let prompt = Prompt { digest: head.digest, size, file: place.clone(), ..prompt };
            let mut components = Components::default();
            match kind {
                Kind::Agents => components.agents.push(prompt),
                Kind::Commands => components.commands.push(prompt),
                _ => components.output_styles.push(prompt),
            }
            components
        });
        self.take(kind, place, file, components, problems);
    }

    /// Reads every Markdown file in and below a directory, names in byte order. Links to directories
    /// are not followed, and skills are none of the kinds.
    pub(super) fn prompts(&mut self, kind: Kind, place: &RelPath, spot: &Spot) {
        let Self { reader, dir, .. } = *self;
        let mut queue = vec![(place.clone(), spot.clone(), 0)];
        let (mut files, mut directories) = (0, 0);
        let mut buffer = Vec::new();
        while let Some((walked, spot, depth)) = queue.pop() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let Ok(fd) = reader.ground.open(&spot, flags) else { continue };
            self.guards.extend(reader.watching.watch(fd.as_fd(), self.token, None));
            let Ok(names) = read_names(&fd, MAX_ENTRIES, &mut buffer) else { continue };
            directories += 1;
            let mut below = Vec::new();
            for (name, kind_of_entry) in names {
                let Some(at) = walked.join(&name) else { continue };
                if !permit::may_read(&at, reader.passed_over) {
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
                            return self.too_many(kind, &at);
                        }
                        files += 1;
                        match reader.open(dir, &at) {
                            Ok(file) => self.prompt(kind, &at, &file),
                            Err(problem) => self.read.problems.push((at, problem)),
                        }
                    }
                    _ => {}
                }
            }
            if directories + queue.len() + below.len() > MAX_DIRECTORIES {
                return self.too_many(kind, &walked);
            }
            queue.extend(below.into_iter().rev());
        }
    }

    fn too_many(&mut self, kind: Kind, at: &RelPath) {
        let why = format!(
            "a plugin may have {MAX_FILES} files of `{}`, in {MAX_DIRECTORIES} directories; the \
             reading stopped here",
            kind.key()
        );
        self.read.problems.push((at.clone(), Problem::warning(Code::LimitReached, why)));
    }
}
