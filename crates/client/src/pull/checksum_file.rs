//! Checksum file of a pulled directory: the package, and the digest of each of its files.

use super::PullError;
use super::package_list::parse_name;
use caproot_core::wire::FileChecksum;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name of the checksum file. A package with a file of this name cannot be pulled.
pub const CHECKSUM_FILE: &str = ".caproot-checksums.json";
/// Maximum size of a checksum file: 100,000 files with names of 300 bytes.
pub const MAX_CHECKSUM_FILE_BYTES: u64 = 48 << 20;

/// Content of a checksum file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChecksumFile {
    /// Handle of the package.
    pub package: String,
    /// Files by name: the handle of the file without the handle of the package.
    pub files: BTreeMap<String, FileChecksum>,
}

impl ChecksumFile {
    pub fn new(package: &str, files: BTreeMap<String, FileChecksum>) -> Self {
        Self {
            package: package.to_owned(),
            files,
        }
    }

    /// Parses a checksum file. The error is one sentence.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let checksums: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        for name in checksums.files.keys() {
            parse_name(name).map_err(|reason| format!("the file {name:?} {reason}"))?;
        }
        Ok(checksums)
    }

    /// Returns the text of the file, or an error if the next pull would reject the file.
    pub fn to_text(&self) -> Result<String, PullError> {
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| PullError::InvalidResponse(error.to_string()))?;
        if text.len() as u64 >= MAX_CHECKSUM_FILE_BYTES {
            let reason = "the names of the files take over 48 MiB";
            return Err(PullError::InvalidResponse(reason.to_owned()));
        }
        Ok(text + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::{ChecksumFile, FileChecksum, MAX_CHECKSUM_FILE_BYTES};
    use caproot_core::wire::ContentDigest;

    #[test]
    fn a_file_that_the_next_pull_would_reject_is_not_written() {
        let checksum = FileChecksum {
            digest: ContentDigest([0; 32]),
            bytes: u64::MAX,
            executable: true,
        };
        let names_of = |bytes: u64| {
            let name = |n: u8| {
                n.to_string()
                    .repeat(usize::try_from(bytes / 4).expect("a length"))
            };
            let files = (0..4).map(|n| (name(n), checksum)).collect();
            ChecksumFile::new("skill://r/s", files).to_text()
        };
        assert!(names_of(MAX_CHECKSUM_FILE_BYTES).is_err());
        let text = names_of(MAX_CHECKSUM_FILE_BYTES - 2_000).expect("within the limit");
        assert!(text.len() as u64 <= MAX_CHECKSUM_FILE_BYTES);
    }
}
