//! Directory in which each directory has one pulled package, as `caproot pull --all` writes it.

use super::attempt::check_conflicts;
use super::checksum_file::CHECKSUM_FILE;
use super::pull_error::SystemResult as _;
use super::repeat::MAX_ATTEMPTS;
use super::staging_dir::StagingDir;
use super::target_dir::{TargetDir, intact_files, scan_target};
use super::{PackageLocation, PullError, PullRequest, run_blocking};
use crate::{CallError, Client};
use caproot_core::proto::caproot::v1::{ErrorReason, SelectedCapabilityRoot};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Directory of pulled packages. Keeps other users of this type away until it is dropped.
#[derive(Debug)]
pub struct PackagesDir {
    path: PathBuf,
    _locked: File,
}

impl PackagesDir {
    /// Opens a directory, and creates the directory and those above it if they do not exist. Blocks on
    /// the disk.
    ///
    /// # Errors
    ///
    /// [`PullError::InUse`] if another value has the directory.
    pub fn open(path: &Path) -> Result<Self, PullError> {
        fs::create_dir_all(path).at(path)?;
        let dir = File::open(path).at(path)?;
        match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Err(PullError::InUse(path.to_owned())),
            // A filesystem without locks: each package has checks of its own.
            _ => Ok(Self {
                path: path.to_owned(),
                _locked: dir,
            }),
        }
    }

    /// Returns the handles of the packages that pulls wrote, by the name of their directory. Directories
    /// without a valid checksum file, links and hidden directories are omitted. Blocks on the disk.
    pub fn packages(&self) -> Result<BTreeMap<String, String>, PullError> {
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
            outcome => outcome.at(&self.path)?,
        };

        let mut packages = BTreeMap::new();
        for entry in entries {
            let entry = entry.at(&self.path)?;
            // A pull of all packages writes no other names.
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            if name.starts_with('.') {
                continue;
            }
            if let Ok(Some(open)) = TargetDir::open_parent(&entry.path())?.open_dir(true)
                && let Some(held) = &open.checksums
            {
                packages.insert(name, held.package.clone());
            }
        }
        Ok(packages)
    }

    /// Removes the directory of a package, if each of its files is as a pull wrote it. Returns the names
    /// of the removed files.
    ///
    /// # Errors
    ///
    /// [`PullError::Conflicts`] if the directory has other files, and [`PullError::OtherPackage`] if it
    /// holds another package. The directory then stays as it is.
    pub async fn remove_package(
        &self,
        name: &str,
        package: &str,
    ) -> Result<Vec<String>, PullError> {
        let root = SelectedCapabilityRoot::default();
        let request = PullRequest::new(root, package, self.path.join(name));
        let target = Arc::new(TargetDir::open_parent(&request.dir)?);

        for _ in 0..MAX_ATTEMPTS {
            let local = match scan_target(&target, false, None).await {
                Ok(Some(local)) => local,
                Ok(None) => return Ok(Vec::new()),
                Err(PullError::KeepsChanging) => continue,
                Err(error) => return Err(error),
            };
            check_conflicts(&request, &local)?;
            let files = intact_files(&local).into_keys().cloned().collect();

            let removed = target.clone();
            let is_removed = run_blocking(move || {
                removed.reject_working_directory()?;
                let empty = StagingDir::create(&removed)?;
                removed.remove(&empty, &local)
            });
            if is_removed.await? {
                return Ok(files);
            }
        }
        Err(PullError::KeepsChanging)
    }
}

/// Whether a listed package has the checksum file of a pull, so that it is a copy of another package.
pub async fn is_pulled_copy(
    client: &Client,
    location: PackageLocation<'_>,
) -> Result<bool, CallError> {
    let read = location.page_request(CHECKSUM_FILE, 4);
    match client.read_page(&read).await {
        Ok(_) => Ok(true),
        Err(error) if error.reason() == Some(ErrorReason::ResourceNotFound) => Ok(false),
        Err(error) => Err(error),
    }
}
