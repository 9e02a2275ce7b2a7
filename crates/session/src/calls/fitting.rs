//! Reads the largest page that fits into a result or a fragment. Escaping makes the final size
//! unknown before the read: a page that is too large is requested again with fewer bytes, so that
//! the cursor of the source continues exactly at the end of the page.

use crate::skills::result::{ToolError, ToolErrorCode};
use crate::skills::skill_source::{SkillSource, TextPage, TextPageRequest, answer_in_time};
use crate::sources::invalid_response_error;
use caproot_client::MAX_CURSOR_BYTES;

/// Requests of one page; each request has the fitting size of the page before.
const MAX_ATTEMPTS: usize = 8;
/// Smallest page of a source: one UTF-8 character.
const MIN_BYTES: usize = 4;

/// Reads a page of at most `first_bytes` bytes. `fit` returns how many bytes of a page fit; the
/// page is used if all bytes fit.
pub async fn read_fitting(
    source: &dyn SkillSource,
    mut request: TextPageRequest,
    first_bytes: usize,
    fit: &(dyn Fn(&TextPage) -> usize + Sync),
) -> Result<TextPage, ToolError> {
    let mut bytes = first_bytes;
    for _ in 0..MAX_ATTEMPTS {
        if bytes < MIN_BYTES {
            break;
        }

        request.max_bytes = bytes;
        let page = answer_in_time(source, source.read_page(&request)).await?;
        check_page(source, &page, bytes)?;

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

/// Checks the size of a page of at most `bytes` bytes.
fn check_page(source: &dyn SkillSource, page: &TextPage, bytes: usize) -> Result<(), ToolError> {
    let reason = if page.contents.len() > bytes || page.next_cursor.len() > MAX_CURSOR_BYTES {
        "a page is larger than requested"
    } else if page.contents.is_empty() && !page.next_cursor.is_empty() {
        "a page is empty, and more follows"
    } else {
        return Ok(());
    };

    let phrase = source.kind().describe(source.id());
    Err(invalid_response_error(&phrase, reason))
}
