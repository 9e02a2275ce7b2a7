//! Stops a daemon that never ends a paged answer.

use prost::Message;
use std::collections::HashSet;

/// The most pages of one answer: ten million things at the daemon's default of a page.
pub(super) const MAX_PAGES: usize = 10_000;
/// The most bytes of one answer: what 20,000 skills of 50 KiB each take.
const MAX_BYTES: usize = 1 << 30;
/// The most bytes of a page token.
const MAX_TOKEN_BYTES: usize = 16 << 10;

/// The pages so far.
#[derive(Default)]
pub(super) struct PageTracker {
    tokens: HashSet<String>,
    count: usize,
    bytes: usize,
}

impl PageTracker {
    /// Counts a page; gives the token of the next, if there is one.
    pub(super) fn record_page(
        &mut self,
        page: &impl Message,
        token: &str,
    ) -> Result<Option<String>, &'static str> {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(page.encoded_len());
        if self.bytes > MAX_BYTES {
            return Err("the list is over 1 GiB");
        }
        if token.is_empty() {
            return Ok(None);
        }
        if self.count == MAX_PAGES {
            return Err("the list has more than 10,000 pages");
        }
        if token.len() > MAX_TOKEN_BYTES || !self.tokens.insert(token.to_owned()) {
            return Err("a page token repeats, or is over 16 KiB");
        }
        Ok(Some(token.to_owned()))
    }

    /// Whether the page that was counted last is the first.
    pub(super) fn is_first(&self) -> bool {
        self.count == 1
    }
}
