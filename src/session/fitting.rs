//! Reads the largest page of a file that fits where it is to go. How much a text takes there is known only
//! once it is read: a page that turns out too large is asked for again, smaller, so that the source's own
//! cursor goes on exactly where it ends. Whatever the source, a page is bounded in bytes and in time.

use super::result::{ToolError, ToolErrorCode};
use super::source::{SkillSource, TextPage, TextPageRequest, unavailable_error};
use crate::client::MAX_CURSOR_BYTES;
use tokio::time::timeout;

/// How often a page is asked for; each is at most what was found to fit of the one before.
const MAX_ATTEMPTS: usize = 8;
/// The fewest bytes that a source gives: room for one character.
const MIN_BYTES: usize = 4;

/// Reads a page of at most `first` bytes. `fit` says of a page how many of its bytes fit; all of them,
/// and the page is taken.
pub(super) async fn read_fitting(
    source: &dyn SkillSource,
    mut wanted: TextPageRequest,
    first: usize,
    fit: &(dyn Fn(&TextPage) -> usize + Sync),
) -> Result<TextPage, ToolError> {
    let mut bytes = first;
    for _ in 0..MAX_ATTEMPTS {
        if bytes < MIN_BYTES {
            break;
        }
        wanted.max_bytes = bytes;
        let page = timeout(source.read_timeout(), source.read_page(&wanted)).await;
        let page = page.unwrap_or_else(|_| {
            Err(unavailable_error(source.kind(), source.id(), "it does not answer in time"))
        })?;
        let nonsense = |why: &str| {
            let who = source.kind().describe(source.id());
            let message = format!("the answer of {who} makes no sense: {why}");
            Err(ToolError::from_code(ToolErrorCode::InvalidResponse, &message))
        };
        if page.contents.len() > bytes || page.next_cursor.len() > MAX_CURSOR_BYTES {
            return nonsense("a page is larger than was asked for");
        }
        if page.contents.is_empty() && !page.next_cursor.is_empty() {
            return nonsense("a page is empty, and more follows");
        }
        let fits = fit(&page);
        if fits >= page.contents.len() {
            return Ok(page);
        }
        bytes = fits.min(bytes - 1);
    }
    Err(ToolError::from_code(
        ToolErrorCode::TooLarge,
        "the handles of this file leave no room for its contents",
    ))
}
