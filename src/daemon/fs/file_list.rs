//! One page of a package's files. Each page walks the package again. Blocks.

use super::allowed_dirs::ResolvedRootDir;
use super::digest_cache::DigestCache;
use super::file_page::FileReadError;
use super::open_file::OpenFile;
use super::package::{ReadRules, ResolvedPackage};
use super::package_files::{PackageFileWalk, PackageObserver, skip_unavailable};
use super::package_walk::{FileListToken, WalkLimits};
use caproot_core::wire::{ContentDigest, FileChecksum, RelPath, handle};
use std::os::fd::BorrowedFd;
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
    /// Whether files that declare components of a plugin are digested although they are withheld.
    pub digests_declarations: bool,
    /// Rules for reading files.
    pub rules: ReadRules<'a>,
}

/// Page of a package's files.
#[derive(Debug, Default)]
pub struct FileListPage {
    /// Files in the byte order of their handles.
    pub files: Vec<ListedFile>,
    /// Files that may hold secrets. For a plugin, also links that lead out of it and files that cannot be
    /// read. Only a declaration that was digested has more than its path.
    pub withheld: Vec<ListedFile>,
    /// Start of the next page; `None` at the end.
    pub next: Option<FileListToken>,
    /// Whether a limit omitted entries, on this page or an earlier page.
    pub truncated: bool,
    /// Whether a file differs from the approved file that the page states instead.
    pub has_unapproved_file: bool,
}

/// File that may be read, or that is withheld.
#[derive(Debug, Default)]
pub struct ListedFile {
    /// Path below the package.
    pub path: RelPath,
    /// Size in bytes.
    pub size: u64,
    /// Whether any user may execute the file.
    pub executable: bool,
    /// Digest of the whole file; `None` if the file was not digested.
    pub digest: Option<ContentDigest>,
    /// Whether the file is UTF-8; `None` if unknown.
    pub utf8: Option<bool>,
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
    let mut observer = CallerObserver(cancel_token);
    let mut files = PackageFileWalk::enter(&package, page.limits, page.from, &mut observer)?;

    let mut draft = PageDraft {
        package: &package,
        page,
        digests,
        cancel_token,
        listed: FileListPage::default(),
        remaining_bytes: page.max_bytes,
        digested_bytes: 0,
    };
    let mut resume_after = None;
    let mut is_full = false;
    while let Some(path) = files.next_file(&mut observer)? {
        match draft.push_file(&path)? {
            PushOutcome::Skipped => {}
            PushOutcome::Added => resume_after = Some(files.walk.token_after(path)),
            PushOutcome::Full => {
                is_full = true;
                break;
            }
        }
    }

    let next = resume_after.filter(|_| is_full);
    // The next page walks the entries behind its token again, and reports their limits itself.
    let truncated = match &next {
        Some(next) => next.truncated,
        None => files.walk.is_truncated(),
    };
    Ok(FileListPage {
        next,
        truncated,
        ..draft.listed
    })
}

/// Observer that ends the walk if the caller has gone.
struct CallerObserver<'a>(&'a CancellationToken);

impl PackageObserver for CallerObserver<'_> {
    fn on_dir(&mut self, _: BorrowedFd<'_>) {}

    fn on_file(&mut self, _: &OpenFile) {}

    fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

impl ListedFile {
    /// States the approved file. Returns whether the file on the disk differs from it.
    fn state_approved(&mut self, approved: FileChecksum, has_digest: bool) -> bool {
        let digest = has_digest.then_some(approved.digest);
        let differs = self.size != approved.bytes
            || self.executable != approved.executable
            || self.digest != digest;
        if differs {
            self.utf8 = None;
        }

        self.size = approved.bytes;
        self.executable = approved.executable;
        self.digest = digest;
        differs
    }
}

/// Page in progress.
struct PageDraft<'a> {
    package: &'a ResolvedPackage<'a>,
    page: &'a FileListRequest<'a>,
    digests: &'a DigestCache,
    cancel_token: &'a CancellationToken,
    /// Files so far.
    listed: FileListPage,
    /// Rest of `max_bytes`.
    remaining_bytes: usize,
    /// Number of bytes that were read for digests.
    digested_bytes: u64,
}

/// Effect of a file on a page.
enum PushOutcome {
    /// The file may not be read.
    Skipped,
    Added,
    /// The page has no room for the file.
    Full,
}

impl PageDraft<'_> {
    /// Adds a file if it may be read.
    fn push_file(&mut self, path: &RelPath) -> Result<PushOutcome, FileReadError> {
        let opened = self.package.open(path);
        let is_withheld = self.package.is_withheld(&opened);
        let opened = if is_withheld && self.page.digests_declarations {
            skip_unavailable(self.package.open_to_digest(path))?
        } else {
            skip_unavailable(opened)?
        };
        if opened.is_none() && !is_withheld {
            return Ok(PushOutcome::Skipped);
        }

        let bytes = handle::encoded_path_len(path) + self.page.bytes_per_file;
        let max_digest_bytes = self.page.max_digest_bytes;
        if self.listed.files.len() + self.listed.withheld.len() == self.page.max_files
            || bytes > self.remaining_bytes
            || max_digest_bytes.is_some_and(|limit| self.digested_bytes > limit)
        {
            return Ok(PushOutcome::Full);
        }

        let Some(mut opened) = opened else {
            self.remaining_bytes -= bytes;
            self.listed.withheld.push(ListedFile {
                path: path.clone(),
                ..ListedFile::default()
            });
            return Ok(PushOutcome::Added);
        };

        let approved = self.page.rules.approved_files;
        let approved = approved.and_then(|files| files.get(path));
        let mut digest = None;
        let mut utf8 = None;
        for _ in 0..TRIES {
            let version = opened.version;
            // A file of another size than the approved file differs from it without a digest.
            if max_digest_bytes.is_none_or(|limit| version.size > limit)
                || approved.is_some_and(|file| file.bytes != version.size)
            {
                break;
            }

            if self.digests.get(&version).is_none() {
                self.digested_bytes += version.size;
            }
            let known = self.digests.get_or_digest(&opened, self.cancel_token)?;
            digest = known.map(|known| known.digest);
            utf8 = known.map(|known| known.utf8);
            if digest.is_some() {
                break;
            }

            // The file changed in the meantime.
            let again = if is_withheld {
                self.package.open_to_digest(path)
            } else {
                self.package.open(path)
            };
            let Some(again) = skip_unavailable(again)? else {
                return Ok(PushOutcome::Skipped);
            };
            opened = again;
        }

        self.remaining_bytes -= bytes;
        let mut listed = ListedFile {
            path: path.clone(),
            size: opened.version.size,
            executable: opened.executable,
            digest,
            utf8,
        };
        if let Some(approved) = approved {
            let has_digest = max_digest_bytes.is_some_and(|limit| approved.bytes <= limit);
            self.listed.has_unapproved_file |= listed.state_approved(*approved, has_digest);
        }
        if is_withheld {
            self.listed.withheld.push(listed);
        } else {
            self.listed.files.push(listed);
        }
        Ok(PushOutcome::Added)
    }
}
