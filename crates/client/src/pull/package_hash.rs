//! Digests of the files of a package, computed from the bytes that the daemon sends.

use super::file_reader::{FileReader, PageSink};
use super::package_list::{self, confirm_list};
use super::package_reader::CONCURRENT_READS;
use super::repeat::PullAttempts;
use super::{PackageFiles, PackageLocation, PackageOrigin, PullError, PullLimits};
use crate::Client;
use caproot_core::lock::{ApprovedFiles, FilesError};
use caproot_core::wire::{ContentDigest, FileChecksum, parse_file_name};
use futures_util::{StreamExt as _, stream};
use sha2::{Digest as _, Sha256};

/// Reads each file of a package and computes its digest.
///
/// Lists the package, reads the files, and lists the package again. If the package changed in the
/// meantime, the function starts again, at most four times.
pub async fn hash_package(
    client: &Client,
    location: PackageLocation<'_>,
    limits: PullLimits,
) -> Result<ApprovedFiles, PullError> {
    let mut attempts = PullAttempts::new();
    loop {
        let outcome = try_hash(client, location, limits).await;
        if let Some(outcome) = attempts.finish(outcome).await {
            return Ok(approved_files(&outcome?)?.require_skill_file()?);
        }
    }
}

async fn try_hash(
    client: &Client,
    location: PackageLocation<'_>,
    limits: PullLimits,
) -> Result<PackageFiles, PullError> {
    let origin = PackageOrigin::Daemon(client);
    let listed = package_list::list_files(origin, location, limits)
        .await?
        .files;
    let reader = FileReader { client, location };
    // Owned names, because rustc finds no `Send` for futures that borrow them from the iterator.
    let reads = listed.clone().into_iter().map(|(name, file)| async move {
        let checksum = hash_file(reader, &name, file).await?;
        Ok::<_, PullError>((name, checksum))
    });

    let mut reads = stream::iter(reads).buffer_unordered(CONCURRENT_READS);
    let mut hashed = PackageFiles::new();
    while let Some(read) = reads.next().await {
        hashed.extend([read?]);
    }
    confirm_list(origin, location, limits, &hashed).await?;
    Ok(hashed)
}

/// Reads a file and returns the digest of the bytes.
async fn hash_file(
    reader: FileReader<'_>,
    name: &str,
    listed: FileChecksum,
) -> Result<FileChecksum, PullError> {
    let mut sink = HashSink(Sha256::new());
    reader.read_file(name, &listed, &mut sink).await?;
    Ok(FileChecksum {
        digest: ContentDigest(sink.0.finalize().into()),
        ..listed
    })
}

/// Hasher that receives the pages of a file.
struct HashSink(Sha256);

impl PageSink for HashSink {
    fn take_page(&mut self, page: &[u8]) -> Result<(), PullError> {
        self.0.update(page);
        Ok(())
    }
}

/// Returns the listed files as the files of a lock.
pub fn approved_files(files: &PackageFiles) -> Result<ApprovedFiles, FilesError> {
    let files = files.iter();
    // The names were checked when they were listed.
    let files = files.filter_map(|(name, file)| Some((parse_file_name(name).ok()?, *file)));
    ApprovedFiles::of_package(files.collect())
}

/// Returns an error if there are approved versions and the package equals no approved version.
pub fn check_approval(
    approved: Option<&[ApprovedFiles]>,
    files: &PackageFiles,
) -> Result<(), PullError> {
    let Some(approved) = approved else {
        return Ok(());
    };
    let current = approved_files(files)?;
    let differences = approved
        .iter()
        .map(|version| current.difference_from(version));
    match differences.min_by_key(Vec::len) {
        Some(nearest) if nearest.is_empty() => Ok(()),
        nearest => Err(PullError::NotApproved(nearest.unwrap_or_default())),
    }
}
