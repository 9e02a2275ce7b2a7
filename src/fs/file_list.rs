//! One page of a package's files. Each page walks the package again. Blocks.

use super::allowed_dirs::ResolvedRootDir;
use super::digest_cache::DigestCache;
use super::dirs_snapshot::identity;
use super::file_page::FileReadError;
use super::open_file::{self, OpenError, read_names, resolve_error};
use super::package::{ReadRules, ResolvedPackage};
use super::package_walk::{FileListToken, PackageWalk, WalkEntryKind, WalkLimits};
use crate::model::{DirIdentity, ResolvedPath, resource_filter};
use caproot_core::wire::{ContentDigest, RelPath, handle};
use rustix::fs::{FileType, OFlags, fstat};
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;

/// Maximum number of attempts to digest a file that changes in the meantime.
const TRIES: usize = 3;

/// Request for a page of a package's files.
#[derive(Debug)]
pub struct FileListRequest<'a> {
    /// Package, as walked from the root.
    pub package: &'a RelPath,
    /// End of the previous page.
    pub from: Option<&'a FileListToken>,
    /// Limits of the walk.
    pub limits: WalkLimits,
    /// Maximum number of files.
    pub max_files: usize,
    /// Maximum sum of the lengths of the encoded paths, plus `bytes_per_file` for each file.
    pub max_bytes: usize,
    /// Bytes that a file takes of `max_bytes` in addition to its path.
    pub bytes_per_file: usize,
    /// Maximum size of files to digest; `None` to digest no file. A page ends early after it has
    /// digested this many bytes of files without a cached digest.
    pub max_digest_bytes: Option<u64>,
    /// Rules for reading files.
    pub rules: ReadRules<'a>,
}

/// Page of a package's files.
#[derive(Debug)]
pub struct FileListPage {
    /// Files in the byte order of their handles.
    pub files: Vec<ListedFile>,
    /// Start of the next page; `None` at the end.
    pub next: Option<FileListToken>,
    /// Whether a limit omitted entries, on this page or an earlier page.
    pub truncated: bool,
}

/// File that may be read.
#[derive(Debug)]
pub struct ListedFile {
    /// Path below the package.
    pub path: RelPath,
    /// Size in bytes.
    pub size: u64,
    /// Whether any user may execute the file.
    pub executable: bool,
    /// Digest of the whole file, and whether the file is UTF-8; `None` if the file was not
    /// digested.
    pub digest: Option<(ContentDigest, bool)>,
}

/// Lists a page of a package's files. Ends early if canceled. `NotFound` means that the package
/// does not exist.
pub fn list_files(
    root: &ResolvedRootDir,
    page: &FileListRequest<'_>,
    digests: &DigestCache,
    cancel_token: &CancellationToken,
) -> Result<FileListPage, FileReadError> {
    let package = ResolvedPackage::resolve(root, page.package, page.rules)?;

    let mut listing = FileListWalk {
        package: &package,
        page,
        digests,
        cancel_token,
        walk: PackageWalk::new(page.limits, page.from),
        files: Vec::new(),
        remaining_bytes: page.max_bytes,
        digested_bytes: 0,
        resume_after: None,
    };

    listing.enter_dir(package.real_path.clone(), RelPath::root())?;
    let next = listing.run()?;

    let truncated = match &next {
        Some(next) => next.truncated,
        None => listing.walk.is_truncated(),
    };

    Ok(FileListPage {
        files: listing.files,
        next,
        truncated,
    })
}

/// State of a page in progress.
struct FileListWalk<'a> {
    package: &'a ResolvedPackage<'a>,
    page: &'a FileListRequest<'a>,
    digests: &'a DigestCache,
    cancel_token: &'a CancellationToken,
    walk: PackageWalk<(ResolvedPath, DirIdentity)>,
    files: Vec<ListedFile>,
    /// Rest of `max_bytes`.
    remaining_bytes: usize,
    /// Number of bytes that were read for digests.
    digested_bytes: u64,
    /// Position after the last of `files`.
    resume_after: Option<FileListToken>,
}

impl FileListWalk<'_> {
    /// Walks until the page is full or the package ends.
    fn run(&mut self) -> Result<Option<FileListToken>, FileReadError> {
        while let Some((path, kind)) = self.walk.next() {
            if self.cancel_token.is_cancelled() {
                return Err(FileReadError::Failed);
            }

            let is_full = match kind {
                WalkEntryKind::File => self.push_file(path)?,
                WalkEntryKind::Link | WalkEntryKind::LinkedDirectory => {
                    self.visit_link(path, kind)?
                }
                WalkEntryKind::Directory => {
                    let dir = self
                        .walk
                        .ancestor_dirs()
                        .next_back()
                        .map(|(dir_path, _)| dir_path);
                    let name = path.file_name().unwrap_or_default();
                    if let Some(dir_path) = dir.and_then(|dir| dir.join(name)) {
                        skip_unavailable(self.enter_dir(dir_path, path))?;
                    }
                    false
                }
            };

            if is_full {
                return Ok(self.resume_after.take());
            }
        }
        Ok(None)
    }

    /// Follows a link. Returns whether the page is full.
    fn visit_link(&mut self, path: RelPath, kind: WalkEntryKind) -> Result<bool, FileReadError> {
        let found = open_file::find_target(self.package.snapshot, &self.package.real_path, &path);
        let Some(target) = skip_unavailable(found.map_err(FileReadError::from))? else {
            return Ok(false);
        };

        match (FileType::from_raw_mode(target.stat.st_mode), kind) {
            (FileType::RegularFile, WalkEntryKind::Link) => return self.push_file(path),
            (FileType::Directory, WalkEntryKind::Link)
                if self.package.may_enter(&target.real_path) =>
            {
                self.walk.requeue_link_as_dir(&path);
            }
            (FileType::Directory, WalkEntryKind::LinkedDirectory)
                if self.package.may_enter(&target.real_path) =>
            {
                skip_unavailable(self.enter_dir(target.real_path, path))?;
            }
            _ => {}
        }
        Ok(false)
    }

    /// Enters a directory, unless the directory is an ancestor of itself by a cycle of links.
    fn enter_dir(&mut self, dir_path: ResolvedPath, path: RelPath) -> Result<(), FileReadError> {
        let ReadRules {
            skipped_dirs,
            follow_links,
            ..
        } = self.page.rules;

        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = self
            .package
            .snapshot
            .open(&dir_path, flags)
            .map_err(read_error)?;
        let identity = identity(&fstat(&fd).map_err(read_error)?);

        if self
            .walk
            .ancestor_dirs()
            .any(|(_, ancestor)| *ancestor == identity)
        {
            return Ok(());
        }

        let names =
            read_names(&fd, self.page.limits.entries, &mut Vec::new()).map_err(read_error)?;
        let entries = names.into_iter().filter_map(|(name, kind)| {
            let kind = match kind {
                FileType::RegularFile => WalkEntryKind::File,
                FileType::Directory => WalkEntryKind::Directory,
                FileType::Symlink if follow_links => WalkEntryKind::Link,
                _ => return None,
            };
            resource_filter::may_serve_path(&RelPath::new(&name)?, skipped_dirs)
                .then_some((name, kind))
        });

        self.walk.enter_dir((dir_path, identity), path, entries);
        Ok(())
    }

    /// Adds a file if it may be read. Returns whether the page is full.
    fn push_file(&mut self, path: RelPath) -> Result<bool, FileReadError> {
        let Some(mut opened) = skip_unavailable(self.package.open(&path))? else {
            return Ok(false);
        };

        let bytes = handle::encoded_path_len(&path) + self.page.bytes_per_file;
        let is_digest_budget_spent = self
            .page
            .max_digest_bytes
            .is_some_and(|limit| self.digested_bytes > limit);

        if self.files.len() == self.page.max_files
            || bytes > self.remaining_bytes
            || is_digest_budget_spent
        {
            return Ok(true);
        }

        let mut digest = None;
        for _ in 0..TRIES {
            let version = opened.version;
            if self
                .page
                .max_digest_bytes
                .is_none_or(|limit| version.size > limit)
            {
                break;
            }

            if self.digests.get(&version).is_none() {
                self.digested_bytes += version.size;
            }
            let known = self.digests.get_or_digest(&opened, self.cancel_token)?;
            digest = known.map(|known| (known.digest, known.utf8));
            if digest.is_some() {
                break;
            }

            // The file changed in the meantime.
            let Some(again) = skip_unavailable(self.package.open(&path))? else {
                return Ok(false);
            };
            opened = again;
        }

        self.remaining_bytes -= bytes;
        self.resume_after = Some(self.walk.token_after(path.clone()));
        self.files.push(ListedFile {
            path,
            size: opened.version.size,
            executable: opened.executable,
            digest,
        });
        Ok(false)
    }
}

/// Returns `None` for a file that does not exist, may not be read, or is not regular. A failed
/// filesystem is an error, because the list would look complete without the file.
fn skip_unavailable<T>(result: Result<T, FileReadError>) -> Result<Option<T>, FileReadError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error @ (FileReadError::Failed | FileReadError::TooManyOpenFiles)) => Err(error),
        Err(
            FileReadError::NotFound
            | FileReadError::Outside
            | FileReadError::TooLarge { .. }
            | FileReadError::Changed(_)
            | FileReadError::Denied,
        ) => Ok(None),
    }
}

fn read_error(errno: Errno) -> FileReadError {
    OpenError::from(resolve_error(errno)).into()
}
