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
/// Maximum number of entries of a skill's resource directories that are examined.
const MAX_ENTRIES: usize = 10_000;
/// Maximum depth of the resource directories.
const MAX_DEPTH: usize = 16;
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
    let mut problems = Vec::new();
    let main = skill.skill_file_path();
    if let Some(text) = read_text(root, &main) {
        let own = body::body_links(&text, &skill.package)
            .into_iter()
            .filter(|link| {
                !link.is_code || is_own_path(root, &skill.package, &link.target, resource_dirs)
            })
            .filter_map(|link| Some(link.problem(&find_fault(root, &link)?, &skill.package)))
            .chain(contents::content_problem(
                root,
                &skill.package,
                skipped_dirs,
            ))
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
    for name in resource_dirs {
        let Some(dir) = skill.package.join(name) else {
            continue;
        };
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
    let below = target.strip_prefix(package);
    let Some(first) = below.as_ref().and_then(|below| below.segments().next()) else {
        return false;
    };
    resource_dirs
        .iter()
        .any(|dir| dir.eq_ignore_ascii_case(first))
        || find_in_other_case(root, package, first).is_some()
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
    let dir_path = find_target(&root.snapshot, &root.path, dir).ok()?.real_path;
    let opened = root
        .snapshot
        .open(&dir_path, OFlags::RDONLY | OFlags::DIRECTORY)
        .ok()?;
    let names = read_names(&opened, MAX_ENTRIES, &mut Vec::new()).ok()?;
    let mut same = names
        .iter()
        .filter(|(entry, _)| entry.eq_ignore_ascii_case(name));
    dir.join(&same.next()?.0)
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
                FileType::Symlink => self.examine_link(path),
                FileType::RegularFile if is_scripts => {
                    let script = ScriptState::read(self.root, &path);
                    let problem = script.and_then(ScriptState::problem);
                    self.problems.extend(problem.map(|problem| (path, problem)));
                }
                FileType::Directory if depth < MAX_DEPTH => {
                    self.visit_dir(&path, is_scripts, depth + 1);
                }
                _ => {}
            }
        }
    }

    fn examine_link(&mut self, path: RelPath) {
        let target = find_target(&self.root.snapshot, &self.root.path, &path);
        if let Err(OpenError::Resolve(error)) = target {
            self.problems.push((path, scan::link_problem(error)));
        }
    }
}

/// Parts of a script that the kernel needs to run it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ScriptState {
    has_shebang: bool,
    executable: bool,
}

impl ScriptState {
    /// Returns `None` if the file cannot be read or is no script.
    fn read(root: &ResolvedRootDir, path: &RelPath) -> Option<Self> {
        let name = path.file_name()?;
        let extension = name.rsplit(|b| *b == b'.').next()?;
        let is_script = extension != name && SCRIPT_EXTENSIONS.contains(&extension);
        let opened = open_file(&root.snapshot, &root.path, path).ok()?;
        let executable = opened.executable;
        let mut start = Vec::new();
        opened
            .file
            .take(SHEBANG.len() as u64)
            .read_to_end(&mut start)
            .ok()?;
        let has_shebang = start == SHEBANG;
        // An empty file is a marker, such as `__init__.py`.
        (has_shebang || is_script && !start.is_empty()).then_some(Self {
            has_shebang,
            executable,
        })
    }

    fn problem(self) -> Option<FileProblem> {
        let why = match (self.has_shebang, self.executable) {
            (true, true) => return None,
            (true, false) => "the script has a `#!` line, but no execute permission",
            (false, true) => "the script has execute permission, but no `#!` line",
            (false, false) => "the script has neither a `#!` line nor execute permission",
        };
        Some(FileProblem::note(DiagnosticCode::ScriptNotRunnable, why))
    }
}

/// Returns the mode that lets everybody who may read the script run the script. Returns `None` if
/// the file is no script with a `#!` line, or if its mode is right.
pub fn executable_mode(file: &EditableFile) -> Option<u32> {
    let mode = file.mode | (file.mode & 0o444) >> 2;
    let is_wrong = file.content.starts_with(SHEBANG) && file.mode & 0o111 == 0;
    (is_wrong && mode != file.mode).then_some(mode)
}
