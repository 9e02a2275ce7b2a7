//! Packages as files on this machine. [`pull_package`] writes the files of a daemon's package to a
//! directory, [`pull_skill`] those of a skill of an MCP server or a site, and [`verify_dir`] compares
//! the directory with its checksum file.
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

mod checksum_file;
mod copy_package;
mod dir_scan;
mod file_reader;
mod package_hash;
mod package_list;
mod package_store;
mod packages_dir;
mod source_package;
mod staging_dir;
mod target_dir;

pub use checksum_file::CHECKSUM_FILE;
pub use copy_package::{CopyRequest, copy_package};
pub use dir_scan::{DifferenceKind, DirDifference};
pub use package_hash::hash_package;
pub use package_store::{PackageCopy, PackageStore};
pub use packages_dir::{PackagesDir, is_pulled_copy};
pub use source_package::pull_skill;

use crate::session::ToolError;
use crate::{CallError, Client, error_reason};
use caproot_core::backoff::Backoff;
use caproot_core::lock::{ApprovedFiles, FileDifference, FilesError};
use caproot_core::proto::caproot::v1::{ErrorReason, SelectedCapabilityRoot};
use caproot_core::wire::handle::encode_path;
use caproot_core::wire::{ContentDigest, FileChecksum};
use checksum_file::ChecksumFile;
use dir_scan::ScanDepth;
use file_reader::{FileReader, FileSink};
use futures_util::{StreamExt as _, stream};
use package_list::PackageList;
use source_package::SourcePackage;
use staging_dir::StagingDir;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use target_dir::{ScannedTarget, TargetDir};

/// File that each skill has. A package without it is a plugin.
const SKILL_FILE: &str = "SKILL.md";
/// How often a pull starts again if the package or the directory changes in the meantime.
const MAX_ATTEMPTS: u32 = 5;
/// Delays before further attempts, in which the package may settle.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(100);
const LONGEST_RETRY_DELAY: Duration = Duration::from_millis(400);
/// Maximum number of files in a message.
const MAX_NAMED_FILES: usize = 3;
/// Files that are read at the same time.
const CONCURRENT_READS: usize = 8;

/// Package, directory and limits of a pull.
#[derive(Debug, Clone, PartialEq)]
pub struct PullRequest {
    /// Root that listed the package. Not used for a skill of an MCP server or a site.
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
    pub approved: Option<Vec<ApprovedFiles>>,
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

    fn location(&self) -> PackageLocation<'_> {
        PackageLocation {
            root: &self.root,
            package: &self.package,
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

/// Failure of a pull. Unless the failure is in the removal of the old files, the directory is
/// unchanged.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// A call failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The source of a skill does not return its files.
    #[error("{}", .0.sentence())]
    Source(ToolError),
    /// The list or a file of the daemon is not valid.
    #[error("invalid response from the daemon: {0}")]
    InvalidResponse(String),
    /// The package exceeds a limit of the request.
    #[error("the package has more than {0}; raise the limit if you trust the package")]
    TooLarge(String),
    /// The daemon serves no file of the package.
    #[error("the daemon serves no file of this package")]
    NoFiles,
    /// The daemon does not serve these files of a plugin, which may do something else without them.
    #[error(
        "the daemon does not serve {} of the plugin, so nothing is written: {}",
        if .0.len() == 1 { "a file" } else { "files" },
        .0.join(", ")
    )]
    Withheld(Vec<String>),
    /// The daemon's list is incomplete.
    #[error("a limit of the daemon omits files of the package, so the package cannot be pulled")]
    Truncated,
    /// A file has a component that a pull never writes: `.git`, `.hg` or `.svn` in any letter case,
    /// or a name that begins with `..`.
    #[error(
        "the package has the file {0:?}, and a pull never writes .git, .hg, .svn or a name that \
         begins with `..`; move the file out of the package"
    )]
    ForbiddenName(String),
    /// The package has the checksum file of a pull.
    #[error("the package is a copy that a pull made; pull the skill that was copied")]
    PulledCopy,
    /// No lock can approve the files of the package.
    #[error("the package cannot be approved: it {0}")]
    Unapprovable(#[from] FilesError),
    /// The lock does not have these files of the package.
    #[error("the lock does not approve the package: {}", describe_differences(.0))]
    NotApproved(Vec<FileDifference>),
    /// The daemon cannot send a file.
    #[error(
        "the daemon has no digest of {0}: the file is over its limit max_file_bytes, or changes all the \
         time"
    )]
    NoDigest(String),
    /// The package or the directory changed during each attempt.
    #[error(
        "the package or the directory changed during each of {MAX_ATTEMPTS} attempts; try again later"
    )]
    KeepsChanging,
    /// The directory has files that are not from a pull, or that changed since.
    #[error("{} in the directory not as the last pull wrote them", count_files(.0.len()))]
    Conflicts(Vec<DirDifference>),
    /// The directory holds another package.
    #[error("the directory holds another package, {0}")]
    OtherPackage(String),
    /// The package does not have the file that the program runs.
    #[error("{}", describe_unlisted(.name, *.is_dir))]
    NotListed {
        /// Name of the file.
        name: String,
        /// Whether the package has files below the name.
        is_dir: bool,
    },
    /// The skill has another digest than the expected one.
    #[error("the skill changed: the daemon lists {0}")]
    OtherDigest(ContentDigest),
    /// Another pull is writing the directory.
    #[error("another pull is writing {}; try again later", .0.display())]
    InUse(PathBuf),
    /// The filesystem of the directory cannot exchange two directories.
    #[error(
        "cannot use {}: its filesystem cannot replace a directory, as the overlay of a container; pull \
         into a volume, which is a filesystem of its own",
        .0.display()
    )]
    NoExchange(PathBuf),
    /// The directory cannot be used.
    #[error("cannot use {}: {reason}", .path.display())]
    Unusable {
        /// Directory or file.
        path: PathBuf,
        /// Cause.
        reason: String,
    },
    /// A file or directory cannot be read or written.
    #[error("{}: {error}", .path.display())]
    Io {
        /// File or directory.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
}

fn describe_unlisted(name: &str, is_dir: bool) -> String {
    if is_dir {
        format!("{name} is a directory of the package")
    } else {
        format!("the package has no file {name} in the daemon's list")
    }
}

/// Names the first files that differ from the approved version.
fn describe_differences(differences: &[FileDifference]) -> String {
    if differences.is_empty() {
        return "the lock has no skill of this name".to_owned();
    }
    let first = differences.iter().take(MAX_NAMED_FILES);
    let names: Vec<_> = first.map(|file| encode_path(&file.path)).collect();
    let names = names.join(", ");
    match differences.len() - differences.len().min(MAX_NAMED_FILES) {
        0 => format!("{names} differ from the approved version"),
        more => format!("{names} and {more} more differ from the approved version"),
    }
}

fn count_files(count: usize) -> String {
    if count == 1 {
        "1 file is".to_owned()
    } else {
        format!("{count} files are")
    }
}

impl PullError {
    fn io(path: &Path, error: impl Into<io::Error>) -> Self {
        Self::Io {
            path: path.to_owned(),
            error: error.into(),
        }
    }

    /// Returns a function that makes the error of a call on `path`.
    fn at<E: Into<io::Error>>(path: &Path) -> impl FnOnce(E) -> Self {
        move |error| Self::io(path, error)
    }

    fn unusable(path: &Path, reason: impl Into<String>) -> Self {
        Self::Unusable {
            path: path.to_owned(),
            reason: reason.into(),
        }
    }

    fn invalid(name: &str, reason: &str) -> Self {
        Self::InvalidResponse(format!("the file {name:?} {reason}"))
    }
}

/// Files of a package, by name.
type PackageFiles = BTreeMap<String, FileChecksum>;

/// Files that a failed attempt read, so that they need not be read again.
struct StagedFiles {
    staging: Arc<StagingDir>,
    files: PackageFiles,
}

/// Outcome of one attempt.
enum PullAttempt {
    Complete(PullReport),
    /// The package or the directory changed. Has the error for the last attempt.
    Changed(PullError),
}

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
            fs::create_dir_all(parent).map_err(PullError::at(parent))?;
        }
        let target = TargetDir::open_parent(&dir)?;
        target.reject_working_directory()?;
        target.remove_stale_staging()?;
        Ok(Arc::new(target))
    })
    .await?;

    let mut staged = None;
    let mut backoff = Backoff::new(FIRST_RETRY_DELAY, LONGEST_RETRY_DELAY);
    let mut attempt = 1;
    loop {
        match try_pull(origin, request, &target, &mut staged, report_progress).await? {
            PullAttempt::Complete(report) => return Ok(report),
            PullAttempt::Changed(error) if attempt == MAX_ATTEMPTS => return Err(error),
            PullAttempt::Changed(_) => tokio::time::sleep(backoff.next_limit()).await,
        }
        attempt += 1;
    }
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

async fn try_pull(
    origin: PackageOrigin<'_>,
    request: &PullRequest,
    target: &Arc<TargetDir>,
    staged: &mut Option<StagedFiles>,
    report_progress: &mut (dyn FnMut(PullProgress) + Send),
) -> Result<PullAttempt, PullError> {
    let listed = package_list::list_files(origin, request.location(), request.limits).await;
    let PackageList { files, withheld } = match listed {
        Err(error @ PullError::NoDigest(_)) => return Ok(PullAttempt::Changed(error)),
        outcome => outcome?,
    };
    if !withheld.is_empty() && !files.contains_key(SKILL_FILE) {
        return Err(PullError::Withheld(withheld));
    }
    package_list::check_pulled_names(&files)?;
    check_approval(request.approved.as_deref(), &files)?;

    let equal_files = request.keeps_equal_dir.then(|| files.clone());
    let local = match scan_target(target, request.replaces_conflicts, equal_files).await {
        Err(error @ PullError::KeepsChanging) => return Ok(PullAttempt::Changed(error)),
        outcome => outcome?,
    };

    let mut report = PullReport {
        files: files.len(),
        bytes: total_bytes(&files),
        written: files.keys().cloned().collect(),
        withheld,
        ..PullReport::default()
    };
    if let Some(local) = &local {
        let known = local.open.checksums.as_ref();
        let is_of_package = known.is_none_or(|known| known.package == request.package);
        if local.is_equal && is_of_package {
            report.written.clear();
            return Ok(PullAttempt::Complete(report));
        }
        check_conflicts(request, local)?;
        report.record_old_files(local, &files);
        let is_known = known.is_some_and(|known| known.files == files);
        if local.scan.differences.is_empty() && is_known && is_of_package {
            return Ok(PullAttempt::Complete(report));
        }
    }

    let plan = PullPlan {
        request,
        files,
        local,
        report,
    };
    plan.carry_out(origin, target, staged, report_progress)
        .await
}

/// Files that one attempt writes.
struct PullPlan<'a> {
    request: &'a PullRequest,
    files: PackageFiles,
    /// Existing target.
    local: Option<ScannedTarget>,
    report: PullReport,
}

impl PullPlan<'_> {
    /// Prepares the files in a staging directory, and replaces the target by the directory.
    async fn carry_out(
        mut self,
        origin: PackageOrigin<'_>,
        target: &Arc<TargetDir>,
        staged: &mut Option<StagedFiles>,
        report_progress: &mut (dyn FnMut(PullProgress) + Send),
    ) -> Result<PullAttempt, PullError> {
        let files = &self.files;
        let local = self.local.as_ref();
        let checksums = ChecksumFile::new(&self.request.package, files.clone()).to_text()?;
        let staging = Arc::new(StagingDir::create(target)?);
        let mut complete = PackageFiles::new();
        let missing = link_known_files(&staging, files, local, staged.as_ref(), &mut complete);
        self.report.read_files = missing.len();

        let reader = PackageReader {
            origin,
            location: self.request.location(),
            staging: &staging,
        };
        let read = reader
            .read_files(&missing, &mut complete, report_progress)
            .await;
        *staged = Some(StagedFiles {
            staging: staging.clone(),
            files: complete,
        });
        let confirmed = match read {
            Ok(()) => {
                confirm_list(origin, self.request.location(), self.request.limits, files).await
            }
            Err(error) => Err(error),
        };
        match confirmed {
            Err(error) if is_concurrent_change(&error) => return Ok(PullAttempt::Changed(error)),
            outcome => outcome?,
        }

        let Self {
            request,
            local,
            mut report,
            ..
        } = self;
        let replaced = target.clone();
        let keeps_extra = !request.replaces_conflicts;
        report.is_replaced = run_blocking(move || {
            staging.write_checksum_file(&checksums)?;
            replaced.replace(&staging, local.as_ref(), keeps_extra)
        })
        .await?;
        Ok(if report.is_replaced {
            PullAttempt::Complete(report)
        } else {
            PullAttempt::Changed(PullError::KeepsChanging)
        })
    }
}

/// Lists the package again. If both lists agree, each file had its digest when the first list ended.
async fn confirm_list(
    origin: PackageOrigin<'_>,
    location: PackageLocation<'_>,
    limits: PullLimits,
    files: &PackageFiles,
) -> Result<(), PullError> {
    match package_list::list_files(origin, location, limits).await {
        Ok(current) if current.files == *files => Ok(()),
        Ok(_) | Err(PullError::NoDigest(_)) => Err(PullError::KeepsChanging),
        Err(error) => Err(error),
    }
}

/// Locks the target and compares it with its checksum file. Without a checksum file, compares it with
/// `equal_files`, too. Returns `None` if the target does not exist.
async fn scan_target(
    target: &Arc<TargetDir>,
    ignores_invalid: bool,
    equal_files: Option<PackageFiles>,
) -> Result<Option<ScannedTarget>, PullError> {
    let scanned = target.clone();
    run_blocking(move || {
        let Some(open) = scanned.open_dir(ignores_invalid)? else {
            return Ok(None);
        };
        open.lock()?;
        if !scanned.is_current(&open) {
            return Err(PullError::KeepsChanging);
        }

        open.reject_mounts()?;
        let scan = open.scan(ScanDepth::Contents)?;
        let is_equal = match equal_files {
            Some(files) if open.checksums.is_none() => open.has_files(files)?,
            _ => false,
        };
        Ok(Some(ScannedTarget {
            open,
            scan,
            is_equal,
        }))
    })
    .await
}

impl PullReport {
    /// Records the files of the directory that the pull keeps or removes.
    fn record_old_files(&mut self, local: &ScannedTarget, files: &PackageFiles) {
        let intact = intact_files(local);
        self.written
            .retain(|name| intact.get(name) != files.get(name).as_ref());

        let extra = local
            .scan
            .differences
            .iter()
            .filter(|found| found.kind == DifferenceKind::Extra);
        let old = intact.keys().copied().chain(extra.map(|found| &found.name));
        self.removed = old
            .filter(|name| !files.contains_key(*name))
            .cloned()
            .collect();
        self.removed.sort();
    }
}

/// Returns an error if there are approved versions and the package equals no approved version.
fn check_approval(
    approved: Option<&[ApprovedFiles]>,
    files: &PackageFiles,
) -> Result<(), PullError> {
    let Some(approved) = approved else {
        return Ok(());
    };
    let current = package_hash::approved_files(files)?;
    let differences = approved
        .iter()
        .map(|version| current.difference_from(version));
    match differences.min_by_key(Vec::len) {
        Some(nearest) if nearest.is_empty() => Ok(()),
        nearest => Err(PullError::NotApproved(nearest.unwrap_or_default())),
    }
}

/// Returns an error if a file of the directory would be lost, unless the request replaces conflicting
/// files. Missing files are no conflict.
fn check_conflicts(request: &PullRequest, local: &ScannedTarget) -> Result<(), PullError> {
    if request.replaces_conflicts {
        return Ok(());
    }

    let differences = local.scan.differences.iter();
    let conflicts: Vec<_> = differences
        .filter(|found| found.kind != DifferenceKind::Missing)
        .cloned()
        .collect();
    if !conflicts.is_empty() {
        return Err(PullError::Conflicts(conflicts));
    }

    match &local.open.checksums {
        Some(known)
            if known.package != request.package
                && request.replaced_package.as_ref() != Some(&known.package) =>
        {
            Err(PullError::OtherPackage(known.package.clone()))
        }
        _ => Ok(()),
    }
}

/// Returns the files of the directory that are as the last pull wrote them.
fn intact_files(local: &ScannedTarget) -> BTreeMap<&String, &FileChecksum> {
    let known = local.open.checksums.iter().flat_map(|known| &known.files);
    known
        .filter(|(name, _)| local.scan.stamps.contains_key(*name))
        .collect()
}

/// Directory of a linked file.
#[derive(Debug, Clone, Copy)]
enum FileOrigin {
    Target,
    Staged,
}

/// Links files that the directory or the last attempt has. Adds the files of the last attempt to
/// `complete`. Returns the files to read.
///
/// Each file is linked at most once, so that files with equal content are separate files.
fn link_known_files(
    staging: &StagingDir,
    files: &PackageFiles,
    local: Option<&ScannedTarget>,
    staged: Option<&StagedFiles>,
    complete: &mut PackageFiles,
) -> PackageFiles {
    let mut sources = BTreeMap::<&FileChecksum, Vec<_>>::new();
    if let Some(StagedFiles { staging, files }) = staged {
        for (name, checksum) in files {
            sources
                .entry(checksum)
                .or_default()
                .push((staging.fd(), name, FileOrigin::Staged));
        }
    }
    if let Some(local) = local {
        for (name, checksum) in intact_files(local) {
            sources
                .entry(checksum)
                .or_default()
                .push((local.open.fd(), name, FileOrigin::Target));
        }
    }

    let mut missing = PackageFiles::new();
    for (name, checksum) in files {
        let source = sources.get_mut(checksum).and_then(Vec::pop);
        // For example, a filesystem without hard links, or a file of another user.
        let linked = source.filter(|(dir, from, _)| staging.link_file(*dir, from, name).is_ok());

        match linked {
            None => {
                missing.insert(name.clone(), *checksum);
            }
            Some((.., FileOrigin::Staged)) => {
                complete.insert(name.clone(), *checksum);
            }
            // The next attempt links the file from the target again.
            Some((.., FileOrigin::Target)) => {}
        }
    }
    missing
}

/// Reader of the files of a package, from their origin into the staging directory.
#[derive(Clone, Copy)]
struct PackageReader<'a> {
    origin: PackageOrigin<'a>,
    location: PackageLocation<'a>,
    staging: &'a StagingDir,
}

impl PackageReader<'_> {
    /// Reads files, and adds each file that is complete to `complete`.
    async fn read_files(
        self,
        missing: &PackageFiles,
        complete: &mut PackageFiles,
        report_progress: &mut (dyn FnMut(PullProgress) + Send),
    ) -> Result<(), PullError> {
        let mut progress = PullProgress {
            files: 0,
            total_files: missing.len(),
        };
        // Owned names, because rustc finds no `Send` for futures that borrow them from the iterator.
        let reads = missing.clone().into_iter().map(|(name, file)| async move {
            self.read_file(&name, &file).await?;
            Ok::<_, PullError>((name, file))
        });
        let mut reads = stream::iter(reads).buffer_unordered(CONCURRENT_READS);

        report_progress(progress);
        while let Some(read) = reads.next().await {
            complete.extend([read?]);
            progress.files += 1;
            report_progress(progress);
        }
        Ok(())
    }

    /// Reads one file, in the version that was listed.
    async fn read_file(self, name: &str, file: &FileChecksum) -> Result<(), PullError> {
        let (out, path) = self.staging.create_file(name, file.executable)?;
        let client = match self.origin {
            PackageOrigin::Daemon(client) => client,
            PackageOrigin::Source(source) => return source.write_file(name, out, &path),
        };
        let reader = FileReader {
            client,
            location: self.location,
        };
        let mut sink = FileSink { out, path };
        reader.read_file(name, file, &mut sink).await
    }
}

/// Whether a read failed because the package changed after the list.
fn is_concurrent_change(error: &PullError) -> bool {
    match error {
        PullError::KeepsChanging
        | PullError::Call(CallError::ChangedDuringRead | CallError::DigestMismatch) => true,
        PullError::Call(CallError::Status(status)) => matches!(
            error_reason(status),
            Some(
                ErrorReason::PackageNotFound
                    | ErrorReason::ResourceNotFound
                    | ErrorReason::ResourceChanged
            )
        ),
        _ => false,
    }
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
