//! Lists of the files of a skill, for a model: the files below a directory of the package, in pages.

use crate::skills::result::{ToolError, ToolErrorCode, json_escaped_len};
use crate::skills::skill_source::{
    PackageFile, PackageFilesPage, PackageFilesRequest, SkillSource, answer_in_time,
};
use crate::sources::invalid_response_error;
use caproot_core::wire::cursor::{Cursor, CursorKind, CursorReader, CursorWriter};
use serde::Serialize;

/// Limit of a cursor in bytes: the page token of a source can have the path of a file.
pub const MAX_FILES_CURSOR_BYTES: usize = 4 << 10;
/// Limit of a source's page token in bytes. Its cursor is within [`MAX_FILES_CURSOR_BYTES`].
const MAX_PAGE_TOKEN_BYTES: usize = 3_000;
/// Pages of a source that one call looks through for the files of a directory.
const MAX_SOURCE_PAGES: usize = 32;
/// Bytes of the paths in the text of [`describe_files`].
const MAX_DESCRIBED_BYTES: usize = 400;

/// Page of the files below a directory, as a model gets it.
#[derive(Serialize)]
pub struct SkillFilesPage {
    /// Handle of the directory, with `/` at the end.
    resource: String,
    files: Vec<SkillFileEntry>,
    next_cursor: Option<String>,
    truncated: bool,
}

/// File of a page.
#[derive(Serialize)]
struct SkillFileEntry {
    /// Path relative to the package, which the read tool takes as `resource`.
    path: String,
    /// Size; `null` if the source does not know the size.
    bytes: Option<u64>,
}

/// Directory whose files are listed.
pub struct ListedDirectory<'a> {
    pub authority: &'a str,
    pub package: &'a str,
    /// Handle of the directory, with `/` at the end.
    pub directory: &'a str,
}

/// Position in the files of a package.
#[derive(Clone, Default)]
struct SkillFilesCursor {
    /// Token of a page of the source; empty for the first page.
    page_token: String,
    /// Number of files of this page before the position.
    skip: u32,
}

impl Cursor for SkillFilesCursor {
    const KIND: CursorKind = CursorKind::SessionFiles;

    fn write_fields(&self, fields: &mut CursorWriter) {
        fields.write_bytes(self.page_token.as_bytes());
        fields.write_number(self.skip.into());
    }

    fn read_fields(fields: &mut CursorReader<'_>) -> Option<Self> {
        Some(Self {
            page_token: fields.read_text()?.to_owned(),
            skip: fields.read_small()?,
        })
    }
}

impl SkillFileEntry {
    /// Returns the bytes of the entry in a list, with a comma.
    fn json_bytes(&self) -> usize {
        let frame = r#"{"path":"","bytes":},"#.len();
        let bytes = self.bytes.map_or(4, |bytes| bytes.to_string().len());
        frame + json_escaped_len(&self.path) + bytes
    }
}

impl SkillFilesPage {
    fn continued_at(mut self, cursor: String) -> Self {
        self.next_cursor = Some(cursor);
        self.truncated = true;
        self
    }
}

/// Lists the files below a directory from a cursor on, as many as fit into a result of `max_bytes`
/// bytes. Files that are created or removed meanwhile may be missing. A directory without files does not exist.
pub async fn list_directory(
    source: &dyn SkillSource,
    listed: &ListedDirectory<'_>,
    cursor: &str,
    max_bytes: usize,
) -> Result<SkillFilesPage, ToolError> {
    let binding = listed.directory.as_bytes();
    let is_first = cursor.is_empty();
    let mut position = if is_first {
        SkillFilesCursor::default()
    } else {
        SkillFilesCursor::decode(cursor, binding).ok_or_else(|| {
            let message = "no list of this directory returned such a cursor";
            ToolError::from_code(ToolErrorCode::InvalidCursor, message)
        })?
    };

    let mut list = SkillFilesPage {
        resource: listed.directory.to_owned(),
        files: Vec::new(),
        next_cursor: None,
        truncated: false,
    };
    let frame = r#"{"resource":"","files":[],"next_cursor":"","truncated":false}"#.len();
    let mut used = frame + json_escaped_len(listed.directory);
    for _ in 0..MAX_SOURCE_PAGES {
        let page = fetch_page(source, listed, &position.page_token).await?;
        list.truncated |= page.truncated;
        let next = SkillFilesCursor {
            page_token: page.next_page_token,
            skip: 0,
        };

        // The result may end with a cursor into this page, or with the start of the next page.
        let longest = SkillFilesCursor {
            skip: u32::MAX,
            ..position.clone()
        };
        let cursors = [&longest, &next].map(|cursor| cursor.encode(binding).len());
        let cursor_bytes = cursors[0].max(cursors[1]);

        for (index, file) in (0..).zip(page.files).skip(position.skip as usize) {
            let Some(entry) = entry_below(listed, &file) else {
                continue;
            };
            used += entry.json_bytes();
            if used + cursor_bytes > max_bytes {
                position.skip = index;
                return Ok(list.continued_at(position.encode(binding)));
            }
            list.files.push(entry);
        }

        if next.page_token.is_empty() {
            if is_first && list.files.is_empty() {
                return Err(ToolError::from_code(
                    ToolErrorCode::ResourceNotFound,
                    "the skill has no files in such a directory",
                ));
            }
            return Ok(list);
        }
        position = next;
    }
    Ok(list.continued_at(position.encode(binding)))
}

/// Returns whether a cursor continues the list of a directory.
pub fn is_files_cursor(directory: &str, cursor: &str) -> bool {
    SkillFilesCursor::decode(cursor, directory.as_bytes()).is_some()
}

/// Returns a sentence with the paths of a skill's first files besides its main resource, for a
/// model; `None` if there are none. The paths have no character that could end a tag.
pub async fn describe_files(
    source: &dyn SkillSource,
    listed: &ListedDirectory<'_>,
    main_resource: &str,
) -> Result<Option<String>, ToolError> {
    let page = fetch_page(source, listed, "").await?;
    let mut others = page
        .files
        .iter()
        .filter(|file| file.resource != main_resource)
        .filter_map(|file| entry_below(listed, file))
        .peekable();
    if others.peek().is_none() {
        return Ok(None);
    }

    let mut text = String::new();
    let mut separator = "";
    while let Some(entry) = others
        .next_if(|entry| text.len() + separator.len() + entry.path.len() <= MAX_DESCRIBED_BYTES)
    {
        text.push_str(separator);
        text.push_str(&entry.path);
        separator = ", ";
    }

    let is_complete = others.peek().is_none() && page.next_page_token.is_empty();
    let rest = if is_complete { "" } else { " and more" };
    Ok(Some(format!("Other files of this skill: {text}{rest}")))
}

async fn fetch_page(
    source: &dyn SkillSource,
    listed: &ListedDirectory<'_>,
    page_token: &str,
) -> Result<PackageFilesPage, ToolError> {
    let request = PackageFilesRequest {
        authority: listed.authority.to_owned(),
        package: listed.package.to_owned(),
        page_token: page_token.to_owned(),
    };
    let page = answer_in_time(source, source.list_files(&request)).await?;

    if page.next_page_token.len() > MAX_PAGE_TOKEN_BYTES {
        let phrase = source.kind().describe(source.id());
        return Err(invalid_response_error(&phrase, "a page token is too long"));
    }
    Ok(page)
}

/// Returns the entry of a file, or `None` if the file is not below the directory.
fn entry_below(listed: &ListedDirectory<'_>, file: &PackageFile) -> Option<SkillFileEntry> {
    if !file.resource.starts_with(listed.directory) {
        return None;
    }
    let path = file.resource.strip_prefix(listed.package)?;
    Some(SkillFileEntry {
        path: path.strip_prefix('/')?.to_owned(),
        bytes: file.size_bytes,
    })
}
