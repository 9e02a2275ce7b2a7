//! Roots of the project that the daemon is started in: a directory such as `.agents/skills` of the
//! working directory and of each directory above it, up to the root of the repository.

use super::flags::root;
use super::presets::FoundRoots;
use crate::daemon::model::{PublishedRoot, RootScope};
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::wire::RootId;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Maximum number of directories of a project, from the working directory outwards.
const MAX_LEVELS: usize = 16;
/// Permissions of a directory's group and of all other users to create files in it.
const GROUP_MAY_WRITE: u32 = 0o020;
const OTHERS_MAY_WRITE: u32 = 0o002;
/// Bit of a directory in which only the owner of a file may rename or remove the file.
const STICKY: u32 = 0o1000;

/// Directory of skills in each directory of a project.
pub struct ProjectPlace {
    /// Path of two components, such as `.agents/skills`.
    pub directory: &'static str,
    /// Id of the nearest root.
    pub nearest_id: &'static str,
}

/// Place of the default roots.
pub const DEFAULT_PLACE: ProjectPlace = ProjectPlace {
    directory: ".agents/skills",
    nearest_id: "repo",
};

/// Reason why a directory is no root.
enum RejectReason {
    /// Another user owns the directory, so this user decides what the skills say.
    ForeignOwner(PathBuf),
    /// Other users may write to the directory, so they decide what the skills say.
    WritableByOthers(PathBuf),
    /// The directory does not exist, and other users could create it.
    CreatableByOthers,
}

/// Returns the ids of all possible roots of a project, from the working directory outwards.
pub fn project_root_ids(place: &ProjectPlace) -> impl Iterator<Item = String> {
    let nearest_id = place.nearest_id;
    (1..=MAX_LEVELS).map(move |level| match level {
        1 => nearest_id.to_owned(),
        level => format!("{nearest_id}-{level}"),
    })
}

/// Returns the roots of the project, and warnings about directories of other users. A root whose
/// directory does not exist is returned, too, because the directory may be created later. The home
/// directory is omitted, because its directory is a root of its own.
pub fn project_roots(place: &ProjectPlace, env: &ProcessEnv) -> FoundRoots {
    let mut found = FoundRoots::default();
    let Some(current_dir) = real_dir(env.current_dir.as_deref()) else {
        return found;
    };
    let home = real_dir(env.home.as_deref());
    let dirs = project_dirs(&current_dir);
    let link_dirs: Box<[Box<[u8]>]> = project_link_dir(&dirs, home.as_deref(), env)
        .map(|dir| dir.as_os_str().as_bytes().into())
        .into_iter()
        .collect();

    // The ids count all directories of the project, also those without a root.
    for (dir, id) in dirs.into_iter().zip(project_root_ids(place)) {
        if home.as_deref() == Some(dir) {
            continue;
        }

        let path = dir.join(place.directory);
        match check_dirs(dir, &path, env) {
            Ok(()) => found.roots.extend(RootId::new(&id).ok().map(|id| PublishedRoot {
                is_optional: true,
                link_dirs: link_dirs.clone(),
                ..root(id, &path, RootScope::Repo)
            })),
            Err(RejectReason::CreatableByOthers) => {}
            Err(RejectReason::ForeignOwner(foreign)) => found.warnings.push(format!(
                "{} is not published: {} belongs to neither the daemon's user nor root; publish the \
                 directory with --root if you trust its owner",
                path.display(),
                foreign.display()
            )),
            Err(RejectReason::WritableByOthers(writable)) => found.warnings.push(format!(
                "{} is not published: other users may write to {}; remove their permission with \
                 `chmod go-w`, or publish the directory with --root if you trust them",
                path.display(),
                writable.display()
            )),
        }
    }
    found
}

/// Returns the outermost directory of the project in which links may find skills. A directory that holds
/// more than a project is never one: `/`, the home directory, and directories above it. Neither is a
/// directory to which other users may write.
fn project_link_dir<'a>(
    dirs: &[&'a Path],
    home: Option<&Path>,
    env: &ProcessEnv,
) -> Option<&'a Path> {
    let is_project = |dir: &&&Path| {
        let is_trusted = fs::metadata(dir)
            .is_ok_and(|meta| [0, env.uid].contains(&meta.uid()) && !others_may_write(&meta, env));
        is_trusted && dir.parent().is_some() && !home.is_some_and(|home| home.starts_with(dir))
    };
    dirs.iter().rfind(is_project).copied()
}

fn real_dir(dir: Option<&Path>) -> Option<PathBuf> {
    dir?.canonicalize().ok()
}

/// Returns the directories of the project, from the working directory to the root of the
/// repository. Without a repository, returns only the working directory.
fn project_dirs(current_dir: &Path) -> Vec<&Path> {
    // The entry may be a file, as in a worktree: git-worktree(1).
    let depth = current_dir
        .ancestors()
        .position(|dir| fs::symlink_metadata(dir.join(".git")).is_ok())
        .unwrap_or(0);
    current_dir
        .ancestors()
        .take((depth + 1).min(MAX_LEVELS))
        .collect()
}

/// Checks the owners and the modes of the directory, of its root such as `.agents/skills`, and of the
/// directory between them, as far as they exist, with the owners of links and of their targets. If
/// the root does not exist, checks that only trusted users can create it.
fn check_dirs(dir: &Path, root: &Path, env: &ProcessEnv) -> Result<(), RejectReason> {
    let mut others_may_create = dir.parent().is_none();
    let parent = root.parent().unwrap_or(dir);
    for path in [dir, parent, root] {
        let link = match fs::symlink_metadata(path) {
            Ok(meta) => meta,
            Err(error) if error.kind() == io::ErrorKind::NotFound && others_may_create => {
                return Err(RejectReason::CreatableByOthers);
            }
            // The daemon reports the error as the state of the root.
            Err(_) => return Ok(()),
        };

        let target = fs::metadata(path).ok();
        for meta in target.iter().chain([&link]) {
            if meta.uid() != env.uid && meta.uid() != 0 {
                return Err(RejectReason::ForeignOwner(path.to_owned()));
            }
        }

        let is_writable = target
            .as_ref()
            .is_some_and(|dir| others_may_write(dir, env));
        let is_sticky = target.as_ref().is_some_and(|dir| dir.mode() & STICKY != 0);

        // Other users cannot replace a directory in a sticky one, but can add skills to the root.
        if is_writable && (!is_sticky || path == root) {
            return Err(RejectReason::WritableByOthers(path.to_owned()));
        }

        // A dangling link counts, because other users may be able to create its target.
        others_may_create |= is_writable || target.is_none();
    }
    Ok(())
}

/// Whether users other than root and the daemon's user may write to a directory. Systems whose umask
/// is 002 give each user a group of the same id as the user, which has no other members. Such a group
/// is trusted, as in the check of `~/.ssh` by sshd on Debian.
fn others_may_write(dir: &fs::Metadata, env: &ProcessEnv) -> bool {
    let is_trusted_group = dir.gid() == 0 || dir.gid() == env.gid && env.gid == env.uid;
    let mode = dir.mode();
    mode & OTHERS_MAY_WRITE != 0 || mode & GROUP_MAY_WRITE != 0 && !is_trusted_group
}
