//! Worktrees of Git below a root. A worktree repeats the files of its repository, so that each skill of
//! the repository would be listed again. Source: gitrepository-layout(5).

use crate::daemon::fs::dirs_snapshot::AllowedDirsSnapshot;
use crate::daemon::fs::open_file;
use crate::daemon::model::ResolvedPath;
use std::io::Read as _;

/// File by which a worktree or a submodule names its repository.
pub const GIT_FILE: &[u8] = b".git";
/// Maximum bytes of the file: a path and a label.
const MAX_FILE_BYTES: u64 = 4_200;

/// Whether a directory is a worktree of a repository that is below the root, too.
pub fn is_copy_of_repository(
    snapshot: &AllowedDirsSnapshot,
    dir: &ResolvedPath,
    root_path: &[u8],
) -> bool {
    find_repository(snapshot, dir).is_some_and(|repository| {
        let root = snapshot.resolve(root_path);
        root.is_ok_and(|root| repository.strip_prefix(&root).is_some())
    })
}

/// Returns the repository of a worktree.
fn find_repository(snapshot: &AllowedDirsSnapshot, dir: &ResolvedPath) -> Option<ResolvedPath> {
    let opened = open_file::open_real_path(snapshot, dir.join(GIT_FILE)?).ok()?;
    let mut text = Vec::new();
    let mut file = opened.file.take(MAX_FILE_BYTES);
    file.read_to_end(&mut text).ok()?;

    let repository = repository_of_worktree(&text, &snapshot.absolute_bytes(dir))?;
    snapshot.resolve(&repository).ok()
}

/// Returns the absolute path of the repository that a file `.git` in the directory names, if the
/// directory is a worktree. A submodule names a directory below `modules`.
fn repository_of_worktree(file: &[u8], dir: &[u8]) -> Option<Vec<u8>> {
    let named = file.strip_prefix(b"gitdir:")?.trim_ascii();
    let base = if named.starts_with(b"/") { b"" } else { dir };
    let mut segments: Vec<&[u8]> = Vec::new();
    for segment in [base, named]
        .iter()
        .flat_map(|path| path.split(|b| *b == b'/'))
    {
        match segment {
            b"" | b"." => {}
            b".." => drop(segments.pop()?),
            name => segments.push(name),
        }
    }

    let [above @ .., git_dir, b"worktrees", _] = &*segments else {
        return None;
    };
    // A bare repository has no directory of its own around it.
    let bare_dir = Some(git_dir).filter(|name| **name != GIT_FILE);
    let path: Vec<_> = above
        .iter()
        .chain(bare_dir)
        .flat_map(|name| [b"/", *name])
        .collect();
    Some(path.concat())
}

#[cfg(test)]
mod tests {
    use super::repository_of_worktree;
    use proptest::prelude::*;

    #[test]
    fn worktrees_name_their_repository() {
        for (file, repository) in [
            ("gitdir: /r/.git/worktrees/x\n", Some("/r")),
            ("gitdir: ../../.git/worktrees/x", Some("/r")),
            ("gitdir: ./../../.git//worktrees/x/\n", Some("/r")),
            ("gitdir:/srv/r.git/worktrees/x", Some("/srv/r.git")),
            ("gitdir: /.git/worktrees/x", Some("")),
            ("gitdir: ../.git/modules/x\n", None),
            ("gitdir: /r/.git/worktrees/x/y", None),
            ("gitdir: worktrees/x", Some("/r/trees/x")),
            ("gitdir: ../../../../../.git/worktrees/x", None),
            ("gitdir: worktrees", None),
            ("ref: /r/.git/worktrees/x", None),
            ("", None),
        ] {
            let found = repository_of_worktree(file.as_bytes(), b"/r/trees/x");
            assert_eq!(
                found,
                repository.map(|path| path.as_bytes().to_vec()),
                "{file:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_file_names_an_absolute_path_or_nothing(
            bytes: Vec<u8>, path in "(gitdir: )?(/|\\.|\\.\\.|a|worktrees|\\.git|\n){0,12}",
        ) {
            for file in [bytes, path.into_bytes()] {
                if let Some(found) = repository_of_worktree(&file, b"/a/b") {
                    prop_assert!(found.is_empty() || found.starts_with(b"/"));
                }
            }
        }
    }
}
