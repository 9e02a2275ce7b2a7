//! Paths that need a Landlock rule. A rule applies to the inode, not to the path: a file or
//! directory that may be created again needs a rule on its parent directory.

use super::SandboxPolicy;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Paths with a Landlock rule. All paths exist and contain no links.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SandboxPaths {
    /// Directories below which the process can read. No directory contains another.
    pub read_dirs: BTreeSet<PathBuf>,
    /// Single files that the process can read.
    pub files: BTreeSet<PathBuf>,
    /// Directories in which the process can create sockets and remove files.
    pub socket_dirs: BTreeSet<PathBuf>,
}

/// Paths of a policy.
#[derive(Debug)]
pub struct CollectedPaths {
    pub paths: SandboxPaths,
    /// Messages to the operator.
    pub warnings: Vec<String>,
}

/// Collects the paths of a policy.
pub fn collect_paths(policy: &SandboxPolicy) -> CollectedPaths {
    let mut warnings = Vec::new();
    let mut read_dirs = BTreeSet::new();
    for dir in &policy.allowed_dirs {
        let existing = deepest_existing_dir(dir);
        match existing.filter(|found| !is_filesystem_root(found) || is_filesystem_root(dir)) {
            Some(existing) => drop(read_dirs.insert(existing)),
            None => warnings.push(missing_warning(dir)),
        }
    }

    // A root inside an allowed directory needs no rule of its own.
    let allowed_dirs = read_dirs.clone();
    for root in &policy.roots {
        let RootDirs { dirs, warning } = dirs_above_root(root, &allowed_dirs);
        read_dirs.extend(dirs);
        warnings.extend(warning);
    }

    let mut files = BTreeSet::new();
    for file in &policy.files {
        add_file(file, policy.home.as_deref(), &mut read_dirs, &mut files);
    }

    if read_dirs.contains(Path::new("/")) {
        warnings.push("the sandbox does not restrict reading: / is allowed".to_owned());
    }
    let socket_dirs = policy
        .sockets
        .iter()
        .filter_map(|socket| deepest_existing_dir(socket.parent()?))
        .collect();
    CollectedPaths {
        paths: SandboxPaths {
            read_dirs: outermost_dirs(&read_dirs),
            files,
            socket_dirs,
        },
        warnings,
    }
}

/// Adds a file that may be replaced: its directory, or the file alone if the directory holds files of
/// other programs.
fn add_file(
    file: &Path,
    home: Option<&Path>,
    read_dirs: &mut BTreeSet<PathBuf>,
    files: &mut BTreeSet<PathBuf>,
) {
    // A link to the file may be replaced, for example in a mounted ConfigMap of Kubernetes.
    let link_dir = file.parent().and_then(|dir| dir.canonicalize().ok());
    read_dirs.extend(link_dir.filter(|dir| !is_shared_dir(dir, home)));

    let Ok(real_file) = file.canonicalize() else {
        return;
    };
    match real_file.parent().filter(|dir| !is_shared_dir(dir, home)) {
        Some(dir) => drop(read_dirs.insert(dir.to_owned())),
        None => drop(files.insert(real_file)),
    }
}

/// Returns the directories that no other directory contains.
fn outermost_dirs(dirs: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    dirs.iter()
        .filter(|dir| !dir.ancestors().skip(1).any(|above| dirs.contains(above)))
        .cloned()
        .collect()
}

/// Directories that a root needs.
#[derive(Default)]
struct RootDirs {
    dirs: Vec<PathBuf>,
    warning: Option<String>,
}

/// Returns the parent directories of a root's configured path and of its real path. Returns none if
/// an allowed directory contains the root.
fn dirs_above_root(root: &Path, allowed: &BTreeSet<PathBuf>) -> RootDirs {
    let real = root.canonicalize().ok();
    let is_allowed = real
        .iter()
        .flat_map(|real| real.ancestors())
        .any(|dir| allowed.contains(dir));
    if is_allowed {
        return RootDirs::default();
    }

    let configured = root
        .file_name()
        .and_then(|_| root.parent())
        .and_then(deepest_existing_dir);
    let target = real.as_deref().and_then(Path::parent).map(Path::to_owned);
    let mut dirs: Vec<_> = [configured, target]
        .into_iter()
        .flatten()
        .filter(|dir| !is_filesystem_root(dir))
        .collect();

    let warning = match real {
        // A rule on `/` for a single root would open the whole filesystem.
        Some(real) if real.ancestors().count() <= 2 => {
            dirs.push(real);
            Some(not_recreatable_warning(root))
        }
        None if dirs.is_empty() => Some(missing_warning(root)),
        _ => None,
    };
    RootDirs { dirs, warning }
}

/// Returns the directory, or its nearest ancestor that exists, without links.
pub fn deepest_existing_dir(dir: &Path) -> Option<PathBuf> {
    dir.ancestors()
        .find_map(|dir| dir.canonicalize().ok().filter(|dir| dir.is_dir()))
}

fn is_filesystem_root(dir: &Path) -> bool {
    dir.parent().is_none()
}

/// Whether a directory holds files of other programs too: `/`, a directory directly below `/`, or
/// the home directory.
fn is_shared_dir(dir: &Path, home: Option<&Path>) -> bool {
    let is_home = home
        .and_then(|home| home.canonicalize().ok())
        .is_some_and(|home| home == dir);
    is_home || dir.ancestors().count() <= 2
}

fn missing_warning(dir: &Path) -> String {
    format!(
        "{} does not exist, nor does a directory above it except /; create it and restart the daemon",
        dir.display()
    )
}

fn not_recreatable_warning(root: &Path) -> String {
    format!(
        "{} is directly below /; if you remove and create it again, restart the daemon",
        root.display()
    )
}

#[cfg(test)]
mod tests {
    use super::{CollectedPaths, SandboxPolicy, collect_paths};
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};

    /// Collects the paths of a policy below a temporary directory. Returns the readable directories
    /// and files, relative to the temporary directory.
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
        let below_top = |dirs: &[&str]| dirs.iter().map(|dir| top.join(dir)).collect();
        let policy = SandboxPolicy {
            allowed_dirs: below_top(allow),
            roots: below_top(roots),
            files: below_top(files),
            sockets: vec![top.join("run/s")],
            home: Some(top.join("home")),
            ..SandboxPolicy::default()
        };
        let CollectedPaths {
            paths: collected,
            warnings,
        } = collect_paths(&policy);
        assert_eq!(warnings, [""; 0]);
        assert_eq!(collected.socket_dirs, [top.join("run")].into());
        let names = |paths: std::collections::BTreeSet<PathBuf>| {
            let name = |p: PathBuf| p.strip_prefix(&top).expect("below").display().to_string();
            paths.into_iter().map(name).collect()
        };
        (names(collected.read_dirs), names(collected.files))
    }

    #[test]
    fn recreatable_dirs_get_their_rule_on_the_parent() {
        for (allow, roots, read) in [
            (&["a/b"][..], &[][..], &["a/b"][..]),
            (&[], &["a/b"], &["a"]),
            (&[], &["a/b/c"], &["a/b"]),
            // Inside an allowed directory, by different spellings.
            (&["a/b"], &["a/b"], &["a/b"]),
            (&["a/b"], &["a/b/c", "a/b/../b"], &["a/b"]),
            (&["rel"], &["a/current"], &["rel"]),
            // Missing directories.
            (&["a/none/x"], &[], &["a"]),
            (&[], &["a/none/x"], &["a"]),
            (&["a/b"], &["a/b/none"], &["a/b"]),
            // Through a link, which may be retargeted or replaced.
            (&[], &["a/current"], &["a", "rel"]),
            (&["a/current"], &[], &["rel/42"]),
            // Directories inside others need no rule.
            (&["a", "a/b"], &["a/b/c", "rel/42"], &["a", "rel"]),
        ] {
            assert_eq!(
                collected_names(allow, roots, &[]).0,
                read,
                "{allow:?} {roots:?}"
            );
        }
    }

    #[test]
    fn replaceable_files_get_their_rule_on_the_parent() {
        let nothing: [&str; 0] = [];
        assert_eq!(
            collected_names(&[], &[], &["home/etc/f"]),
            (vec!["home/etc".into()], vec![])
        );
        assert_eq!(
            collected_names(&[], &[], &["home/f"]),
            (vec![], vec!["home/f".into()])
        );
        assert_eq!(collected_names(&[], &[], &["home/none"]).1, nothing);
        // Through a link, which may be replaced too.
        assert_eq!(
            collected_names(&[], &[], &["a/linked"]).0,
            ["a", "home/etc"]
        );
    }

    #[test]
    fn filesystem_root_is_never_added_as_a_parent() {
        let collect = |allow: &[&str], roots: &[&str]| {
            let to_paths = |names: &[&str]| names.iter().map(PathBuf::from).collect();
            let (allow, roots) = (to_paths(allow), to_paths(roots));
            let collected = collect_paths(&SandboxPolicy {
                allowed_dirs: allow,
                roots,
                ..SandboxPolicy::default()
            });
            (
                collected.paths.read_dirs.into_iter().collect::<Vec<_>>(),
                collected.warnings,
            )
        };
        for (allow, roots, read, warning) in [
            (
                &["/no/such"][..],
                &[][..],
                &[][..],
                "/no/such does not exist",
            ),
            (&[], &["/no/such"], &[], "/no/such does not exist"),
            (&[], &["/usr"], &["/usr"], "/usr is directly below /"),
            // Explicitly allowed.
            (&["/"], &["/usr"], &["/"], "/ is allowed"),
        ] {
            let (read_dirs, warnings) = collect(allow, roots);
            assert_eq!(
                read_dirs,
                read.iter().map(PathBuf::from).collect::<Vec<_>>()
            );
            assert!(
                warnings.len() == 1 && warnings[0].contains(warning),
                "{warnings:?}"
            );
        }
        let policy = SandboxPolicy {
            files: vec!["/etc/passwd".into()],
            ..SandboxPolicy::default()
        };
        let collected = collect_paths(&policy).paths;
        assert!(
            collected.read_dirs.is_empty() && collected.files.contains(Path::new("/etc/passwd"))
        );
    }
}
