//! Packages as files on this machine. [`pull_package`] writes the files of a daemon's package to a
//! directory, [`pull_fetched`] those of a package that another source fetches, and [`verify_dir`]
//! compares the directory with its checksum file.
//!
//! A pull writes the package next to the directory and exchanges both with one system call. So the
//! directory has one whole state of the package at each moment, even if the pull is killed. Files
//! that the directory already has are linked, not read again.
//!
//! ```
//! use caproot_client::{Client, ClientCredentials};
//! use caproot_client::pull::{PullRequest, pull_package, verify_dir};
//! use std::time::Duration;
//! # mod demo { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/support/demo.rs")); }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let address = demo::start_demo_daemon().await.to_string();
//! # let scratch = tempfile::tempdir()?;
//! # let dir = scratch.path().join("triage-logs");
//! let endpoint = address.parse()?;
//! let credentials = ClientCredentials::default();
//! let mut client = Client::connect(&endpoint, &credentials, Duration::from_secs(30)).await?;
//! let published = client.list_roots().await?.roots;
//! let root = published[0].selected_capability_root.clone().ok_or("no root")?;
//!
//! let request = PullRequest::new(root, "skill://demo/triage-logs", &dir);
//! let report = pull_package(&client, &request, &mut |_| {}).await?;
//! assert_eq!(report.written, ["SKILL.md", "references/patterns.md"]);
//! assert!(verify_dir(&dir)?.differences.is_empty());
//!
//! // A second pull reads no file.
//! let report = pull_package(&client, &request, &mut |_| {}).await?;
//! assert!(report.written.is_empty());
//! # Ok(())
//! # }
//! ```

mod attempt;
mod checksum_file;
mod copy_package;
mod dir_scan;
mod file_reader;
mod package_hash;
mod package_list;
mod package_reader;
mod package_store;
mod packages_dir;
mod pull_error;
mod repeat;
mod source_package;
mod staging_dir;
mod target_dir;

pub use checksum_file::CHECKSUM_FILE;
pub use copy_package::{CopyRequest, copy_package};
pub use dir_scan::{DifferenceKind, DirDifference};
pub use package_hash::{HashedPackage, hash_plugin, hash_skill};
pub use package_store::{PackageCopy, PackageStore};
pub use packages_dir::{PackagesDir, is_pulled_copy};
pub use pull_error::PullError;
pub use source_package::{SourcePackage, pull_fetched};

use crate::Client;
use crate::trust::ApprovedVersions;
use attempt::try_pull;
use caproot_core::proto::caproot::v1::SelectedCapabilityRoot;
use caproot_core::wire::FileChecksum;
use checksum_file::ChecksumFile;
use dir_scan::ScanDepth;
use package_list::OriginPackage;
use pull_error::SystemResult as _;
use repeat::{MAX_ATTEMPTS, repeat_attempt};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use target_dir::TargetDir;
use tokio::sync::Mutex;

/// Package, directory and limits of a pull.
#[derive(Debug, Clone, PartialEq)]
pub struct PullRequest {
    /// Root that listed the package. Not used for a package that another source fetches.
    pub root: SelectedCapabilityRoot,
    /// Handle of the package, exactly as listed.
    pub package: String,
    /// Directory that the package is written to. The pull creates the directory and those above it.
    pub dir: PathBuf,
    /// Limits of the package.
    pub limits: PullLimits,
    /// Whether the pull replaces files in the directory that are not from a pull, or that changed
    /// since. Otherwise such files are an error.
    pub replaces_conflicts: bool,
    /// Whether a directory that is not from a pull, and has exactly the files of the package, is left as
    /// it is. Otherwise its files are conflicts.
    pub keeps_equal_dir: bool,
    /// Handle of another package that the directory may hold. The pull replaces its files if they are as
    /// a pull wrote them.
    pub replaced_package: Option<String>,
    /// Approved versions of the package. If set, a package with other files is an error.
    pub approved: Option<ApprovedVersions>,
}

/// Package of a root.
#[derive(Debug, Clone, Copy)]
pub struct PackageLocation<'a> {
    /// Root that listed the package.
    pub root: &'a SelectedCapabilityRoot,
    /// Handle of the package, exactly as listed.
    pub package: &'a str,
}

impl PullRequest {
    /// Creates a request with the default limits that replaces no conflicting files.
    #[must_use]
    pub fn new(
        root: SelectedCapabilityRoot,
        package: impl Into<String>,
        dir: impl Into<PathBuf>,
    ) -> Self {
        Self {
            root,
            package: package.into(),
            dir: dir.into(),
            limits: PullLimits::default(),
            replaces_conflicts: false,
            keeps_equal_dir: false,
            replaced_package: None,
            approved: None,
        }
    }
}

/// Limits of a pulled package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullLimits {
    /// Maximum number of files; 10,000 by default.
    pub max_files: usize,
    /// Maximum size of all files in bytes; 1 GiB by default.
    pub max_bytes: u64,
}

impl Default for PullLimits {
    fn default() -> Self {
        Self {
            max_files: 10_000,
            max_bytes: 1 << 30,
        }
    }
}

/// Result of a pull. A file is named by its handle without the handle of the package, such as
/// `references/the%20steps.md`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PullReport {
    /// Files of the package.
    pub files: usize,
    /// Size of these files.
    pub bytes: u64,
    /// Files that the directory did not have with this name, content and mode, in order.
    pub written: Vec<String>,
    /// Files and directories that the directory had and the package does not have, in order.
    pub removed: Vec<String>,
    /// Files of a skill that the daemon never serves, because they may hold secrets, in order.
    pub withheld: Vec<String>,
    /// Files that were read from the daemon. The others were linked.
    pub read_files: usize,
    /// Whether the directory was replaced.
    pub is_replaced: bool,
}

/// Progress of the current attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullProgress {
    /// Files read so far.
    pub files: usize,
    /// Files to read.
    pub total_files: usize,
}

/// Comparison of a directory with its checksum file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirVerification {
    /// Handle of the package in the directory.
    pub package: String,
    /// Files of the package.
    pub files: usize,
    /// Size of these files.
    pub bytes: u64,
    /// Differences by name. At most 1,000: the comparison ends after so many.
    pub differences: Vec<DirDifference>,
}

/// Files of a package, by name.
type PackageFiles = BTreeMap<String, FileChecksum>;

/// Writes a package to a directory.
///
/// The pull lists the package, reads the files that the directory does not have, checks the digest
/// of each file, and lists the package again. If both lists agree, the directory is replaced.
/// Otherwise the pull starts again, at most four times.
pub async fn pull_package(
    client: &Client,
    request: &PullRequest,
    report_progress: &mut (dyn FnMut(PullProgress) + Send),
) -> Result<PullReport, PullError> {
    pull_from(PackageOrigin::Daemon(client), request, report_progress).await
}

/// Origin of the files of a package.
#[derive(Clone, Copy)]
enum PackageOrigin<'a> {
    Daemon(&'a Client),
    Source(&'a SourcePackage),
}

/// Writes the package of an origin to a directory.
async fn pull_from(
    origin: PackageOrigin<'_>,
    request: &PullRequest,
    report_progress: &mut (dyn FnMut(PullProgress) + Send),
) -> Result<PullReport, PullError> {
    let dir = request.dir.clone();
    let target = run_blocking(move || {
        if let Some(parent) = dir.parent() {
            fs::create_dir_all(parent).at(parent)?;
        }
        let target = TargetDir::open_parent(&dir)?;
        target.reject_working_directory()?;
        target.remove_stale_staging()?;
        Ok(Arc::new(target))
    })
    .await?;

    let package = OriginPackage {
        origin,
        location: PackageLocation {
            root: &request.root,
            package: &request.package,
        },
        limits: request.limits,
    };
    // The attempts follow one another, so the lock is always free.
    let state = Mutex::new((None, report_progress));
    repeat_attempt(|| async {
        let (staged, report_progress) = &mut *state.lock().await;
        try_pull(package, request, &target, staged, report_progress).await
    })
    .await
}

/// Compares a directory with its checksum file. If a pull replaces the directory in the meantime, the
/// comparison starts again, at most four times. Blocks on the disk.
pub fn verify_dir(dir: &Path) -> Result<DirVerification, PullError> {
    let target = TargetDir::open_parent(dir)?;
    for _ in 0..MAX_ATTEMPTS {
        let Some(open) = target.open_dir(false)? else {
            return Err(PullError::unusable(dir, "no such directory"));
        };
        let Some(checksums) = &open.checksums else {
            let reason = format!("the directory has no {CHECKSUM_FILE}, so it is not from a pull");
            return Err(PullError::unusable(dir, reason));
        };

        let scan = open.scan(ScanDepth::Contents)?;
        if target.is_current(&open) {
            return Ok(DirVerification {
                package: checksums.package.clone(),
                files: checksums.files.len(),
                bytes: total_bytes(&checksums.files),
                differences: scan.differences,
            });
        }
    }

    Err(PullError::unusable(
        dir,
        format!("pulls replaced it during {MAX_ATTEMPTS} comparisons"),
    ))
}

fn total_bytes(files: &PackageFiles) -> u64 {
    files
        .values()
        .map(|file| file.bytes)
        .fold(0, u64::saturating_add)
}

/// Runs work that blocks on the disk on another thread.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, PullError> + Send + 'static,
) -> Result<T, PullError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(PullError::io(Path::new("."), io::Error::other(error))))
}
