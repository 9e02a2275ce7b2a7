//! Files of a skill that a skill rarely has: a whole repository, keys and credentials.

use crate::daemon::fs::ResolvedRootDir;
use crate::daemon::fs::open_file::{find_target, open_file};
use crate::daemon::model::resource_filter::{is_secret_name, may_serve_path};
use crate::daemon::model::{DiagnosticCode, FileProblem};
use crate::lint::package::{MAX_DEPTH, MAX_ENTRIES, list_names};
use caproot_core::text::quote_words;
use caproot_core::wire::RelPath;
use rustix::fs::FileType;
use std::fmt::Write as _;

/// Maximum number of files that a message names for each reason.
const MAX_NAMED: usize = 4;
/// Maximum size of a file that is examined for a private key.
const MAX_KEY_BYTES: u64 = 64 << 10;
/// Names at the top of a repository.
const REPOSITORY_NAMES: [&[u8]; 12] = [
    b".git",
    b".hg",
    b".svn",
    b"package.json",
    b"Cargo.toml",
    b"go.mod",
    b"pyproject.toml",
    b"setup.py",
    b"pom.xml",
    b"build.gradle",
    b"composer.json",
    b"Gemfile",
];
/// Names of files with credentials, which are served.
const CREDENTIAL_NAMES: [&[u8]; 5] = [
    b"credentials",
    b"credentials.json",
    b"service-account.json",
    b".git-credentials",
    b".pgpass",
];

/// Counts of the files of a skill.
struct ContentCount<'a> {
    root: &'a ResolvedRootDir,
    package: &'a RelPath,
    /// Names of the directories that are not served.
    skipped_dirs: &'a [Box<[u8]>],
    files: usize,
    bytes: u64,
    repository: Vec<String>,
    withheld: Vec<String>,
    credentials: Vec<String>,
    /// Number of entries that were seen.
    entries: usize,
}

/// Returns the problem of the files of a package, if some are unusual. `skipped_dirs` has the names of
/// the directories that are not served.
pub fn content_problem(
    root: &ResolvedRootDir,
    package: &RelPath,
    skipped_dirs: &[Box<[u8]>],
) -> Option<FileProblem> {
    let mut count = ContentCount {
        root,
        package,
        skipped_dirs,
        files: 0,
        bytes: 0,
        repository: Vec::new(),
        withheld: Vec::new(),
        credentials: Vec::new(),
        entries: 0,
    };
    count.add_dir(package, 0);

    let mut why = String::new();
    let reasons = [
        (
            "the directory looks like a whole repository",
            &count.repository,
        ),
        (
            "never served, because they may hold keys or passwords",
            &count.withheld,
        ),
        (
            "served, although they may hold credentials",
            &count.credentials,
        ),
    ];
    for (reason, names) in reasons {
        if !names.is_empty() {
            let shown = names.iter().take(MAX_NAMED).map(String::as_str);
            // Writing to a string cannot fail.
            let _ = write!(why, "; {reason}: {}", quote_words(shown));
        }
    }
    if why.is_empty() {
        return None;
    }

    let ContentCount { files, bytes, .. } = count;
    let over = if count.entries > MAX_ENTRIES {
        "over "
    } else {
        ""
    };
    let why = format!("{over}{files} files with {bytes} bytes are files of the skill{why}");
    Some(FileProblem::note(DiagnosticCode::UnusualContent, why))
}

impl ContentCount<'_> {
    fn add_dir(&mut self, dir: &RelPath, depth: usize) {
        for (name, kind) in list_names(self.root, dir).unwrap_or_default() {
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                return;
            }
            let Some(path) = dir.join(&name) else {
                continue;
            };
            let shown = path
                .strip_prefix(self.package)
                .unwrap_or_default()
                .to_string();

            if depth == 0 && REPOSITORY_NAMES.contains(&&*name) {
                self.repository.push(shown.clone());
            }
            match kind {
                FileType::RegularFile => self.add_file(&path, &name, shown),
                // A directory that is not served has no files of the skill.
                FileType::Directory
                    if depth < MAX_DEPTH
                        && RelPath::new(&name)
                            .is_some_and(|name| may_serve_path(&name, self.skipped_dirs)) =>
                {
                    self.add_dir(&path, depth + 1);
                }
                _ => {}
            }
        }
    }

    fn add_file(&mut self, path: &RelPath, name: &[u8], shown: String) {
        if is_secret_name(name) {
            self.withheld.push(shown);
            return;
        }
        let ResolvedRootDir {
            snapshot,
            path: root,
        } = self.root;
        let Ok(target) = find_target(snapshot, root, path) else {
            return;
        };

        let size = u64::try_from(target.stat.st_size).unwrap_or_default();
        if size <= MAX_KEY_BYTES
            && open_file(snapshot, root, path).is_ok_and(|file| file.begins_with_private_key())
        {
            self.withheld.push(shown);
            return;
        }

        self.files += 1;
        self.bytes += size;
        if CREDENTIAL_NAMES.contains(&name) {
            self.credentials.push(shown);
        }
    }
}
