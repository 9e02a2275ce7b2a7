//! Digests of the files of a package, computed from the bytes that the daemon sends.

use super::file_reader::{FileReader, PageSink};
use super::{
    CONCURRENT_READS, FIRST_RETRY_DELAY, LONGEST_RETRY_DELAY, MAX_ATTEMPTS, PackageFiles,
    PackageLocation, PackageOrigin, PullError, PullLimits, confirm_list, is_concurrent_change,
    package_list,
};
use crate::Client;
use caproot_core::backoff::Backoff;
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
    let mut backoff = Backoff::new(FIRST_RETRY_DELAY, LONGEST_RETRY_DELAY);
    let mut attempt = 1;
    loop {
        match try_hash(client, location, limits).await {
            Err(error) if is_retried(&error) && attempt < MAX_ATTEMPTS => {
                tokio::time::sleep(backoff.next_limit()).await;
            }
            Err(error) => return Err(error),
            Ok(files) => return Ok(approved_files(&files)?.require_skill_file()?),
        }
        attempt += 1;
    }
}

/// Whether the package changed during the attempt.
fn is_retried(error: &PullError) -> bool {
    matches!(error, PullError::NoDigest(_)) || is_concurrent_change(error)
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
