//! Comparison of a package on the disk with its approved versions. Reads at most the approved files: an
//! author cannot make the comparison read more than the operator approved. Blocks.

use super::allowed_dirs::ResolvedRootDir;
use super::content;
use super::file_page::FileReadError;
use super::open_file::OpenFile;
use super::package::{ReadRules, ResolvedPackage};
use super::package_files::{PackageFileWalk, PackageObserver, skip_unavailable};
use super::package_walk::WalkLimits;
use crate::daemon::model::FileVersion;
use caproot_core::lock::ApprovedFiles;
use caproot_core::wire::limits::MAX_HANDLE_BYTES;
use caproot_core::wire::{ContentDigest, RelPath};
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio_util::sync::CancellationToken;

/// Most differences that are reported.
pub const MAX_DIFFERENCES: usize = 3;
/// Most files of a package that stay open from the comparison of names to the comparison of contents.
const MAX_OPEN_FILES: usize = 16;
/// Most entries without an approved file, such as empty directories, before a package counts as
/// changed.
const MAX_OTHER_ENTRIES: usize = 1_000;

/// Package to compare.
#[derive(Debug)]
pub struct PackageComparisonRequest<'a> {
    /// Package, as walked from the root.
    pub package: &'a RelPath,
    /// Whether the package is compared as a plugin: files that declare components are digested although they
    /// are withheld, and another withheld file is a difference.
    pub is_plugin: bool,
    /// Approved versions that the package may have; not empty.
    pub versions: &'a [ApprovedVersion<'a>],
    /// Maximum depth of directories below the package.
    pub max_depth: usize,
    /// Rules for reading files.
    pub rules: ReadRules<'a>,
    /// Files of an approved version that were compared before.
    pub known: Option<KnownFiles<'a>>,
    /// Digests of files that were read before, if the package differed.
    pub known_digests: &'a [KnownFileDigest],
    /// Bytes that may be read.
    pub read_budget: &'a ReadBudget,
}

/// Approved version of a package.
#[derive(Debug, Clone, Copy)]
pub struct ApprovedVersion<'a> {
    /// Digest of the package.
    pub content_digest: ContentDigest,
    /// Approved files.
    pub files: &'a ApprovedFiles,
}

/// Digest of a version of a file.
pub type KnownFileDigest = (FileVersion, ContentDigest);

/// Bytes that comparisons may read. An author who changes files all the time cannot make the daemon read
/// more.
#[derive(Debug, Default)]
pub struct ReadBudget(AtomicU64);

impl ReadBudget {
    /// Sets the bytes that may be read.
    pub fn refill(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    /// Takes bytes if the budget has them.
    fn take(&self, bytes: u64) -> bool {
        let left = |left: u64| left.checked_sub(bytes);
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, left)
            .is_ok()
    }
}

/// Files of an approved version, as they were compared before.
#[derive(Debug, Clone, Copy)]
pub struct KnownFiles<'a> {
    /// Approved files.
    pub files: &'a ApprovedFiles,
    /// Version of each file at the time of the comparison.
    pub versions: &'a [FileVersion],
}

/// Result of a comparison.
#[derive(Debug)]
pub struct PackageComparison {
    /// Whether a link was followed. Changes of its target cause no event.
    pub has_links: bool,
    /// Digests of the files that were read, if the package differs.
    pub digests: Box<[KnownFileDigest]>,
    /// Approved version that the package has, or the first differences from one.
    pub result: Result<MatchedVersion, Vec<PackageDifference>>,
}

/// Approved version that a package has.
#[derive(Debug)]
pub struct MatchedVersion {
    /// Digest of the package.
    pub content_digest: ContentDigest,
    /// Version of each approved file on the disk, in the order of the approved files.
    pub file_versions: Box<[FileVersion]>,
}

/// Difference of a package from an approved version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PackageDifference {
    /// The approved version does not have the file.
    Added(RelPath),
    /// Only the approved version has the file.
    Removed(RelPath),
    /// The content, the size or the mode differs.
    Changed(RelPath),
    /// A file of a plugin cannot be compared: it may hold keys, leads out of the plugin, or cannot be read.
    Unreadable(RelPath),
    /// The approved plugin has another version.
    Version {
        /// Version in the lock.
        approved: Box<str>,
        /// Version in the manifest.
        current: Box<str>,
    },
    /// The package has too many directories without an approved file.
    TooManyEntries,
    /// The budget has no bytes for the files.
    ReadTooOften,
}

/// File on the disk.
struct FoundFile {
    path: RelPath,
    version: FileVersion,
    executable: bool,
    /// The file itself, for the first files and until the content is read.
    opened: Option<File>,
    /// `None` until the content is read.
    digest: Option<ContentDigest>,
}

/// Compares a package with its approved versions. Fails if the package cannot be read as a whole.
pub fn compare_package(
    root: &ResolvedRootDir,
    request: &PackageComparisonRequest<'_>,
    observer: &mut dyn PackageObserver,
) -> Result<PackageComparison, FileReadError> {
    let package = ResolvedPackage::resolve(root, request.package, request.rules)?;
    let mut found = FoundFiles::walk(&package, request, observer)?;

    let mut first_differences = None;
    for version in request.versions {
        // Names, sizes and modes come first, because their comparison reads no content.
        let mut differences = found.outline_differences(version.files);
        if differences.is_empty() {
            differences = found.content_differences(&package, *version, request, observer)?;
        }
        if differences.is_empty() {
            return Ok(PackageComparison {
                has_links: found.has_links,
                digests: Box::default(),
                result: Ok(MatchedVersion {
                    content_digest: version.content_digest,
                    file_versions: found.files.iter().map(|file| file.version).collect(),
                }),
            });
        }
        first_differences.get_or_insert(differences);
    }

    // The next comparison does not read files again that still have these versions.
    let files = found.files.iter();
    let digests = files.filter_map(|file| Some((file.version, file.digest?)));
    Ok(PackageComparison {
        has_links: found.has_links,
        digests: digests.collect(),
        result: Err(first_differences.unwrap_or_default()),
    })
}

/// Files of a package on the disk, sorted by path.
struct FoundFiles {
    files: Vec<FoundFile>,
    /// First files that cannot be compared.
    unreadable: Vec<RelPath>,
    has_links: bool,
    /// Whether there are more files or directories than can be approved.
    is_truncated: bool,
}

impl FoundFiles {
    /// Finds the files. Ends early if more files are found than any version has, or if several files are
    /// in no version.
    fn walk(
        package: &ResolvedPackage<'_>,
        request: &PackageComparisonRequest<'_>,
        observer: &mut dyn PackageObserver,
    ) -> Result<Self, FileReadError> {
        let versions = request.versions;
        let lens = versions.iter().map(|version| version.files.len());
        let max_files = lens.max().unwrap_or_default();
        // The directories of the files have at most this many entries.
        let entries = versions.iter().map(|version| {
            let files = version.files.iter();
            files.map(|(path, _)| path.depth()).sum::<usize>()
        });
        let limits = WalkLimits {
            entries: entries.max().unwrap_or_default() + MAX_OTHER_ENTRIES,
            depth: request.max_depth,
            path_bytes: MAX_HANDLE_BYTES,
        };

        let mut walk = PackageFileWalk::enter(package, limits, None, observer)?;
        let mut files = Vec::new();
        let mut unreadable = Vec::new();
        let mut unknown = 0;
        while let Some(path) = walk.next_file(observer)? {
            let opened = request.open(package, &path);
            let is_withheld = package.is_withheld(&opened);
            let Some(opened) = skip_unavailable(opened)? else {
                if request.is_plugin && is_withheld {
                    unreadable.push(path);
                }
                if unreadable.len() >= MAX_DIFFERENCES {
                    break;
                }
                continue;
            };

            // The watch of a file comes before the read of its content: no change is missed.
            observer.on_file(&opened);

            let mut approved = versions.iter().map(|version| version.files.get(&path));
            unknown += usize::from(approved.all(|file| file.is_none()));
            files.push(FoundFile {
                path,
                version: opened.version,
                executable: opened.executable,
                opened: (files.len() < MAX_OPEN_FILES).then_some(opened.file),
                digest: None,
            });
            if files.len() > max_files || unknown >= MAX_DIFFERENCES {
                break;
            }
        }

        // The walk is in the order of handles, but a lock has its files in the order of paths.
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self {
            files,
            unreadable,
            has_links: walk.has_links,
            is_truncated: walk.walk.is_truncated(),
        })
    }

    /// Returns the first differences in names, sizes and modes.
    fn outline_differences(&self, approved: &ApprovedFiles) -> Vec<PackageDifference> {
        let changed = self.files.iter().filter_map(|file| {
            let path = file.path.clone();
            match approved.get(&file.path) {
                None => Some(PackageDifference::Added(path)),
                Some(known) => {
                    let is_equal =
                        known.bytes == file.version.size && known.executable == file.executable;
                    (!is_equal).then_some(PackageDifference::Changed(path))
                }
            }
        });
        let unreadable = self.unreadable.iter().cloned();
        let unreadable = unreadable.map(PackageDifference::Unreadable);
        let mut differences: Vec<_> = unreadable.chain(changed).take(MAX_DIFFERENCES).collect();
        if differences.is_empty() && self.is_truncated {
            differences.push(PackageDifference::TooManyEntries);
        }

        // A walk that ended early found a difference.
        if differences.is_empty() {
            let missing = approved.iter().filter(|(path, _)| {
                let found = self.files.binary_search_by(|file| file.path.cmp(path));
                found.is_err()
            });
            let missing = missing.map(|(path, _)| PackageDifference::Removed(path.clone()));
            differences.extend(missing.take(MAX_DIFFERENCES));
        }
        differences
    }

    /// Returns the first differences in contents. The names and sizes are equal.
    fn content_differences(
        &mut self,
        package: &ResolvedPackage<'_>,
        version: ApprovedVersion<'_>,
        request: &PackageComparisonRequest<'_>,
        observer: &mut dyn PackageObserver,
    ) -> Result<Vec<PackageDifference>, FileReadError> {
        let mut differences = Vec::new();
        for (at, (path, approved)) in version.files.iter().enumerate() {
            // The found files are the approved files, in the same order.
            let Some(found) = self.files.get_mut(at) else {
                continue;
            };
            if found.digest.is_none() {
                found.digest = request.known_digest(at, path, &found.version);
            }
            if found.digest.is_none() {
                if !request.read_budget.take(found.version.size) {
                    return Ok(vec![PackageDifference::ReadTooOften]);
                }
                found.read_digest(package, request)?;
                if observer.is_cancelled() {
                    return Err(FileReadError::Failed);
                }
            }

            if found.digest != Some(approved.digest) {
                differences.push(PackageDifference::Changed(path.clone()));
                if differences.len() == MAX_DIFFERENCES {
                    break;
                }
            }
        }
        Ok(differences)
    }
}

impl FoundFile {
    /// Reads the content, at most the size that the file had. A file that was replaced keeps no digest.
    fn read_digest(
        &mut self,
        package: &ResolvedPackage<'_>,
        request: &PackageComparisonRequest<'_>,
    ) -> Result<(), FileReadError> {
        let file = if let Some(file) = self.opened.take() {
            file
        } else {
            match skip_unavailable(request.open(package, &self.path))? {
                // Another size or mode shows that the file was replaced.
                Some(opened)
                    if opened.version.size == self.version.size
                        && opened.executable == self.executable =>
                {
                    self.version = opened.version;
                    opened.file
                }
                _ => return Ok(()),
            }
        };

        let cancel_token = CancellationToken::new();
        let digested = content::digest_file(&file, self.version.size, &cancel_token)?;
        self.digest = digested.map(|(digest, _)| digest);
        Ok(())
    }
}

impl PackageComparisonRequest<'_> {
    fn open(
        &self,
        package: &ResolvedPackage<'_>,
        path: &RelPath,
    ) -> Result<OpenFile, FileReadError> {
        if self.is_plugin {
            package.open_to_digest(path)
        } else {
            package.open(path)
        }
    }

    /// Returns the digest of a file that was read before and has the same version now.
    fn known_digest(
        &self,
        at: usize,
        path: &RelPath,
        version: &FileVersion,
    ) -> Option<ContentDigest> {
        // An approved file on the disk may have the version that was compared.
        let known = self
            .known
            .filter(|known| known.versions.get(at) == Some(version));
        let approved = known.and_then(|known| known.files.get(path));
        approved.map(|file| file.digest).or_else(|| {
            let mut others = self.known_digests.iter();
            let known = others.find(|(known, _)| known == version);
            known.map(|(_, digest)| *digest)
        })
    }
}
