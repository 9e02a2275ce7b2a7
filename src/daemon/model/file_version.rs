//! Versions of files.

use caproot_core::wire::ContentDigest;

/// Version of a file. All pages of a read come from the same version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct FileVersion {
    pub device: u64,
    pub inode: u64,
    pub size: u64,
    /// Modification time in seconds and nanoseconds.
    pub mtime: (i64, u32),
    /// Change time in seconds and nanoseconds.
    pub ctime: (i64, u32),
}

impl FileVersion {
    /// Returns the version for a cursor. A write through a shared mapping may change the content
    /// without a change of the times, so the digest is a part of the version.
    #[must_use]
    pub fn with_mixed_digest(self, digest: &ContentDigest) -> Self {
        let (parts, _) = digest.0.as_chunks::<8>();
        let (seconds, nanos) = self.ctime;
        Self {
            ctime: (seconds ^ i64::from_be_bytes(parts[0]), nanos),
            ..self
        }
    }

    /// Replaces the times by parts of the digest, for files whose size and times do not change with
    /// the content.
    #[must_use]
    pub fn with_content_digest(self, size: u64, digest: &ContentDigest) -> Self {
        let (parts, _) = digest.0.as_chunks::<8>();
        Self {
            size,
            mtime: (i64::from_be_bytes(parts[0]), 0),
            ctime: (i64::from_be_bytes(parts[1]), 0),
            ..self
        }
    }
}
