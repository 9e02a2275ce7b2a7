//! Content digests as values. Leaves hashing to `disk`.

use std::fmt;

/// The SHA-256 of a whole file. Prints as `sha256:` and 64 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentDigest(pub [u8; 32]);

impl fmt::Display for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        // Thousands are printed for one list: not digit by digit.
        let mut text = [0; 64];
        for (two, byte) in text.as_chunks_mut::<2>().0.iter_mut().zip(self.0) {
            *two = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
        }
        f.write_str("sha256:")?;
        f.write_str(str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

/// One version of one file: what must stay the same for pages to belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct FileVersion {
    pub device: u64,
    pub inode: u64,
    pub size: u64,
    /// Seconds and nanoseconds.
    pub mtime: (i64, u32),
    /// Seconds and nanoseconds.
    pub ctime: (i64, u32),
}

impl FileVersion {
    /// The version of a file whose size and times say nothing of what it holds: that stands for them.
    #[must_use]
    pub fn with_content_digest(self, size: u64, digest: &ContentDigest) -> Self {
        let (parts, _) = digest.0.as_chunks::<8>();
        let time = |n: usize| (i64::from_be_bytes(parts[n]), 0);
        Self { size, mtime: time(0), ctime: time(1), ..self }
    }
}
