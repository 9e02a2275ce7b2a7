//! Copy of a package for a program that runs one of its files.

use super::package_hash::{approved_files, check_approval};
use super::package_list::{OriginPackage, PackageList, check_pulled_names};
use super::package_store::{PackageCopy, PackageStore};
use super::repeat::repeat_attempt;
use super::staging_dir::StagingDir;
use super::{
    ChecksumFile, PackageFiles, PackageLocation, PackageOrigin, PullError, PullLimits, run_blocking,
};
use crate::Client;
use crate::trust::ApprovedVersions;
use caproot_core::wire::ContentDigest;
use std::sync::Arc;

/// Package and file of a copy.
#[derive(Debug, Clone)]
pub struct CopyRequest<'a> {
    /// Package of the file.
    pub location: PackageLocation<'a>,
    /// Name of a file that the package must have: its handle without the handle of the package.
    pub file: Option<&'a str>,
    /// Digests of the package, as a lock has them, of which the package must have one. An empty list accepts
    /// each version that the daemon lists.
    pub digests: &'a [ContentDigest],
    /// Limits of the package.
    pub limits: PullLimits,
    /// Approved versions of the package. If set, a package with other files is an error.
    pub approved: Option<ApprovedVersions>,
}

/// Copies a package to a store, unless the store has a copy. Each file of the copy is compared with the
/// digest that the daemon listed, also if the copy is an old one.
///
/// If the package changes in the meantime, the copy starts again, at most four times.
pub async fn copy_package(
    client: &Client,
    store: &Arc<PackageStore>,
    request: &CopyRequest<'_>,
) -> Result<PackageCopy, PullError> {
    repeat_attempt(|| try_copy(client, store, request)).await
}

async fn try_copy(
    client: &Client,
    store: &Arc<PackageStore>,
    request: &CopyRequest<'_>,
) -> Result<PackageCopy, PullError> {
    let package = OriginPackage {
        origin: PackageOrigin::Daemon(client),
        location: request.location,
        limits: request.limits,
    };
    let listed = package.list_files().await?;
    if let Some(name) = request.file
        && !listed.files.contains_key(name)
    {
        let prefix = format!("{name}/");
        return Err(PullError::NotListed {
            name: name.to_owned(),
            is_dir: listed.files.keys().any(|other| other.starts_with(&prefix)),
        });
    }
    check_pulled_names(&listed.files)?;
    check_digest(request.digests, &listed)?;
    check_approval(request.approved.as_ref(), &listed)?;

    let checksums = ChecksumFile::new(request.location.package, listed.files.clone());
    if let Some(copy) = find_copy(store, &checksums).await? {
        return Ok(copy);
    }

    // Several scripts of one skill may start at once, and one copy is enough.
    let locked = store.clone();
    let files = checksums.clone();
    let _turn = run_blocking(move || locked.lock_writes(&files)).await?;
    if let Some(copy) = find_copy(store, &checksums).await? {
        return Ok(copy);
    }
    write_copy(package, store, &checksums, &listed).await?;

    // The bytes on the disk decide, so that old and new copies have one check.
    find_copy(store, &checksums)
        .await?
        .ok_or(PullError::KeepsChanging)
}

/// Returns an error if the package has no accepted digest.
fn check_digest(accepted: &[ContentDigest], listed: &PackageList) -> Result<(), PullError> {
    if accepted.is_empty() {
        return Ok(());
    }
    // A package may be a skill and a plugin. The files of a skill are those that the daemon serves.
    let skill = approved_files(&listed.files)?.content_digest();
    let plugin = approved_files(&listed.digested_files())?.content_digest();
    if accepted.contains(&skill) || accepted.contains(&plugin) {
        Ok(())
    } else {
        Err(PullError::OtherDigest(plugin))
    }
}

async fn find_copy(
    store: &Arc<PackageStore>,
    checksums: &ChecksumFile,
) -> Result<Option<PackageCopy>, PullError> {
    let store = store.clone();
    let checksums = checksums.clone();
    run_blocking(move || store.find_copy(&checksums)).await
}

/// Reads the package to a new copy.
async fn write_copy(
    package: OriginPackage<'_>,
    store: &Arc<PackageStore>,
    checksums: &ChecksumFile,
    listed: &PackageList,
) -> Result<(), PullError> {
    let target = Arc::new(store.new_target(checksums)?);
    let cleaned = target.clone();
    run_blocking(move || cleaned.remove_stale_staging()).await?;

    let staging = Arc::new(StagingDir::create(&target)?);
    let files = &checksums.files;
    let mut complete = PackageFiles::new();
    package
        .read_files(files, &staging, &mut complete, &mut |_| {})
        .await?;
    package.confirm_list(listed).await?;

    let store = store.clone();
    run_blocking(move || {
        store.add_copy(&staging, &target)?;
        // The lock of the staging directory would keep the new copy from being used.
        drop(staging);
        store.remove_old_copies()
    })
    .await
}
