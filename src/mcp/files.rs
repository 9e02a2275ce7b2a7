//! Files of a package, requested from the daemon within limits: all files of a skill with their
//! digests, the children of a directory, the content of one file. The daemon caches digests by file
//! version. No digest is cached here, so a digest always belongs to the version that is read.

use super::ServedDaemon;
use super::catalog::ResolvedUri;
use super::limits::{
    MAX_FILE_BYTES, MAX_PAGE_BYTES, MAX_SKILL_BYTES, MAX_SKILL_FILES, MAX_WALKED_FILES,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use caproot_client::{CallError, Client};
use caproot_core::lock::ApprovedFiles;
use caproot_core::proto::caproot::v1::read_resource_response::Body;
use caproot_core::proto::caproot::v1::{
    ErrorReason, ListResourcesRequest, ListResourcesResponse, ReadResourceRequest, Resource,
};
use caproot_core::text::escape_hidden_chars;
use caproot_core::wire::handle::encode_path;
use caproot_core::wire::{RelPath, parse_file_name};
use rmcp::model::{DIRECTORY_MIME_TYPE, Resource as McpResource, ResourceContents, SkillResource};
use std::collections::BTreeMap;

/// Files of a skill in `skills/list`.
#[derive(Debug, PartialEq)]
pub enum SkillFiles {
    /// All files.
    Files(Vec<SkillResource>),
    /// The skill does not meet the standard: too many or too large files, or a file without a
    /// digest.
    Omitted,
    /// The skill was removed since the catalog was made.
    Gone,
}

/// Error of a file or directory.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// No such file.
    #[error("no such resource")]
    NotFound,
    /// The URI is a file or an empty directory.
    #[error("not a directory of a skill")]
    NotADirectory,
    /// The file is larger than one response.
    #[error("the file has {bytes} bytes; the limit of this server is {MAX_FILE_BYTES}")]
    TooLarge {
        /// Size of the file.
        bytes: u64,
    },
    /// The file does not have its approved content.
    #[error("the file does not have its approved content")]
    NotVerified,
    /// The daemon does not return an approved file. Its own reason could be any text.
    #[error("the executor does not return the file")]
    NotReturned,
    /// The package has too many files to list a directory.
    #[error("the skill has more than {MAX_WALKED_FILES} files; its directories are not listed")]
    TooMany,
    /// The daemon rejected the call or did not respond.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Lists all files of a skill with their digests. The files of a skill over the limits are not
/// digested, because that could take too long.
pub async fn list_skill_files(
    client: &mut Client,
    found: &ResolvedUri<'_>,
) -> Result<SkillFiles, CallError> {
    let mut files = Vec::new();
    for include_digests in [false, true] {
        let listed = list_package(client, found, MAX_SKILL_FILES, include_digests).await;
        let listed = match listed {
            Ok(listed) => listed,
            Err(error) if is_absent(&error) => return Ok(SkillFiles::Gone),
            // One unreadable skill must not fail the whole page.
            Err(error) if is_root_unavailable(&error) => return Ok(SkillFiles::Omitted),
            Err(error) => return Err(error),
        };

        if !is_within_bounds(&listed) {
            return Ok(SkillFiles::Omitted);
        }
        files = listed.resources;
    }

    let mut resources = Vec::with_capacity(files.len());
    for file in files {
        let uri = found.skill.uri_for_handle(&file.resource);
        let Some(uri) = uri.filter(|_| !file.digest.is_empty()) else {
            return Ok(SkillFiles::Omitted);
        };
        resources.push(SkillResource::new(uri, file.digest, file.size_bytes));
    }
    Ok(SkillFiles::Files(resources))
}

/// Whether the list is complete and within the limits of the standard.
fn is_within_bounds(listed: &ListResourcesResponse) -> bool {
    let files = &listed.resources;
    let bytes = files
        .iter()
        .fold(0_u64, |sum, file| sum.saturating_add(file.size_bytes));
    let is_whole = !listed.truncated && listed.next_page_token.is_empty();
    is_whole && files.len() <= MAX_SKILL_FILES && bytes <= MAX_SKILL_BYTES
}

/// Lists the children of a directory, by name.
pub async fn list_children(
    client: &mut Client,
    found: &ResolvedUri<'_>,
) -> Result<Vec<McpResource>, FileError> {
    let listed = list_package(client, found, MAX_WALKED_FILES, false)
        .await
        .map_err(map_absent)?;
    if listed.resources.len() > MAX_WALKED_FILES || listed.truncated {
        return Err(FileError::TooMany);
    }
    let children = direct_children(found, &listed);
    if children.is_empty() {
        Err(FileError::NotADirectory)
    } else {
        Ok(children)
    }
}

/// Selects the direct children of a directory from all files of its package.
fn direct_children(found: &ResolvedUri<'_>, listed: &ListResourcesResponse) -> Vec<McpResource> {
    let mut children = BTreeMap::new();
    for file in &listed.resources {
        let path = file.resource.strip_prefix(&found.handle);
        let Some(below) = path.and_then(|path| path.strip_prefix('/')) else {
            continue;
        };
        let (name, own_file) = match below.split_once('/') {
            Some((name, _)) => (name, None),
            None => (below, Some(file)),
        };

        let handle = format!("{}/{name}", found.handle);
        let Some(uri) = found.skill.uri_for_handle(&handle) else {
            continue;
        };
        children
            .entry(name)
            .or_insert_with(|| child(uri, name, own_file));
    }
    children.into_values().collect()
}

/// Returns a child as a resource: a directory if `file` is `None`.
fn child(uri: String, name: &str, file: Option<&Resource>) -> McpResource {
    let name = percent_encoding::percent_decode_str(name)
        .decode_utf8_lossy()
        .into_owned();
    let child = McpResource::new(uri, escape_hidden_chars(&name));
    match file {
        None => child.with_mime_type(DIRECTORY_MIME_TYPE),
        Some(file) if file.media_type.is_empty() => child.with_size(file.size_bytes),
        Some(file) => child
            .with_size(file.size_bytes)
            .with_mime_type(&file.media_type),
    }
}

/// Reads the whole content of a file with one call.
pub async fn read_file(
    daemon: &ServedDaemon,
    uri: &str,
    found: &ResolvedUri<'_>,
) -> Result<ResourceContents, FileError> {
    let shown_package = &found.skill.skill.package;
    let below = found.handle.strip_prefix(shown_package);
    let below = below.filter(|below| !below.is_empty());
    let below = below.ok_or(FileError::NotFound)?;
    let package = daemon.session.source_package(&found.skill.skill);

    let approved = match found.approved {
        None => None,
        Some(files) => {
            let path = find_approved_path(files, found).ok_or(FileError::NotFound)?;
            Some((files, path))
        }
    };
    let request = ReadResourceRequest {
        root: Some(found.root.clone()),
        resource: format!("{package}{below}"),
        package,
        max_bytes: i64::try_from(MAX_FILE_BYTES).unwrap_or(i64::MAX),
        ..ReadResourceRequest::default()
    };

    let page = daemon.client.read_page(&request).await;
    let page = page.map_err(|error| match map_absent(error) {
        FileError::Call(_) if approved.is_some() => FileError::NotReturned,
        error => error,
    })?;
    if !page.next_cursor.is_empty() {
        return Err(FileError::TooLarge {
            bytes: page.total_bytes,
        });
    }

    if let Some((files, path)) = &approved {
        let bytes = match &page.body {
            Some(Body::Contents(text)) => text.as_bytes(),
            Some(Body::Data(data)) => &data[..],
            None => &[],
        };
        let verified = files.verify_content(path, bytes);
        verified.map_err(|_| FileError::NotVerified)?;
    }
    let contents = match page.body {
        Some(Body::Contents(text)) => text_contents(text, uri),
        Some(Body::Data(data)) => ResourceContents::blob(STANDARD.encode(data), uri),
        None => return Err(CallError::InvalidResponse("a page of a file has no body").into()),
    };

    // A lock has no media type, and the executor's could be any text.
    let media_type = page.media_type;
    Ok(if media_type.is_empty() || approved.is_some() {
        contents
    } else {
        contents.with_mime_type(media_type)
    })
}

/// Returns the path of the file of a handle, if the file is approved.
fn find_approved_path(files: &ApprovedFiles, found: &ResolvedUri<'_>) -> Option<RelPath> {
    let name = found.handle.strip_prefix(&found.skill.skill.package)?;
    let path = parse_file_name(name.strip_prefix('/')?).ok()?;
    files.get(&path).map(|_| path)
}

/// Lists the files of a package: those of the lock without a call, if the skill needs approval.
async fn list_package(
    client: &mut Client,
    found: &ResolvedUri<'_>,
    max_files: usize,
    include_digests: bool,
) -> Result<ListResourcesResponse, CallError> {
    let package = &found.skill.skill.package;
    let Some(files) = found.approved else {
        let request = ListResourcesRequest {
            root: Some(found.root.clone()),
            package: package.clone(),
            include_digests,
            ..ListResourcesRequest::default()
        };
        return client.list_resources_until(&request, max_files).await;
    };

    let resources = files.iter().map(|(path, file)| Resource {
        resource: format!("{package}/{}", encode_path(path)),
        digest: file.digest.to_string(),
        size_bytes: file.bytes,
        executable: file.executable,
        ..Resource::default()
    });
    Ok(ListResourcesResponse {
        resources: resources.collect(),
        ..ListResourcesResponse::default()
    })
}

/// Returns text contents. If JSON escapes would make the text far larger than base64, returns
/// base64: control characters take six bytes in JSON.
fn text_contents(text: String, uri: &str) -> ResourceContents {
    let escaped = text.bytes().map(|b| {
        if b < 0x20 {
            6
        } else {
            1 + usize::from(b"\"\\".contains(&b))
        }
    });
    if escaped.sum::<usize>() > MAX_PAGE_BYTES {
        return ResourceContents::blob(STANDARD.encode(text), uri);
    }
    ResourceContents::text(text, uri)
}

/// Maps the daemon's errors of a missing file and of an invalid handle to `NotFound`.
fn map_absent(error: CallError) -> FileError {
    if is_absent(&error) {
        FileError::NotFound
    } else {
        error.into()
    }
}

fn is_absent(error: &CallError) -> bool {
    use ErrorReason::{InvalidArgument, PackageNotFound, ResourceNotFound};
    matches!(
        error.reason(),
        Some(PackageNotFound | ResourceNotFound | InvalidArgument)
    )
}

/// Whether the daemon reports that the package or its root is unavailable.
fn is_root_unavailable(error: &CallError) -> bool {
    use ErrorReason::{OutsideRoot, RootNotAllowed, RootUnavailable, WrongEnvironment};
    matches!(
        error.reason(),
        Some(RootUnavailable | RootNotAllowed | WrongEnvironment | OutsideRoot)
    )
}
