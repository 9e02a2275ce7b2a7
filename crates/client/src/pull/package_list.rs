//! List of the files of a package, checked: each file has a safe name and a digest, and the whole
//! package is within the limits of the request.

use super::checksum_file::{CHECKSUM_FILE, FileChecksum};
use super::{PackageFiles, PackageOrigin, PullError, PullRequest, total_bytes};
use caproot_core::proto::caproot::v1::{ListResourcesRequest, Resource};
use caproot_core::wire::is_digest;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// Bytes that are percent-encoded in a segment of a handle.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// Maximum length of a name in a directory, and of a path in the kernel.
const NAME_MAX: usize = 255;
const PATH_MAX: usize = 4_095;
/// Maximum number of components of a path. Reading and removing a tree takes open directories for
/// each level, and a process has 1,024 by default.
const MAX_COMPONENTS: usize = 128;

/// Names of directories that version control reads. A `.git` in the pulled directory would let the
/// daemon choose commands that git runs there, such as `core.fsmonitor`: git-config(1).
const VERSION_CONTROL_DIRS: [&str; 3] = [".git", ".hg", ".svn"];

/// Lists the files of the package with their digests.
pub async fn list_files(
    origin: PackageOrigin<'_>,
    request: &PullRequest,
) -> Result<PackageFiles, PullError> {
    let client = match origin {
        PackageOrigin::Daemon(client) => client,
        PackageOrigin::Source(source) => {
            return checked_files(request, source.resources());
        }
    };
    let list = ListResourcesRequest {
        root: Some(request.root.clone()),
        package: request.package.clone(),
        include_digests: true,
        ..ListResourcesRequest::default()
    };
    let limits = request.limits;
    let mut client = client.clone();
    let list = client.list_resources_until(&list, limits.max_files).await?;
    if list.truncated && list.resources.len() <= limits.max_files {
        return Err(PullError::Truncated);
    }
    if list.resources.is_empty() {
        return Err(PullError::NoFiles);
    }
    checked_files(request, list.resources)
}

/// Returns the files of a list by name, if the names and the limits are good.
fn checked_files(
    request: &PullRequest,
    resources: Vec<Resource>,
) -> Result<PackageFiles, PullError> {
    let limits = request.limits;
    if resources.len() > limits.max_files {
        return Err(PullError::TooLarge(format!("{} files", limits.max_files)));
    }

    let mut files = PackageFiles::new();
    for resource in resources {
        let (name, file) = checked_file(&request.package, resource)?;
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

fn checked_file(package: &str, resource: Resource) -> Result<(String, FileChecksum), PullError> {
    let Resource {
        resource: handle,
        size_bytes,
        executable,
        digest,
        ..
    } = resource;
    let below = handle
        .strip_prefix(package)
        .and_then(|rest| rest.strip_prefix('/'));
    let Some(name) = below else {
        return Err(PullError::invalid(&handle, "is outside the package"));
    };

    let path = listed_path(name)?;
    if has_forbidden_component(&path) {
        return Err(PullError::ForbiddenName(name.to_owned()));
    }
    if digest.is_empty() {
        return Err(PullError::NoDigest(name.to_owned()));
    }
    if !is_digest(&digest) {
        return Err(PullError::invalid(name, "has an invalid digest"));
    }

    Ok((
        name.to_owned(),
        FileChecksum {
            digest,
            bytes: size_bytes,
            executable,
        },
    ))
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

/// Decodes the name of a file to its relative path. The path never leaves its directory. Each path
/// has one name, so two names never mean the same file.
pub fn parse_name(name: &str) -> Result<PathBuf, &'static str> {
    let mut path = Vec::new();
    for segment in name.split('/') {
        let bytes: Vec<u8> = percent_decode_str(segment).collect();
        if percent_encode(&bytes, ENCODED).to_string() != segment {
            return Err("has a name that is not in canonical form");
        }
        if matches!(&*bytes, b"" | b"." | b"..") || bytes.contains(&b'/') || bytes.contains(&0) {
            return Err("has a name that leaves the directory or that no file can have");
        }
        if bytes.len() > NAME_MAX {
            return Err("has a name over 255 bytes");
        }

        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend(bytes);
    }

    if path == CHECKSUM_FILE.as_bytes() {
        return Err("has the reserved name of the checksum file");
    }
    if name.split('/').count() > MAX_COMPONENTS {
        return Err("has a path of over 128 components");
    }
    if path.len() > PATH_MAX {
        return Err("has a path over 4,095 bytes");
    }
    Ok(PathBuf::from(std::ffi::OsString::from_vec(path)))
}

/// Returns the name of a relative path.
pub fn name_of_path(path: &[u8]) -> String {
    let segments = path.split(|byte| *byte == b'/');
    let names: Vec<_> = segments
        .map(|name| percent_encode(name, ENCODED).to_string())
        .collect();
    names.join("/")
}

#[cfg(test)]
mod tests {
    use super::{name_of_path, parse_name};
    use proptest::prelude::*;
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::Component;

    #[test]
    fn names_that_are_no_safe_path_are_rejected() {
        for name in [
            "",
            "/",
            "/etc/passwd",
            "a/",
            "a//b",
            ".",
            "..",
            "../a",
            "a/../b",
            "a/./b",
            "%2e%2e",
            "%2E%2E/a",
            "a%2Fb",
            "a%2fb",
            "a%00b",
            "a b",
            "%61",
            "%",
            "%zz",
            ".caproot-checksums.json",
            &"n".repeat(256),
            &vec!["n"; 129].join("/"),
            &vec![&*"n".repeat(255); 17].join("/"),
        ] {
            assert!(parse_name(name).is_err(), "{name:?}");
        }
        for name in [
            "a",
            "a/b",
            "...",
            "a%20b/%FF",
            "d/.caproot-checksums.json",
            "%2A",
            "-~_.",
            &vec!["n"; 128].join("/"),
        ] {
            let path = parse_name(name).expect(name);
            assert_eq!(name_of_path(path.as_os_str().as_bytes()), name);
        }
    }

    proptest! {
        #[test]
        fn accepted_names_stay_below_and_have_one_path(name in "[a./%2fF0eE-]{0,12}") {
            if let Ok(path) = parse_name(&name) {
                prop_assert!(path.components().all(|part| matches!(part, Component::Normal(_))));
                prop_assert_eq!(name_of_path(path.as_os_str().as_bytes()), name);
            }
        }
    }
}
