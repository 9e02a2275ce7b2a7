//! Problems with the files of a skill that a scan does not look at: the links of the text, the links in
//! the resource directories, and the scripts.

use crate::daemon::fs::ResolvedRootDir;
use crate::daemon::fs::dirs_snapshot::ResolveError;
use crate::daemon::fs::open_file::{OpenError, find_target, open_file, read_names};
use crate::daemon::fs::replace_file::EditableFile;
use crate::daemon::model::{DiagnosticCode, FileProblem, ResolvedPath, Skill};
use crate::daemon::scan;
use crate::daemon::scan::search::SearchRules;
use crate::lint::body::{self, BodyLink, LinkFault};
use crate::lint::contents;
use caproot_core::wire::RelPath;
use rustix::fs::{FileType, OFlags};
use std::io::Read as _;

/// Maximum bytes of a SKILL.md that are read.
pub const MAX_TEXT_BYTES: usize = 16 << 20;
/// Maximum number of entries of a skill, and of its resource directories, that are examined.
pub const MAX_ENTRIES: usize = 10_000;
/// Maximum depth of the directories that are examined.
pub const MAX_DEPTH: usize = 16;
/// Directory of a skill whose files are scripts.
const SCRIPTS_DIR: &[u8] = b"scripts";
/// Extensions of files that an interpreter runs by their `#!` line.
const SCRIPT_EXTENSIONS: [&[u8]; 7] = [b"sh", b"bash", b"zsh", b"fish", b"py", b"rb", b"pl"];
/// Start of a file that names its interpreter; see execve(2).
const SHEBANG: &[u8] = b"#!";

/// Returns the problems of a skill with their paths below the root.
pub fn package_problems(
    root: &ResolvedRootDir,
    skill: &Skill,
    rules: &SearchRules,
) -> Vec<(RelPath, FileProblem)> {
    let SearchRules {
        resource_dirs,
        skipped_dirs,
        ..
    } = rules;
    let package = &skill.package;
    let mut problems = Vec::new();
    let main = skill.skill_file_path();
    if let Some(text) = read_text(root, &main) {
        let own = body::body_links(&text, package)
            .into_iter()
            .filter(|link| !link.is_code || is_own_path(root, package, &link.target, resource_dirs))
            .filter_map(|link| Some(link.problem(&find_fault(root, &link)?, package)))
            .chain(contents::content_problem(root, package, skipped_dirs))
            .chain(body::conflict_problem(&text))
            .chain(body::length_problem(&text))
            .chain(body::use_problem(&text, skill.frontmatter.description()));
        problems.extend(own.map(|problem| (main.clone(), problem)));
    }

    let mut walk = ResourceWalk {
        root,
        problems,
        remaining: MAX_ENTRIES,
    };
    for dir in resource_dirs.iter().filter_map(|name| package.join(name)) {
        let is_scripts = dir.file_name() == Some(SCRIPTS_DIR);
        walk.visit_dir(&dir, is_scripts, 0);
    }
    walk.problems
}

/// Reads a SKILL.md, at most [`MAX_TEXT_BYTES`].
pub fn read_text(root: &ResolvedRootDir, path: &RelPath) -> Option<Vec<u8>> {
    let opened = open_file(&root.snapshot, &root.path, path).ok()?;
    let mut text = Vec::new();
    opened
        .file
        .take(MAX_TEXT_BYTES as u64)
        .read_to_end(&mut text)
        .ok()?;
    Some(text)
}

/// Whether a path leads into a directory that the skill has, or that the format knows. Other words in
/// backticks may name files of the project that the skill is used in.
fn is_own_path(
    root: &ResolvedRootDir,
    package: &RelPath,
    target: &RelPath,
    resource_dirs: &[Box<[u8]>],
) -> bool {
    target
        .strip_prefix(package)
        .unwrap_or_default()
        .segments()
        .next()
        .is_some_and(|first| {
            resource_dirs
                .iter()
                .any(|dir| dir.eq_ignore_ascii_case(first))
                || find_in_other_case(root, package, first).is_some()
        })
}

/// Returns the fault of a path of a body; `None` if its target exists.
fn find_fault(root: &ResolvedRootDir, link: &BodyLink) -> Option<LinkFault> {
    if !is_missing(root, &link.target) {
        return link.has_backslashes().then_some(LinkFault::Backslashes);
    }

    let mut found = RelPath::root();
    for name in link.target.segments() {
        let exact = found.join(name)?;
        found = if is_missing(root, &exact) {
            match find_in_other_case(root, &found, name) {
                Some(other) => other,
                None => return Some(LinkFault::Missing),
            }
        } else {
            exact
        };
    }
    Some(LinkFault::OtherCase(found))
}

/// Returns the entry of a directory whose name equals `name` except for its letter case.
fn find_in_other_case(root: &ResolvedRootDir, dir: &RelPath, name: &[u8]) -> Option<RelPath> {
    let names = list_names(root, dir)?;
    let mut entries = names.iter().map(|(entry, _)| entry);
    dir.join(entries.find(|entry| entry.eq_ignore_ascii_case(name))?)
}

/// Lists the first entries of a directory, with their types.
pub fn list_names(root: &ResolvedRootDir, dir: &RelPath) -> Option<Vec<(Box<[u8]>, FileType)>> {
    let real = find_target(&root.snapshot, &root.path, dir).ok()?.real_path;
    let opened = root
        .snapshot
        .open(&real, OFlags::RDONLY | OFlags::DIRECTORY)
        .ok()?;
    read_names(&opened, MAX_ENTRIES, &mut Vec::new()).ok()
}

fn is_missing(root: &ResolvedRootDir, path: &RelPath) -> bool {
    // Other errors, such as a missing permission, do not tell whether the file exists.
    let missing = [ResolveError::Missing, ResolveError::NotADirectory].map(OpenError::Resolve);
    find_target(&root.snapshot, &root.path, path).is_err_and(|error| missing.contains(&error))
}

/// Walk over the resource directories of one skill. Linked directories are not entered.
struct ResourceWalk<'a> {
    root: &'a ResolvedRootDir,
    problems: Vec<(RelPath, FileProblem)>,
    /// Number of entries that may still be examined.
    remaining: usize,
}

impl ResourceWalk<'_> {
    fn visit_dir(&mut self, dir: &RelPath, is_scripts: bool, depth: usize) {
        let ResolvedRootDir {
            snapshot,
            path: root,
        } = self.root;

        // A directory behind a link, an unreadable directory and a missing directory have no entries.
        let real = ResolvedPath {
            dir_index: root.dir_index,
            rel_path: root.rel_path.join_path(dir),
        };
        let Ok(opened) = snapshot.open(&real, OFlags::RDONLY | OFlags::DIRECTORY) else {
            return;
        };

        let names = read_names(&opened, self.remaining, &mut Vec::new()).unwrap_or_default();
        for (name, kind) in names {
            if self.remaining == 0 {
                return;
            }
            self.remaining -= 1;

            let Some(path) = dir.join(&name) else {
                continue;
            };

            match kind {
                FileType::Symlink => {
                    if let Err(OpenError::Resolve(error)) = find_target(snapshot, root, &path) {
                        self.problems.push((path, scan::link_problem(error)));
                    }
                }
                FileType::RegularFile if is_scripts => {
                    let problem = script_problem(self.root, &path);
                    self.problems.extend(problem.map(|problem| (path, problem)));
                }
                FileType::Directory if depth < MAX_DEPTH => {
                    self.visit_dir(&path, is_scripts, depth + 1);
                }
                _ => {}
            }
        }
    }
}

/// Returns the problem of a script that the kernel cannot run. Returns `None` if the file cannot be read or
/// is no script.
fn script_problem(root: &ResolvedRootDir, path: &RelPath) -> Option<FileProblem> {
    let name = path.file_name()?;
    let extension = name.rsplit(|b| *b == b'.').next()?;
    let has_extension = extension != name && SCRIPT_EXTENSIONS.contains(&extension);
    let opened = open_file(&root.snapshot, &root.path, path).ok()?;
    let mut start = Vec::new();
    opened
        .file
        .take(SHEBANG.len() as u64)
        .read_to_end(&mut start)
        .ok()?;

    let why = match (start == SHEBANG, opened.executable) {
        (true, true) => return None,
        (true, false) => "the script has a `#!` line, but no execute permission",
        // An empty file is a marker, such as `__init__.py`.
        (false, _) if !has_extension || start.is_empty() => return None,
        (false, true) => "the script has execute permission, but no `#!` line",
        (false, false) => "the script has neither a `#!` line nor execute permission",
    };
    Some(FileProblem::note(DiagnosticCode::ScriptNotRunnable, why))
}

/// Returns the mode that lets everybody who may read the script run the script. Returns `None` if
/// the file is no script with a `#!` line, or if its mode is right.
pub fn executable_mode(file: &EditableFile) -> Option<u32> {
    let mode = file.mode | (file.mode & 0o444) >> 2;
    let is_wrong = file.content.starts_with(SHEBANG) && file.mode & 0o111 == 0;
    (is_wrong && mode != file.mode).then_some(mode)
}
