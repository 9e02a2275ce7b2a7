//! Results of servers as pages for a model. The rest of a long result is stored for its cursor.

use super::limits::{MAX_IMAGES, MAX_STORED_BYTES, MAX_TEXT_BYTES};
use crate::skills::result::{ResultImage, json_escaped_prefix_len};
use crate::tools::{ToolFailure, ToolOutput};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use caproot_core::sync::Mutex;
use caproot_core::text::escape_hidden_chars;
use caproot_core::wire::cursor::{Cursor, CursorKind, CursorReader, CursorWriter};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde::Serialize;
use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

/// Bytes of a page for all fields except `contents` and `media`.
const PAGE_OVERHEAD: usize = 256;
/// Longest name of a type, such as `image/png`.
const MAX_TYPE_BYTES: usize = 64;
/// Type of content whose server names no valid type.
const UNKNOWN_TYPE: &str = "application/octet-stream";

/// Texts of the latest results that have more than one page, the most recent first.
#[derive(Debug, Default)]
pub struct ResultStore {
    /// Limit of a page's JSON in bytes.
    max_bytes: usize,
    stored: Mutex<VecDeque<StoredText>>,
    /// Keys of the ids, so that a cursor of another session is not found.
    keys: RandomState,
}

#[derive(Debug, Clone)]
struct StoredText {
    id: u64,
    text: Arc<str>,
    /// Whether a limit cut the text.
    truncated: bool,
}

/// Position in a stored text.
struct ResultCursor {
    id: u64,
    offset: u32,
}

impl Cursor for ResultCursor {
    const KIND: CursorKind = CursorKind::ServerResult;

    fn write_fields(&self, fields: &mut CursorWriter) {
        fields.write_hash(self.id);
        fields.write_number(self.offset.into());
    }

    fn read_fields(fields: &mut CursorReader<'_>) -> Option<Self> {
        Some(Self {
            id: fields.read_hash()?,
            offset: fields.read_small()?,
        })
    }
}

/// Page of a result for a model.
#[derive(Serialize)]
struct ResultPage<'a> {
    contents: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    media: Vec<MediaLabel<'a>>,
    next_cursor: Option<String>,
    truncated: bool,
}

/// Image, sound or file of a result, as its page names it.
#[derive(Serialize)]
struct MediaLabel<'a> {
    r#type: &'a str,
    bytes: usize,
}

/// Text and images of a result.
#[derive(Default)]
struct ResultParts {
    text: String,
    images: Vec<ResultImage>,
    truncated: bool,
}

impl ResultStore {
    /// Returns an empty store for pages of at most `max_bytes` bytes.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            ..Self::default()
        }
    }

    /// Returns the first page of a result. A result that is an error is the error of the call.
    pub fn first_page(&self, result: CallToolResult) -> Result<ToolOutput, ToolFailure> {
        let is_error = result.is_error == Some(true);
        let mut parts = ResultParts::default();
        for block in result.content {
            parts.add_block(block);
        }
        if parts.text.is_empty()
            && let Some(structured) = result.structured_content
        {
            parts.add_text(&structured.to_string());
        }
        if is_error {
            return Err(ToolFailure::FunctionError(parts.text));
        }

        let text = StoredText {
            id: 0,
            text: parts.text.into(),
            truncated: parts.truncated,
        };
        self.page(text, 0, parts.images)
    }

    /// Returns the page of a cursor.
    pub fn next_page(&self, cursor: &str) -> Result<ToolOutput, ToolFailure> {
        let cursor = ResultCursor::decode(cursor, b"");
        let found = cursor.and_then(|cursor| {
            let stored = self.stored.lock();
            let text = stored.iter().find(|text| text.id == cursor.id).cloned()?;
            let offset = cursor.offset as usize;
            // A cursor is not signed, and an offset inside a character would panic.
            text.text.is_char_boundary(offset).then_some((text, offset))
        });
        let (text, offset) = found.ok_or_else(|| {
            let reason =
                "there is no result with this cursor now; call the tool of the server again";
            ToolFailure::FunctionError(reason.to_owned())
        })?;
        self.page(text, offset, Vec::new())
    }

    /// Returns the page of a text at an offset, and stores the text if more follows.
    fn page(
        &self,
        mut text: StoredText,
        offset: usize,
        images: Vec<ResultImage>,
    ) -> Result<ToolOutput, ToolFailure> {
        let media: Vec<_> = images
            .iter()
            .map(|image| MediaLabel {
                r#type: &image.mime_type,
                bytes: image.bytes.len(),
            })
            .collect();
        let media_bytes = serde_json::to_string(&media).map_or(0, |json| json.len());
        let room = self.max_bytes.saturating_sub(PAGE_OVERHEAD + media_bytes);

        let whole = text.text.clone();
        let rest = &whole[offset..];
        let contents = &rest[..json_escaped_prefix_len(rest, room)];
        let next = offset + contents.len();
        let has_more = next < whole.len();
        if has_more && text.id == 0 {
            text.id = self.store_text(&text);
        }

        let cursor = ResultCursor {
            id: text.id,
            offset: u32::try_from(next).unwrap_or(u32::MAX),
        };
        let page = ResultPage {
            contents,
            media,
            next_cursor: has_more.then(|| cursor.encode(b"")),
            truncated: has_more || text.truncated,
        };
        let json = serde_json::to_string(&page)?;
        Ok(ToolOutput { json, images })
    }

    /// Stores a text, in place of the oldest texts. Returns its id.
    fn store_text(&self, text: &StoredText) -> u64 {
        let mut stored = self.stored.lock();
        let latest = stored.front().map_or(0, |text| text.id);
        // Zero means that a text is not stored.
        let id = self.keys.hash_one((latest, &text.text)) | 1;
        stored.retain(|other| other.id != id);
        stored.push_front(StoredText { id, ..text.clone() });

        let mut bytes = 0;
        stored.retain(|text| {
            // The entry itself has a size, too.
            bytes += text.text.len() + 64;
            bytes <= MAX_STORED_BYTES
        });
        id
    }
}

impl ResultParts {
    fn add_block(&mut self, block: ContentBlock) {
        match block {
            ContentBlock::Text(text) => self.add_text(&text.text),
            ContentBlock::Image(image) => self.add_media(&image.mime_type, &image.data),
            ContentBlock::Audio(audio) => self.add_media(&audio.mime_type, &audio.data),
            ContentBlock::ResourceLink(link) => {
                self.add_text(&format!("resource: {}", link.uri));
            }
            ContentBlock::Resource(embedded) => match embedded.resource {
                ResourceContents::TextResourceContents { text, .. } => self.add_text(&text),
                ResourceContents::BlobResourceContents {
                    mime_type, blob, ..
                } => self.add_media(mime_type.as_deref().unwrap_or_default(), &blob),
                _ => self.add_text("content of an unknown kind"),
            },
            _ => self.add_text("content of an unknown kind"),
        }
    }

    /// Adds a text on lines of its own, up to the limit, with hidden characters escaped.
    fn add_text(&mut self, text: &str) {
        let text = escape_hidden_chars(text);
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        let room = MAX_TEXT_BYTES.saturating_sub(self.text.len());
        self.truncated |= text.len() > room;
        self.text.push_str(&text[..text.floor_char_boundary(room)]);
    }

    fn add_media(&mut self, mime_type: &str, base64: &str) {
        if self.images.len() >= MAX_IMAGES {
            self.truncated = true;
            return;
        }
        match STANDARD.decode(base64) {
            Ok(bytes) => self.images.push(ResultImage {
                mime_type: clean_type(mime_type),
                bytes,
            }),
            Err(_) => self.add_text("an image that is not base64"),
        }
    }
}

/// Returns a type, if it is a short word such as `image/png`.
fn clean_type(mime_type: &str) -> String {
    let is_valid = (1..=MAX_TYPE_BYTES).contains(&mime_type.len())
        && mime_type
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"/+.-".contains(&byte));
    let known = if is_valid { mime_type } else { UNKNOWN_TYPE };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use super::{ResultStore, escape_hidden_chars};
    use crate::skills::result::DEFAULT_RESULT_BYTES;
    use proptest::prelude::*;
    use rmcp::model::{CallToolResult, ContentBlock};
    use serde_json::Value;

    fn text_result(text: &str) -> CallToolResult {
        CallToolResult::success(vec![ContentBlock::text(text)])
    }

    proptest! {
        #[test]
        fn the_pages_of_a_result_are_its_text(text in "(?s).{0,200}", copies in 1_usize..300) {
            let text = text.repeat(copies);
            let store = ResultStore::new(DEFAULT_RESULT_BYTES);
            let mut output = store.first_page(text_result(&text)).expect("a page");
            let mut joined = String::new();
            loop {
                prop_assert!(output.json.len() <= DEFAULT_RESULT_BYTES);
                let page: Value = serde_json::from_str(&output.json).expect("JSON");
                joined.push_str(page["contents"].as_str().expect("a text"));
                let Some(cursor) = page["next_cursor"].as_str() else {
                    break;
                };
                output = store.next_page(cursor).expect("a stored page");
            }
            prop_assert_eq!(joined, escape_hidden_chars(&text));
        }
    }

    #[test]
    fn the_store_is_bounded() {
        let store = ResultStore::new(DEFAULT_RESULT_BYTES);
        let mut cursors = Vec::new();
        for number in 0..8 {
            let text = number.to_string().repeat(1 << 20);
            let output = store.first_page(text_result(&text)).expect("a page");
            let page: Value = serde_json::from_str(&output.json).expect("JSON");
            cursors.push(page["next_cursor"].as_str().expect("more").to_owned());
        }
        assert!(store.next_page(&cursors[7]).is_ok());
        assert!(store.next_page(&cursors[0]).is_err());
        assert!(store.next_page("x").is_err());
        assert!(
            ResultStore::new(DEFAULT_RESULT_BYTES)
                .next_page(&cursors[7])
                .is_err()
        );
    }
}
