//! Digests of the files of a package. Each file is read, so that its bytes have the listed digest.

use super::package_list::{OriginPackage, PackageList};
use super::package_reader::CONCURRENT_READS;
use super::repeat::repeat_attempt;
use super::{PackageFiles, PackageLocation, PackageOrigin, PullError, PullLimits};
use crate::Client;
use crate::trust::ApprovedVersions;
use caproot_core::lock::{ApprovedFiles, FileChange, FileDifference, FilesError};
use caproot_core::wire::{RelPath, parse_file_name};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

/// Files of a package with their digests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HashedPackage {
    /// All files. The digests are those of the bytes that the daemon sent, and those of `withheld` are from
    /// the daemon.
    pub files: ApprovedFiles,
    /// Files whose contents the daemon withholds, sorted.
    pub withheld: Vec<RelPath>,
}

/// Reads each file of a skill, whose bytes must have the listed digest. Files that may hold secrets are left out, as for each
/// reader of the skill.
///
/// Lists the package, reads the files, and lists the package again. If the package changed in the
/// meantime, the function starts again, at most four times.
pub async fn hash_skill(
    client: &Client,
    location: PackageLocation<'_>,
    limits: PullLimits,
) -> Result<ApprovedFiles, PullError> {
    let hashed = hash_package(client, location, limits).await?;
    Ok(approved_files(&hashed.files)?.require_skill_file()?)
}

/// Reads each file of a plugin like [`hash_skill`]. The daemon computes the digests of the declarations that it
/// withholds. Another withheld file is an error.
pub async fn hash_plugin(
    client: &Client,
    location: PackageLocation<'_>,
    limits: PullLimits,
) -> Result<HashedPackage, PullError> {
    let hashed = hash_package(client, location, limits).await?;
    Ok(HashedPackage {
        files: approved_files(&hashed.plugin_files()?)?,
        withheld: hashed.withheld_paths(),
    })
}

async fn hash_package(
    client: &Client,
    location: PackageLocation<'_>,
    limits: PullLimits,
) -> Result<PackageList, PullError> {
    let package = OriginPackage {
        origin: PackageOrigin::Daemon(client),
        location,
        limits,
    };
    repeat_attempt(|| try_hash(client, package)).await
}

async fn try_hash(client: &Client, package: OriginPackage<'_>) -> Result<PackageList, PullError> {
    let listed = package.list_files().await?;
    // Owned names, because rustc finds no `Send` for futures that borrow them from the iterator.
    let reads = listed.files.clone().into_iter();
    let reads = reads.map(|(name, file)| async move {
        // The read compares the bytes with the listed digest, which is the digest of the file then.
        let location = package.location;
        location
            .read_file(client, &name, &file, &mut |_| Ok(()))
            .await
    });
    stream::iter(reads)
        .buffer_unordered(CONCURRENT_READS)
        .try_collect::<()>()
        .await?;

    package.confirm_list(&listed).await?;
    Ok(listed)
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
    approved: Option<&ApprovedVersions>,
    listed: &PackageList,
) -> Result<(), PullError> {
    let versions = match approved {
        None => return Ok(()),
        Some(ApprovedVersions::Skill(versions)) => {
            let current = approved_files(&listed.files)?;
            let versions = versions.iter();
            return nearest_version(versions.map(|version| current.difference_from(version)));
        }
        Some(ApprovedVersions::Plugin(versions)) => versions,
    };

    let current = approved_files(&listed.plugin_files()?)?;
    let withheld = listed.withheld_paths();
    nearest_version(versions.iter().map(|version| {
        let mut differences = current.difference_from(&version.files);
        // A file that the lock has with its content must not be missing in a copy.
        let missing = withheld
            .iter()
            .filter(|path| !version.withheld.contains(path));
        differences.extend(missing.filter_map(|path| {
            Some(FileDifference {
                path: path.clone(),
                change: FileChange::Removed(*version.files.get(path)?),
            })
        }));
        differences
    }))
}

/// Returns an error with the fewest differences, unless a version has none.
fn nearest_version(versions: impl Iterator<Item = Vec<FileDifference>>) -> Result<(), PullError> {
    match versions.min_by_key(Vec::len) {
        Some(nearest) if nearest.is_empty() => Ok(()),
        nearest => Err(PullError::NotApproved(nearest.unwrap_or_default())),
    }
}

#[cfg(test)]
mod tests {
    use super::check_approval;
    use crate::ApprovedVersions;
    use crate::pull::package_list::PackageList;
    use crate::pull::{PackageFiles, PullError};
    use caproot_core::lock::{ApprovedFiles, ApprovedPlugin};
    use caproot_core::wire::{ContentDigest, FileChecksum, parse_file_name};
    use std::collections::BTreeMap;

    fn file(content: &str) -> FileChecksum {
        FileChecksum {
            digest: ContentDigest::of(content),
            bytes: content.len() as u64,
            executable: false,
        }
    }

    fn listed(files: &[(&str, &str)], withheld: &[(&str, Option<&str>)]) -> PackageList {
        let files = files.iter();
        let files = files.map(|(name, content)| ((*name).to_owned(), file(content)));
        let withheld = withheld.iter();
        let withheld = withheld.map(|(name, content)| ((*name).to_owned(), content.map(file)));
        PackageList {
            files: files.collect::<PackageFiles>(),
            withheld: withheld.collect::<BTreeMap<_, _>>(),
        }
    }

    #[test]
    fn a_daemon_withholds_no_file_that_the_lock_has_with_its_content() {
        let paths = ["run", "secret"].map(|name| parse_file_name(name).expect(name));
        let files = paths.iter().cloned().zip([file("run"), file("secret")]);
        let files = ApprovedFiles::of_package(files.collect()).expect("files");
        let approved = ApprovedVersions::Plugin(vec![ApprovedPlugin {
            name: "kit".into(),
            version: "1".into(),
            content_digest: files.content_digest(),
            declaration_digest: ContentDigest([0; 32]),
            files,
            withheld: [paths[1].clone()].into(),
        }]);

        let check = |list: PackageList| check_approval(Some(&approved), &list);
        let secret = [("secret", Some("secret"))];
        check(listed(&[("run", "run")], &secret)).expect("the approved plugin");
        check(listed(&[("run", "run"), ("secret", "secret")], &[])).expect("served now");
        for list in [
            listed(&[("run", "evil")], &secret),
            listed(&[("run", "run")], &[]),
            listed(&[("run", "run")], &[("secret", Some("other"))]),
            listed(&[], &[("run", Some("run")), ("secret", Some("secret"))]),
            listed(&[("run", "run"), ("more", "")], &secret),
        ] {
            let refused = check(list).expect_err("not the approved files");
            assert!(matches!(refused, PullError::NotApproved(_)), "{refused}");
        }
        let refused = check(listed(&[("run", "run")], &[("secret", None)]));
        assert!(matches!(refused, Err(PullError::NotDigested(_))));
    }
}
