//! Reads the largest page of a file that fits where it is to go. How much a text takes there is known only
//! once it is read: a page that turns out too large is asked for again, smaller, so that the daemon's own
//! cursor goes on exactly where it ends.

use super::part::Part;
use super::result::{Code, Refusal};
use crate::client::{Client, root_id};
use crate::proto::caproot::v1::read_resource_response::Body;
use crate::proto::caproot::v1::{ReadResourceRequest, ReadResourceResponse};

/// How often a page is asked for; each is at most what was found to fit of the one before.
const ATTEMPTS: usize = 8;
/// The fewest bytes that a daemon gives: room for one character.
const MIN_BYTES: usize = 4;

/// A page of text.
#[derive(Debug)]
pub(super) struct TextPage {
    pub(super) resource: String,
    pub(super) contents: String,
    /// Empty at the end.
    pub(super) next_cursor: String,
}

/// Reads a page of at most `first` bytes. `fit` says of a page how many of its bytes fit; all of them,
/// and the page is taken.
pub(super) async fn read_fitting(
    part: &Part,
    client: &Client,
    mut request: ReadResourceRequest,
    first: usize,
    fit: &(dyn Fn(&TextPage) -> usize + Sync),
) -> Result<TextPage, Refusal> {
    let mut bytes = first;
    for _ in 0..ATTEMPTS {
        if bytes < MIN_BYTES {
            break;
        }
        request.max_bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let page = client.read_page(&request).await;
        let page = text(&request, page.map_err(|error| part.refusal(&error))?)?;
        let fits = fit(&page);
        if fits >= page.contents.len() {
            return Ok(page);
        }
        bytes = fits.min(bytes - 1);
    }
    Err(Refusal::said(Code::TooLarge, "the handles of this file leave no room for its contents"))
}

/// The page, if it is what was asked for, and text.
fn text(request: &ReadResourceRequest, page: ReadResourceResponse) -> Result<TextPage, Refusal> {
    let nonsense = |why: &str| {
        let message = format!("the executor's answer makes no sense: {why}");
        Err(Refusal::said(Code::BadAnswer, &message))
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
            if contents.is_empty() && !page.next_cursor.is_empty() {
                return nonsense("a page is empty, and more follows");
            }
            Ok(TextPage { resource: page.resource, contents, next_cursor: page.next_cursor })
        }
        Some(Body::Data(_)) => {
            let media = if page.media_type.is_empty() { "no text" } else { &page.media_type };
            let message = format!("the file is not text: {media}, {} bytes", page.total_bytes);
            Err(Refusal::said(Code::NotText, &message))
        }
        None => nonsense("a page of a file has no body"),
    }
}
