//! Which directories and files a daemon must be able to read, from how they were given. A Landlock
//! rule sticks to the directory that it was made for, not to its path: what may be made anew needs a
//! rule above it.

use super::SandboxPolicy;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What the walls leave open; all of it exists, without links.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SandboxPaths {
    /// Directories below which is read; none lies inside another.
    pub(super) read_dirs: BTreeSet<PathBuf>,
    /// Single files that are read.
    pub(super) files: BTreeSet<PathBuf>,
    /// Directories in which sockets are taken away.
    pub(super) socket_dirs: BTreeSet<PathBuf>,
}

/// The places, and what an operator should know of them.
pub(super) fn collect_paths(needs: &SandboxPolicy) -> (SandboxPaths, Vec<String>) {
    let mut notes = Vec::new();
    let mut read = BTreeSet::new();
    for dir in &needs.allowed_dirs {
        match deepest_existing_dir(dir)
            .filter(|place| !is_filesystem_root(place) || is_filesystem_root(dir))
        {
            Some(place) => drop(read.insert(place)),
            None => notes.push(missing_warning(dir)),
        }
    }
    let allowed = read.clone();
    for root in &needs.roots {
        let (dirs, note) = dirs_above_root(root, &allowed);
        read.extend(dirs);
        notes.extend(note);
    }
    let mut files = BTreeSet::new();
    let is_own = |dir: &PathBuf| !is_shared_dir(dir, needs.home.as_deref());
    for file in &needs.files {
        // A link to the file may be replaced, such as that of a mounted ConfigMap.
        let given = file.parent().and_then(|dir| dir.canonicalize().ok());
        read.extend(given.filter(is_own));
        let Ok(file) = file.canonicalize() else { continue };
        match file.parent().map(Path::to_owned).filter(is_own) {
            Some(dir) => drop(read.insert(dir)),
            None => drop(files.insert(file)),
        }
    }
    if read.contains(Path::new("/")) {
        notes.push("the sandbox keeps no file from being read: / is allowed".to_owned());
    }
    let outermost = |dir: &&PathBuf| !dir.ancestors().skip(1).any(|above| read.contains(above));
    let outermost = read.iter().filter(outermost).cloned().collect();
    let sockets = needs.sockets.iter().filter_map(|socket| deepest_existing_dir(socket.parent()?));
    (SandboxPaths { read_dirs: outermost, files, socket_dirs: sockets.collect() }, notes)
}

/// The directories above a root: above the path that was given, and above what it leads to. None for
/// one that lies inside an allowed directory.
fn dirs_above_root(root: &Path, allowed: &BTreeSet<PathBuf>) -> (Vec<PathBuf>, Option<String>) {
    let given = root.file_name().and_then(|_| root.parent()).and_then(deepest_existing_dir);
    let real = root.canonicalize().ok();
    if real.iter().flat_map(|real| real.ancestors()).any(|dir| allowed.contains(dir)) {
        return (Vec::new(), None);
    }
    let target = real.as_deref().and_then(Path::parent).map(Path::to_owned);
    let dirs = [given, target].into_iter().flatten();
    let mut dirs: Vec<_> = dirs.filter(|dir| !is_filesystem_root(dir)).collect();
    match real {
        // The whole file system is not for one root.
        Some(real) if real.ancestors().count() <= 2 => {
            let note = not_recreatable_warning(root);
            dirs.push(real);
            (dirs, Some(note))
        }
        None if dirs.is_empty() => (dirs, Some(missing_warning(root))),
        _ => (dirs, None),
    }
}

/// The deepest directory on the way to this one that is there.
pub(super) fn deepest_existing_dir(dir: &Path) -> Option<PathBuf> {
    dir.ancestors().find_map(|dir| dir.canonicalize().ok().filter(|dir| dir.is_dir()))
}

fn is_filesystem_root(dir: &Path) -> bool {
    dir.parent().is_none()
}

/// Whether a directory holds much beside one file of ours: `/`, those directly below it, and the home.
fn is_shared_dir(dir: &Path, home: Option<&Path>) -> bool {
    let home = home.and_then(|home| home.canonicalize().ok());
    home.is_some_and(|home| home == dir) || dir.ancestors().count() <= 2
}

fn missing_warning(dir: &Path) -> String {
    format!(
        "{} is missing, and so is all above it but /; restart the daemon once it is there",
        dir.display()
    )
}

fn not_recreatable_warning(root: &Path) -> String {
    format!(
        "{} lies directly below /; restart the daemon when it is removed and made anew",
        root.display()
    )
}

#[cfg(test)]
mod tests {
    use super::{SandboxPolicy, collect_paths};
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};

    /// What is open below a temporary directory, for directories and files of it.
    fn collected_names(
        allow: &[&str],
        roots: &[&str],
        files: &[&str],
    ) -> (Vec<String>, Vec<String>) {
        let tmp = tempfile::tempdir().expect("temp dir");
        let top = tmp.path().canonicalize().expect("real");
        for dir in ["a/b/c", "home/etc", "rel/42", "run"] {
            create_dir_all(top.join(dir)).expect("dirs");
        }
        write(top.join("home/f"), "").expect("file");
        write(top.join("home/etc/f"), "").expect("file");
        symlink("../rel/42", top.join("a/current")).expect("link");
        symlink("../home/etc/f", top.join("a/linked")).expect("link");
        let of_top = |dirs: &[&str]| dirs.iter().map(|dir| top.join(dir)).collect();
        let needs = SandboxPolicy {
            allowed_dirs: of_top(allow),
            roots: of_top(roots),
            files: of_top(files),
            sockets: vec![top.join("run/s")],
            home: Some(top.join("home")),
            ..SandboxPolicy::default()
        };
        let (places, notes) = collect_paths(&needs);
        assert_eq!(notes, [""; 0]);
        assert_eq!(places.socket_dirs, [top.join("run")].into());
        let named = |paths: std::collections::BTreeSet<PathBuf>| {
            let name = |p: PathBuf| p.strip_prefix(&top).expect("below").display().to_string();
            paths.into_iter().map(name).collect()
        };
        (named(places.read_dirs), named(places.files))
    }

    #[test]
    fn recreatable_dirs_get_their_rule_on_the_parent() {
        for (allow, roots, read) in [
            (&["a/b"][..], &[][..], &["a/b"][..]),
            (&[], &["a/b"], &["a"]),
            (&[], &["a/b/c"], &["a/b"]),
            // Inside an allowed directory, however it is given.
            (&["a/b"], &["a/b"], &["a/b"]),
            (&["a/b"], &["a/b/c", "a/b/../b"], &["a/b"]),
            (&["rel"], &["a/current"], &["rel"]),
            // Not there yet.
            (&["a/none/x"], &[], &["a"]),
            (&[], &["a/none/x"], &["a"]),
            (&["a/b"], &["a/b/none"], &["a/b"]),
            // Through a link, which may be retargeted or replaced.
            (&[], &["a/current"], &["a", "rel"]),
            (&["a/current"], &[], &["rel/42"]),
            // Those inside others are none of their own.
            (&["a", "a/b"], &["a/b/c", "rel/42"], &["a", "rel"]),
        ] {
            assert_eq!(collected_names(allow, roots, &[]).0, read, "{allow:?} {roots:?}");
        }
    }

    #[test]
    fn replaceable_files_get_their_rule_on_the_parent() {
        let nothing: [&str; 0] = [];
        assert_eq!(collected_names(&[], &[], &["home/etc/f"]), (vec!["home/etc".into()], vec![]));
        assert_eq!(collected_names(&[], &[], &["home/f"]), (vec![], vec!["home/f".into()]));
        assert_eq!(collected_names(&[], &[], &["home/none"]).1, nothing);
        // Through a link, which may be replaced too.
        assert_eq!(collected_names(&[], &[], &["a/linked"]).0, ["a", "home/etc"]);
    }

    #[test]
    fn filesystem_root_is_never_added_as_a_parent() {
        let places = |allow: &[&str], roots: &[&str]| {
            let of_names = |names: &[&str]| names.iter().map(PathBuf::from).collect();
            let (allow, roots) = (of_names(allow), of_names(roots));
            let (places, notes) = collect_paths(&SandboxPolicy {
                allowed_dirs: allow,
                roots,
                ..SandboxPolicy::default()
            });
            (places.read_dirs.into_iter().collect::<Vec<_>>(), notes)
        };
        for (allow, roots, read, note) in [
            (&["/no/such"][..], &[][..], &[][..], "/no/such is missing"),
            (&[], &["/no/such"], &[], "/no/such is missing"),
            (&[], &["/usr"], &["/usr"], "/usr lies directly below /"),
            // Asked for in so many words.
            (&["/"], &["/usr"], &["/"], "/ is allowed"),
        ] {
            let (open, notes) = places(allow, roots);
            assert_eq!(open, read.iter().map(PathBuf::from).collect::<Vec<_>>());
            assert!(notes.len() == 1 && notes[0].contains(note), "{notes:?}");
        }
        let config =
            SandboxPolicy { files: vec!["/etc/passwd".into()], ..SandboxPolicy::default() };
        let (places, _) = collect_paths(&config);
        assert!(places.read_dirs.is_empty() && places.files.contains(Path::new("/etc/passwd")));
    }
}
