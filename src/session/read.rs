//! `skills.read`: a page of one file, of a skill that is in the live catalog now.

use super::Session;
use super::arguments::ReadArguments;
use super::fitting::read_fitting;
use super::result::{
    MAX_RESULT_BYTES, ToolError, ToolErrorCode, json_escaped_len, json_escaped_prefix_len,
};
use super::source::{SkillSource, TextPage, TextPageRequest};
use serde::Serialize;

/// What a cursor takes, before one is known; those of a caproot are about half of it.
const TYPICAL_CURSOR_BYTES: usize = 200;

/// A page.
#[derive(Debug, Serialize)]
pub(super) struct ReadPage {
    resource: String,
    contents: String,
    next_cursor: Option<String>,
    truncated: bool,
}

impl Session {
    /// Reads a page, or says why not.
    pub(super) async fn read_page(&self, arguments: &ReadArguments) -> Result<ReadPage, ToolError> {
        arguments.check_sizes()?;
        let ReadArguments { authority, package, resource, cursor } = arguments;
        let source = self.source_for_authority(&authority.kind, &authority.id)?;
        let wanted = TextPageRequest {
            authority: authority.id.clone(),
            package: package.clone(),
            resource: resource.clone(),
            cursor: cursor.clone().unwrap_or_default(),
            max_bytes: 0,
        };
        // What the handle takes is known before; of the main resource, whose handle is not, nearly.
        let named = if resource.is_empty() { package.len() + 16 } else { resource.len() };
        let first = MAX_RESULT_BYTES.saturating_sub(result_overhead(named, TYPICAL_CURSOR_BYTES));
        let had_cursor = !wanted.cursor.is_empty();
        let page = read_fitting(source, wanted, first, &fitting_bytes).await;
        let page = page.map_err(|refusal| match refusal.code {
            // Everything else in the request was just looked up.
            ToolErrorCode::InvalidArguments if had_cursor => ToolError::from_code(
                ToolErrorCode::InvalidCursor,
                &self
                    .inner
                    .tool_names
                    .fill_placeholders("{read} gave no such cursor for this file"),
            ),
            _ => refusal,
        })?;
        let TextPage { resource, contents, next_cursor } = page;
        let next_cursor = Some(next_cursor).filter(|cursor| !cursor.is_empty());
        Ok(ReadPage { resource, contents, truncated: next_cursor.is_some(), next_cursor })
    }

    /// The source that answers for an authority; no other is asked in its place.
    pub(super) fn source_for_authority(
        &self,
        kind: &str,
        id: &str,
    ) -> Result<&dyn SkillSource, ToolError> {
        let mut authorities = self.authorities.iter();
        let found = authorities.find(|(its, authority, _)| its.name() == kind && authority == id);
        let (_, _, at) = found.ok_or_else(|| {
            let message = format!("no authority {{kind: {kind:?}, id: {id:?}}} is in this session");
            ToolError::from_code(ToolErrorCode::UnknownAuthority, &message)
        })?;
        Ok(&*self.sources[*at])
    }
}

/// The length of a result without its contents. `null` is the longest text around a cursor: the last page
/// has no cursor, and `null` is longer than two quotation marks.
fn result_overhead(resource: usize, cursor: usize) -> usize {
    let frame = r#"{"resource":"","contents":"","next_cursor":null,"truncated":false}"#;
    frame.len() + resource + cursor
}

/// How many bytes of a page fit into a result.
fn fitting_bytes(page: &TextPage) -> usize {
    let resource = json_escaped_len(&page.resource);
    let room = |cursor| MAX_RESULT_BYTES.saturating_sub(result_overhead(resource, cursor));
    let cursor = json_escaped_len(&page.next_cursor);
    if json_escaped_len(&page.contents) <= room(cursor) {
        return page.contents.len();
    }
    // A page that is not the last has a cursor, though this one may have none.
    json_escaped_prefix_len(&page.contents, room(cursor.max(TYPICAL_CURSOR_BYTES)))
}

#[cfg(test)]
mod tests {
    use super::{
        MAX_RESULT_BYTES, ReadPage, TYPICAL_CURSOR_BYTES, TextPage, fitting_bytes, result_overhead,
    };
    use crate::session::ToolNames;
    use crate::session::result::ToolResult;
    use proptest::prelude::*;

    /// Pages a text as a daemon does, and takes of each what fits; what every result held.
    fn page_through(text: &str, resource: &str, cursor: &str) -> Vec<String> {
        let (mut pages, mut at) = (Vec::new(), 0);
        loop {
            let mut bytes = MAX_RESULT_BYTES
                .saturating_sub(result_overhead(resource.len(), TYPICAL_CURSOR_BYTES));
            let page = loop {
                let end = text.floor_char_boundary(text.len().min(at + bytes));
                let next_cursor = if end < text.len() { cursor } else { "" }.to_owned();
                let contents = text[at..end].to_owned();
                let page = TextPage { resource: resource.to_owned(), contents, next_cursor };
                let fits = fitting_bytes(&page);
                if fits >= page.contents.len() {
                    break page;
                }
                assert!(fits >= 4 && fits < bytes, "each is smaller, and none too small");
                bytes = fits;
            };
            at += page.contents.len();
            let next_cursor = Some(page.next_cursor.clone()).filter(|cursor| !cursor.is_empty());
            let truncated = next_cursor.is_some();
            let TextPage { resource, contents, .. } = page;
            let page = ReadPage { resource, contents, next_cursor, truncated };
            let result = ToolResult::from_outcome(Ok(&page), &ToolNames::default());
            assert!(result.success && result.json.len() <= MAX_RESULT_BYTES);
            pages.push(page.contents);
            if !truncated {
                return pages;
            }
        }
    }

    fn text() -> impl Strategy<Value = String> {
        let run = prop_oneof![
            Just("\u{1}"),
            Just("\""),
            Just("\\"),
            Just("\n"),
            Just("🦀"),
            Just("ä"),
            Just("x"),
            Just("\u{7f}"),
        ];
        prop::collection::vec((run, 0_usize..6_000), 0..12)
            .prop_map(|runs| runs.into_iter().map(|(part, count)| part.repeat(count)).collect())
    }

    #[test]
    fn a_last_page_may_fill_the_result() {
        for part in ["x", "\""] {
            for length in 7_900..MAX_RESULT_BYTES {
                let text = part.repeat(length / part.escape_default().count());
                assert_eq!(page_through(&text, "r", "cursor").concat(), text);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

        #[test]
        fn pages_join_to_the_file(text in text(), resource in "[a-z/]{1,2000}", cursor in "[A-Za-z0-9_-]{1,200}") {
            prop_assert_eq!(page_through(&text, &resource, &cursor).concat(), text);
        }
    }
}
