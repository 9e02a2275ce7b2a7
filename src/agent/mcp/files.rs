//! Files of a skill, from the source of the session, as a host sees them. The daemon caches digests by
//! file version. No digest is cached here, so a digest always belongs to the version that is read.

use super::call_error::McpCallError;
use super::limits::{MAX_PAGE_BYTES, MAX_SKILL_BYTES, MAX_SKILL_FILES, MAX_WALKED_FILES};
use super::view::{ResolvedUri, ServedSkill};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use caproot_core::text::escape_hidden_chars;
use caproot_core::wire::handle::encode_path;
use caproot_session::sources::{PackageFile, PackageFilesRequest, TextPageRequest};
use caproot_session::{Session, SkillSource};
use rmcp::model::{DIRECTORY_MIME_TYPE, Resource, ResourceContents, SkillResource};
use std::collections::BTreeMap;

/// Source of a skill, with the ids by which the source knows the skill.
struct SkillFileSource<'a> {
    source: &'a dyn SkillSource,
    authority: &'a str,
    package: &'a str,
}

impl<'a> SkillFileSource<'a> {
    fn find(session: &'a Session, skill: &'a ServedSkill) -> Result<Self, McpCallError> {
        let skill = &skill.skill;
        let authority = skill.authority.as_ref().ok_or(McpCallError::NotFound)?;
        Ok(Self {
            source: session.source_of(skill).ok_or(McpCallError::NotFound)?,
            authority: &authority.id,
            package: &skill.package,
        })
    }

    /// Lists all files. Returns `None` if there are more than `max_files`, or if the list is incomplete.
    async fn list_files(&self, max_files: usize) -> Result<Option<Vec<PackageFile>>, McpCallError> {
        let mut files = Vec::new();
        let mut request = PackageFilesRequest {
            authority: self.authority.to_owned(),
            package: self.package.to_owned(),
            page_token: String::new(),
        };
        // A page has a file, unless the source is faulty.
        for _ in 0..=max_files {
            let page = self.source.list_files(&request).await?;
            files.extend(page.files);
            if page.truncated || files.len() > max_files {
                return Ok(None);
            }
            if page.next_page_token.is_empty() {
                return Ok(Some(files));
            }
            request.page_token = page.next_page_token;
        }
        Ok(None)
    }
}

/// Lists all files of a skill with their digests. Returns `None` if the skill does not meet the standard:
/// too many or too large files, or an incomplete list.
pub async fn list_skill_files(
    session: &Session,
    skill: &ServedSkill,
) -> Result<Option<Vec<SkillResource>>, McpCallError> {
    let origin = SkillFileSource::find(session, skill)?;

    // Files over the limits are not digested, because that could take too long.
    let listed = origin.list_files(MAX_SKILL_FILES).await?;
    let sizes = listed.iter().flatten().filter_map(|file| file.size_bytes);
    if listed.is_none() || sizes.fold(0, u64::saturating_add) > MAX_SKILL_BYTES {
        return Ok(None);
    }

    let files = origin
        .source
        .skill_files(origin.authority, origin.package)
        .await?;
    let resources = files.iter().map(|(path, file)| {
        let uri = format!("{}/{}", skill.uri(), encode_path(path));
        SkillResource::new(uri, file.digest.to_string(), file.bytes)
    });
    Ok(Some(resources.collect()))
}

/// Lists the children of a directory, by name.
pub async fn list_children(
    session: &Session,
    found: &ResolvedUri<'_>,
) -> Result<Vec<Resource>, McpCallError> {
    let listed = SkillFileSource::find(session, found.skill)?
        .list_files(MAX_WALKED_FILES)
        .await?
        .ok_or(McpCallError::TooManyFiles)?;

    let mut children = BTreeMap::new();
    for file in &listed {
        let path = file.resource.strip_prefix(&found.handle);
        let Some(below) = path.and_then(|path| path.strip_prefix('/')) else {
            continue;
        };
        let (name, own_file) = match below.split_once('/') {
            Some((name, _)) => (name, None),
            None => (below, Some(file)),
        };
        if let Some(uri) = found
            .skill
            .uri_for_handle(&format!("{}/{name}", found.handle))
        {
            children
                .entry(name)
                .or_insert_with(|| child(uri, name, own_file));
        }
    }

    // The list has only files: an empty directory looks like a file.
    if children.is_empty() {
        return Err(McpCallError::NotADirectory);
    }
    Ok(children.into_values().collect())
}

/// Returns a child as a resource: a directory if `file` is `None`.
fn child(uri: String, name: &str, file: Option<&PackageFile>) -> Resource {
    let name = percent_encoding::percent_decode_str(name)
        .decode_utf8_lossy()
        .into_owned();
    let mut child = Resource::new(uri, escape_hidden_chars(&name));
    let Some(file) = file else {
        return child.with_mime_type(DIRECTORY_MIME_TYPE);
    };
    child.size = file.size_bytes;
    if file.media_type.is_empty() {
        child
    } else {
        child.with_mime_type(&file.media_type)
    }
}

/// Reads the whole content of a file of at most `max_bytes`.
pub async fn read_file(
    session: &Session,
    uri: &str,
    found: &ResolvedUri<'_>,
    max_bytes: usize,
) -> Result<ResourceContents, McpCallError> {
    let origin = SkillFileSource::find(session, found.skill)?;
    if found.handle == origin.package {
        return Err(McpCallError::NotFound);
    }
    let request = TextPageRequest {
        authority: origin.authority.to_owned(),
        package: origin.package.to_owned(),
        resource: found.handle.clone(),
        cursor: String::new(),
        max_bytes,
    };
    let file = origin.source.read_whole(&request).await?;

    // JSON escapes could make a text far larger than base64: control characters take six bytes.
    let contents = match String::from_utf8(file.bytes) {
        Ok(text) if escaped_bytes(&text) <= MAX_PAGE_BYTES.max(text.len() / 3 * 4) => {
            ResourceContents::text(text, uri)
        }
        Ok(text) => ResourceContents::blob(STANDARD.encode(text), uri),
        Err(error) => ResourceContents::blob(STANDARD.encode(error.as_bytes()), uri),
    };
    Ok(if file.media_type.is_empty() {
        contents
    } else {
        contents.with_mime_type(file.media_type)
    })
}

/// Returns the bytes of a text in JSON.
fn escaped_bytes(text: &str) -> usize {
    text.bytes()
        .map(|byte| match byte {
            0..0x20 => 6,
            b'"' | b'\\' => 2,
            _ => 1,
        })
        .sum()
}
