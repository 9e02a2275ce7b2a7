//! Paths that need a Landlock rule. A rule applies to the inode, not to the path: a file or
//! directory that may be created again needs a rule on its parent directory.

use super::SandboxPolicy;
use std::collections::BTreeSet;
use std::mem::take;
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
    /// Messages to the operator.
    pub warnings: Vec<String>,
}

/// Collects the paths of a policy.
pub fn collect_paths(policy: &SandboxPolicy) -> SandboxPaths {
    let mut paths = SandboxPaths::default();
    for dir in &policy.allowed_dirs {
        let existing = deepest_existing_dir(dir);
        match existing.filter(|found| !is_filesystem_root(found) || is_filesystem_root(dir)) {
            Some(existing) => drop(paths.read_dirs.insert(existing)),
            None => paths.warnings.push(missing_warning(dir)),
        }
    }

    // A root inside an allowed directory needs no rule of its own.
    let allowed_dirs = paths.read_dirs.clone();
    for root in &policy.roots {
        paths.add_root(root, &allowed_dirs);
    }
    for file in &policy.files {
        paths.add_file(file, policy.home.as_deref());
    }

    if paths.read_dirs.contains(Path::new("/")) {
        let warning = "the sandbox does not restrict reading: / is allowed";
        paths.warnings.push(warning.to_owned());
    }
    // A directory inside another one needs no rule of its own.
    let dirs = take(&mut paths.read_dirs);
    let is_inner = |dir: &&PathBuf| dir.ancestors().skip(1).any(|above| dirs.contains(above));
    paths.read_dirs = dirs.iter().filter(|dir| !is_inner(dir)).cloned().collect();
    let sockets = policy.sockets.iter();
    paths.socket_dirs = sockets
        .filter_map(|socket| deepest_existing_dir(socket.parent()?))
        .collect();
    paths
}

impl SandboxPaths {
    /// Adds a file that may be replaced: its directory, or the file alone if the directory holds files
    /// of other programs.
    fn add_file(&mut self, file: &Path, home: Option<&Path>) {
        // A link to the file may be replaced, for example in a mounted ConfigMap of Kubernetes.
        let link_dir = file.parent().and_then(|dir| dir.canonicalize().ok());
        self.read_dirs
            .extend(link_dir.filter(|dir| !is_shared_dir(dir, home)));

        let Ok(real_file) = file.canonicalize() else {
            return;
        };
        match real_file.parent().filter(|dir| !is_shared_dir(dir, home)) {
            Some(dir) => drop(self.read_dirs.insert(dir.to_owned())),
            None => drop(self.files.insert(real_file)),
        }
    }

    /// Adds the parent directories of a root's configured path and of its real path. Adds none if an
    /// allowed directory contains the root.
    fn add_root(&mut self, root: &Path, allowed: &BTreeSet<PathBuf>) {
        let real = root.canonicalize().ok();
        let mut above_real = real.iter().flat_map(|real| real.ancestors());
        if above_real.any(|dir| allowed.contains(dir)) {
            return;
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

        match real {
            // A rule on `/` for a single root would open the whole filesystem.
            Some(real) if real.ancestors().count() <= 2 => {
                dirs.push(real);
                self.warnings.push(format!(
                    "{} is directly below /; if you remove and create it again, restart the daemon",
                    root.display()
                ));
            }
            None if dirs.is_empty() => self.warnings.push(missing_warning(root)),
            _ => {}
        }
        self.read_dirs.extend(dirs);
    }
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

#[cfg(test)]
mod tests {
    use super::{SandboxPolicy, collect_paths};
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
        let collected = collect_paths(&policy);
        assert_eq!(collected.warnings, [""; 0]);
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
                collected.read_dirs.into_iter().collect::<Vec<_>>(),
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
        let collected = collect_paths(&policy);
        assert!(
            collected.read_dirs.is_empty() && collected.files.contains(Path::new("/etc/passwd"))
        );
    }
}
