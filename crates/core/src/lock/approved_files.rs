//! Files of an approved package, and the digest of the whole package.

use crate::text::quote_word;
use crate::wire::handle::encode_path;
use crate::wire::{ContentDigest, FileChecksum, RelPath};
use sha2::{Digest as _, Sha256};

/// Maximum number of files of a package.
pub const MAX_PACKAGE_FILES: usize = 10_000;
/// Maximum size of all files of a package in bytes.
pub const MAX_PACKAGE_BYTES: u64 = 1 << 30;
/// File that each skill has.
const SKILL_FILE: &[u8] = b"SKILL.md";

/// Files of a skill, which has a SKILL.md, or of a plugin, sorted by path. No file is below another file, and
/// no path has a control character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovedFiles(pub(super) Box<[(RelPath, FileChecksum)]>);

/// Reason why files cannot be approved. Displays as the predicate of a sentence, after the name of the
/// package.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilesError {
    /// There is no SKILL.md at the top.
    #[error("has no SKILL.md")]
    NoSkillFile,
    /// There are too many files.
    #[error("has over 10,000 files, the limit of a package")]
    TooManyFiles,
    /// The files are too large together.
    #[error("has over 1 GiB of files, the limit of a package")]
    TooManyBytes,
    /// The name of a file has a control character, which the digest of the package needs as separator.
    #[error("has a control character in the name of the file {}; rename the file", quote_path(.0))]
    ControlCharacter(RelPath),
    /// A file is listed twice.
    #[error("has the file {} twice", quote_path(.0))]
    Duplicate(RelPath),
    /// A file is also the directory of another file.
    #[error("has the file {}, which is also a directory", quote_path(.0))]
    FileAndDirectory(RelPath),
}

/// Reason why bytes are not the approved content of a file. Displays as the predicate of a sentence, after
/// the name of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnapprovedContent {
    /// The approved version does not have the file.
    #[error("is not approved")]
    NotApproved,
    /// The file has another size.
    #[error("has {current} bytes, and the approved file has {approved}")]
    Size {
        /// Size of the approved content in bytes.
        approved: u64,
        /// Size of the bytes.
        current: u64,
    },
    /// The file has another content of the same size.
    #[error("has the digest {current}, and the approved file has {approved}")]
    Digest {
        /// Digest of the approved content.
        approved: ContentDigest,
        /// Digest of the bytes.
        current: ContentDigest,
    },
}

impl ApprovedFiles {
    /// Checks that bytes are the whole approved content of a file. Returns the approved file.
    ///
    /// ```
    /// use caproot_core::lock::{ApprovedFiles, UnapprovedContent};
    /// use caproot_core::wire::{ContentDigest, FileChecksum, RelPath};
    ///
    /// let path = RelPath::new(b"SKILL.md").ok_or("no path")?;
    /// let checksum = FileChecksum { digest: ContentDigest([7; 32]), bytes: 2, executable: false };
    /// let files = ApprovedFiles::new(vec![(path.clone(), checksum)])?;
    /// let error = files.verify_content(&path, b"longer").unwrap_err();
    /// assert_eq!(error, UnapprovedContent::Size { approved: 2, current: 6 });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn verify_content(
        &self,
        path: &RelPath,
        bytes: &[u8],
    ) -> Result<&FileChecksum, UnapprovedContent> {
        let file = self.get(path).ok_or(UnapprovedContent::NotApproved)?;
        let current = bytes.len() as u64;
        if current != file.bytes {
            return Err(UnapprovedContent::Size {
                approved: file.bytes,
                current,
            });
        }

        let digest = ContentDigest::of(bytes);
        if digest == file.digest {
            Ok(file)
        } else {
            Err(UnapprovedContent::Digest {
                approved: file.digest,
                current: digest,
            })
        }
    }

    /// Checks and sorts the files of a skill.
    pub fn new(files: Vec<(RelPath, FileChecksum)>) -> Result<Self, FilesError> {
        Self::of_package(files)?.require_skill_file()
    }

    /// Returns the files if there is a SKILL.md at the top.
    pub fn require_skill_file(self) -> Result<Self, FilesError> {
        if self.iter().any(|(path, _)| path.as_bytes() == SKILL_FILE) {
            Ok(self)
        } else {
            Err(FilesError::NoSkillFile)
        }
    }

    /// Checks and sorts the files of a skill or a plugin.
    pub fn of_package(mut files: Vec<(RelPath, FileChecksum)>) -> Result<Self, FilesError> {
        if files.len() > MAX_PACKAGE_FILES {
            return Err(FilesError::TooManyFiles);
        }
        let sizes = files.iter().map(|(_, file)| file.bytes);
        if sizes.fold(0, u64::saturating_add) > MAX_PACKAGE_BYTES {
            return Err(FilesError::TooManyBytes);
        }

        let has_control_character = |(path, _): &&(RelPath, _)| {
            String::from_utf8_lossy(path.as_bytes()).contains(char::is_control)
        };
        if let Some((path, _)) = files.iter().find(has_control_character) {
            return Err(FilesError::ControlCharacter(path.clone()));
        }

        // The files of a directory follow the directory's path, so a conflict is between neighbours.
        files.sort_by(|(a, _), (b, _)| a.cmp(b));
        for pair in files.windows(2) {
            let [(path, _), (next, _)] = pair else {
                continue;
            };
            if path == next {
                return Err(FilesError::Duplicate(path.clone()));
            }
            if next.strip_prefix(path).is_some() {
                return Err(FilesError::FileAndDirectory(path.clone()));
            }
        }

        Ok(Self(files.into()))
    }

    /// Returns the digest of the paths and contents of all files: SHA-256 of the path, a byte 0, the
    /// SHA-256 of the content and a byte 10 for each file, in the byte order of the paths. Equals
    /// `contentDigest` of `ToolHive`'s THV-0080 for skills and plugins without links. Modes are not in the
    /// digest.
    #[must_use]
    pub fn content_digest(&self) -> ContentDigest {
        let mut sorted: Vec<_> = self.0.iter().collect();
        sorted.sort_by(|(a, _), (b, _)| a.as_bytes().cmp(b.as_bytes()));

        let mut hasher = Sha256::new();
        for (path, file) in sorted {
            hasher.update(path.as_bytes());
            hasher.update([0]);
            hasher.update(file.digest.0);
            hasher.update([b'\n']);
        }
        ContentDigest(hasher.finalize().into())
    }

    /// Returns the file with a path.
    #[must_use]
    pub fn get(&self, path: &RelPath) -> Option<&FileChecksum> {
        let found = self.0.binary_search_by(|(known, _)| known.cmp(path));
        found.ok().map(|at| &self.0[at].1)
    }

    /// Iterates over the files in the order of their paths.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&RelPath, &FileChecksum)> {
        self.0.iter().map(|(path, file)| (path, file))
    }

    /// Returns the number of files.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no file, which no approved package is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the size of all files in bytes.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.0.iter().map(|(_, file)| file.bytes).sum()
    }
}

fn quote_path(path: &RelPath) -> String {
    quote_word(&encode_path(path))
}
