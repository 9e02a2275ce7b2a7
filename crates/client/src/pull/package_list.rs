//! List of the files of a package, checked: each file has a safe name and a digest, and the whole
//! package is within the limits of the request.

use super::checksum_file::CHECKSUM_FILE;
use super::{PackageFiles, PackageLocation, PackageOrigin, PullError, PullLimits, total_bytes};
use crate::Client;
use caproot_core::proto::caproot::v1::{ListResourcesRequest, Resource};
use caproot_core::wire::handle::encode_path;
use caproot_core::wire::{ContentDigest, FileChecksum, RelPath, parse_file_name};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Names of directories that version control reads. A `.git` in the pulled directory would let the
/// daemon choose commands that git runs there, such as `core.fsmonitor`: git-config(1).
const VERSION_CONTROL_DIRS: [&str; 3] = [".git", ".hg", ".svn"];

/// Checked list of a package.
#[derive(PartialEq)]
pub struct PackageList {
    pub files: PackageFiles,
    /// Files that the daemon does not serve, by name. A file of a plugin that declares components has a
    /// checksum of the daemon.
    pub withheld: BTreeMap<String, Option<FileChecksum>>,
}

impl PackageList {
    /// Returns the paths of the files that the daemon does not serve, in order.
    pub fn withheld_paths(&self) -> Vec<RelPath> {
        let names = self.withheld.keys();
        names
            .filter_map(|name| parse_file_name(name).ok())
            .collect()
    }

    /// Returns all files of a plugin, also those that the daemon does not serve and has a digest of. The
    /// others are an error: the plugin may do something else with other contents of them.
    pub fn plugin_files(&self) -> Result<PackageFiles, PullError> {
        let unknown = self.withheld.iter().filter(|(_, file)| file.is_none());
        let unknown: Vec<_> = unknown.map(|(name, _)| name.clone()).collect();
        if unknown.is_empty() {
            Ok(self.digested_files())
        } else {
            Err(PullError::NotDigested(unknown))
        }
    }

    /// Returns the files with a digest, also those that the daemon does not serve.
    pub fn digested_files(&self) -> PackageFiles {
        let withheld = self.withheld.iter();
        let withheld = withheld.filter_map(|(name, file)| Some((name.clone(), (*file)?)));
        self.files.clone().into_iter().chain(withheld).collect()
    }
}

/// Package at its origin, and the limits of its files.
#[derive(Clone, Copy)]
pub struct OriginPackage<'a> {
    pub origin: PackageOrigin<'a>,
    pub location: PackageLocation<'a>,
    pub limits: PullLimits,
}

impl OriginPackage<'_> {
    /// Lists the files with their digests.
    pub async fn list_files(self) -> Result<PackageList, PullError> {
        let client = match self.origin {
            PackageOrigin::Daemon(client) => client,
            PackageOrigin::Source(files) => {
                let resources = files.iter().map(|(handle, bytes)| Resource {
                    resource: handle.clone(),
                    size_bytes: bytes.len() as u64,
                    digest: ContentDigest::of(bytes).to_string(),
                    ..Resource::default()
                });
                return Ok(PackageList {
                    files: checked_files(self.location.package, self.limits, resources.collect())?,
                    withheld: BTreeMap::new(),
                });
            }
        };
        list_daemon_files(client, self.location, self.limits).await
    }

    /// Lists the package again. If both lists agree, each file had its digest when the first list ended.
    pub async fn confirm_list(self, listed: &PackageList) -> Result<(), PullError> {
        match self.list_files().await {
            Ok(current) if current == *listed => Ok(()),
            Ok(_) | Err(PullError::NoDigest(_)) => Err(PullError::KeepsChanging),
            Err(PullError::Call(error)) => Err(PullError::after_list(error)),
            Err(error) => Err(error),
        }
    }
}

async fn list_daemon_files(
    client: &Client,
    location: PackageLocation<'_>,
    limits: PullLimits,
) -> Result<PackageList, PullError> {
    let list = ListResourcesRequest {
        root: Some(location.root.clone()),
        package: location.package.to_owned(),
        include_digests: true,
        ..ListResourcesRequest::default()
    };
    let mut client = client.clone();
    let list = client.list_resources_until(&list, limits.max_files).await?;

    if list.truncated && list.resources.len() <= limits.max_files {
        return Err(PullError::Truncated);
    }
    if list.resources.is_empty() && list.withheld.is_empty() {
        return Err(PullError::NoFiles);
    }

    let files = checked_files(location.package, limits, list.resources)?;
    let mut withheld = BTreeMap::new();
    for resource in list.withheld {
        let (name, file) = match checked_file(location.package, &resource) {
            Ok((name, file)) => (name, Some(file)),
            Err(PullError::NoDigest(name)) => (name, None),
            Err(error) => return Err(error),
        };
        if files.contains_key(&name) {
            let handle = &resource.resource;
            return Err(PullError::invalid(handle, "is listed, and is withheld"));
        }
        withheld.insert(name, file);
    }
    Ok(PackageList { files, withheld })
}

/// Returns the files of a list by name, if the names and the limits are good.
fn checked_files(
    package: &str,
    limits: PullLimits,
    resources: Vec<Resource>,
) -> Result<PackageFiles, PullError> {
    if resources.len() > limits.max_files {
        return Err(PullError::TooLarge(format!("{} files", limits.max_files)));
    }

    let mut files = PackageFiles::new();
    for resource in resources {
        let (name, file) = checked_file(package, &resource)?;
        if files.insert(name.clone(), file).is_some() {
            return Err(PullError::invalid(&name, "is listed twice"));
        }
    }
    if total_bytes(&files) > limits.max_bytes {
        return Err(PullError::TooLarge(format!("{} bytes", limits.max_bytes)));
    }

    for name in files.keys() {
        let mut above = name.match_indices('/').map(|(at, _)| &name[..at]);
        if above.any(|dir| files.contains_key(dir)) {
            return Err(PullError::invalid(name, "is below another file"));
        }
    }
    Ok(files)
}

fn checked_file(package: &str, file: &Resource) -> Result<(String, FileChecksum), PullError> {
    let below = file.resource.strip_prefix(package);
    let Some(name) = below.and_then(|rest| rest.strip_prefix('/')) else {
        return Err(PullError::invalid(&file.resource, "is outside the package"));
    };

    parse_file_name(name).map_err(|reason| PullError::invalid(name, reason))?;
    if file.digest.is_empty() {
        return Err(PullError::NoDigest(name.to_owned()));
    }
    let Some(digest) = ContentDigest::parse(&file.digest) else {
        return Err(PullError::invalid(name, "has an invalid digest"));
    };

    let checksum = FileChecksum {
        digest,
        bytes: file.size_bytes,
        executable: file.executable,
    };
    Ok((name.to_owned(), checksum))
}

/// Returns an error for a file that a pull must not write.
pub fn check_pulled_names(files: &PackageFiles) -> Result<(), PullError> {
    if files.contains_key(CHECKSUM_FILE) {
        return Err(PullError::PulledCopy);
    }
    for name in files.keys() {
        if has_forbidden_component(&listed_path(name)?) {
            return Err(PullError::ForbiddenName(name.clone()));
        }
    }
    Ok(())
}

/// Whether a component of the path is a directory of version control, in any letter case because
/// the directory may later be copied to a filesystem that ignores the case, or begins with `..`,
/// as the versions of a Kubernetes volume do.
fn has_forbidden_component(path: &Path) -> bool {
    path.iter().any(|component| {
        component.as_bytes().starts_with(b"..")
            || VERSION_CONTROL_DIRS
                .iter()
                .any(|name| component.eq_ignore_ascii_case(name))
    })
}

/// Returns the relative path of a listed file. The error is that of the response.
pub fn listed_path(name: &str) -> Result<PathBuf, PullError> {
    parse_name(name).map_err(|reason| PullError::invalid(name, reason))
}

/// Decodes the name of a file that a pull may write to its relative path.
pub fn parse_name(name: &str) -> Result<PathBuf, &'static str> {
    let path = parse_file_name(name)?;
    if path.as_bytes() == CHECKSUM_FILE.as_bytes() {
        return Err("has the reserved name of the checksum file");
    }
    Ok(PathBuf::from(OsStr::from_bytes(path.as_bytes())))
}

/// Returns the name of a relative path.
pub fn name_of_path(path: &Path) -> String {
    RelPath::new(path.as_os_str().as_bytes())
        .as_ref()
        .map(encode_path)
        .unwrap_or_default()
}
