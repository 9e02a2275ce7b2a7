//! A daemon's answer to a read, as a source's page. Pure; leaves asking to `daemon`.

use super::TextPage;
use crate::client::root_id;
use crate::proto::caproot::v1::read_resource_response::Body;
use crate::proto::caproot::v1::{ReadResourceRequest, ReadResourceResponse};
use crate::session::result::{ToolError, ToolErrorCode};

/// The page, if it is what was asked for, and text.
pub(super) fn to_text_page(
    request: &ReadResourceRequest,
    page: ReadResourceResponse,
) -> Result<TextPage, ToolError> {
    let nonsense = |why: &str| {
        let message = format!("the executor's answer makes no sense: {why}");
        Err(ToolError::from_code(ToolErrorCode::InvalidResponse, &message))
    };
    let is_asked = if request.resource.is_empty() {
        root_id(&page.resource) == root_id(&request.package)
    } else {
        page.resource == request.resource
    };
    if !is_asked {
        return nonsense("it is of another file");
    }
    match page.body {
        Some(Body::Contents(contents)) => {
            Ok(TextPage { resource: page.resource, contents, next_cursor: page.next_cursor })
        }
        Some(Body::Data(_)) => {
            let media = if page.media_type.is_empty() { "no text" } else { &page.media_type };
            let message = format!("the file is not text: {media}, {} bytes", page.total_bytes);
            Err(ToolError::from_code(ToolErrorCode::NotText, &message))
        }
        None => nonsense("a page of a file has no body"),
    }
}
