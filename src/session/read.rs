//! `skills.read`: a page of one file, of a skill that is in the live catalog now.

use super::Session;
use super::arguments::ReadArguments;
use super::fitting::{TextPage, read_fitting};
use super::part::Part;
use super::result::{Code, MAX_RESULT_BYTES, Refusal, escaped_len, fits_escaped};
use crate::client::root_id;
use crate::proto::caproot::v1::{
    Authority, ReadResourceRequest, RootState, SelectedCapabilityRoot,
};
use serde::Serialize;

/// What a cursor takes, before one is known; those of a caproot are about half of it.
const TYPICAL_CURSOR: usize = 200;

/// A page.
#[derive(Debug, Serialize)]
pub(super) struct Page {
    resource: String,
    contents: String,
    next_cursor: Option<String>,
    truncated: bool,
}

impl Session {
    /// Reads a page, or says why not.
    pub(super) async fn read(&self, arguments: &ReadArguments) -> Result<Page, Refusal> {
        arguments.check()?;
        let ReadArguments { authority, package, resource, cursor } = arguments;
        let (part, root) = self.listed(&authority.kind, &authority.id, package)?;
        let is_inside = resource.is_empty()
            || resource.strip_prefix(package.as_str()).is_some_and(|rest| rest.starts_with('/'));
        if !is_inside {
            let message = "the resource is not in the package";
            return Err(Refusal::said(Code::ResourceNotFound, message));
        }
        let mut request = request(root, package);
        request.resource.clone_from(resource);
        request.cursor = cursor.clone().unwrap_or_default();
        let (client, _turn) = part.turn().await?;
        // What the handle takes is known before; of the main resource, whose handle is not, nearly.
        let named = if resource.is_empty() { package.len() + 16 } else { resource.len() };
        let first = MAX_RESULT_BYTES.saturating_sub(bare(named, TYPICAL_CURSOR));
        let had_cursor = !request.cursor.is_empty();
        let page = read_fitting(part, &client, request, first, &fits).await;
        let page = page.map_err(|refusal| match refusal.code {
            // Everything else in the request was just looked up.
            Code::InvalidArguments if had_cursor => Refusal::said(
                Code::InvalidCursor,
                "the cursor is none that skills.read gave for this file",
            ),
            _ => refusal,
        })?;
        let TextPage { resource, contents, next_cursor } = page;
        let next_cursor = Some(next_cursor).filter(|cursor| !cursor.is_empty());
        Ok(Page { resource, contents, truncated: next_cursor.is_some(), next_cursor })
    }

    /// The executor and the root of a package that is in the live catalog now.
    pub(super) fn listed(
        &self,
        kind: &str,
        id: &str,
        package: &str,
    ) -> Result<(&Part, &SelectedCapabilityRoot), Refusal> {
        let selected = self.part_of(id).filter(|_| kind == "executor");
        let part = selected.ok_or_else(|| {
            let message = format!("no authority {{kind: {kind:?}, id: {id:?}}} is in this session");
            let next = "Call skills.list, and use the authority that it gives for the package.";
            Refusal::new(Code::UnknownAuthority, &message, next)
        })?;
        if root_id(package).as_deref() != Some(id) {
            let message = "the package is not this authority's";
            let next = "Use authority and package of one entry of skills.list.";
            return Err(Refusal::new(Code::WrongAuthority, message, next));
        }
        let catalog = part.catalog().map_err(|why| part.unavailable(&why))?;
        if catalog.skill(package).is_none() {
            let status = catalog.roots().iter().find(|root| root.id == id);
            if let Some(status) = status.filter(|status| status.state() != RootState::Ready) {
                let message = format!("the root {id:?} is not ready: {}", status.message);
                return Err(Refusal::said(Code::RootUnavailable, &message));
            }
            let message = "there is no such skill now";
            return Err(Refusal::said(Code::PackageNotFound, message));
        }
        let root = part.root(id).ok_or_else(|| part.unavailable("its roots are others"))?;
        Ok((part, root))
    }
}

/// A request for the first page of a package's main resource.
pub(super) fn request(root: &SelectedCapabilityRoot, package: &str) -> ReadResourceRequest {
    ReadResourceRequest {
        root: Some(root.clone()),
        authority: Some(Authority { kind: "executor".to_owned(), id: root.id.clone() }),
        package: package.to_owned(),
        ..ReadResourceRequest::default()
    }
}

/// What a result takes without contents.
fn bare(resource: usize, cursor: usize) -> usize {
    let frame = r#"{"resource":"","contents":"","next_cursor":"","truncated":false}"#;
    frame.len() + resource + cursor
}

/// How many bytes of a page fit into a result.
fn fits(page: &TextPage) -> usize {
    let resource = escaped_len(&page.resource);
    let room = |cursor| MAX_RESULT_BYTES.saturating_sub(bare(resource, cursor));
    let cursor = escaped_len(&page.next_cursor);
    if escaped_len(&page.contents) <= room(cursor) {
        return page.contents.len();
    }
    // A page that is not the last has a cursor, though this one may have none.
    fits_escaped(&page.contents, room(cursor.max(TYPICAL_CURSOR)))
}

#[cfg(test)]
mod tests {
    use super::{MAX_RESULT_BYTES, Page, TYPICAL_CURSOR, TextPage, bare, fits};
    use crate::session::result::ToolResult;
    use proptest::prelude::*;

    /// Pages a text as a daemon does, and takes of each what fits; what every result held.
    fn paged(text: &str, resource: &str, cursor: &str) -> Vec<String> {
        let (mut pages, mut at) = (Vec::new(), 0);
        loop {
            let mut bytes = MAX_RESULT_BYTES.saturating_sub(bare(resource.len(), TYPICAL_CURSOR));
            let page = loop {
                let end = text.floor_char_boundary(text.len().min(at + bytes));
                let next_cursor = if end < text.len() { cursor } else { "" }.to_owned();
                let contents = text[at..end].to_owned();
                let page = TextPage { resource: resource.to_owned(), contents, next_cursor };
                let fits = fits(&page);
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
            let page = Page { resource, contents, next_cursor, truncated };
            let result = ToolResult::of(Ok(&page));
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

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

        #[test]
        fn pages_join_to_the_file(text in text(), resource in "[a-z/]{1,2000}", cursor in "[A-Za-z0-9_-]{1,200}") {
            prop_assert_eq!(paged(&text, &resource, &cursor).concat(), text);
        }
    }
}
