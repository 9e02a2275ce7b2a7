//! Limits for paged responses, so that a daemon cannot send pages without end.

use prost::Message;
use std::collections::HashSet;

/// Maximum number of pages of one response: ten million entries at the daemon's default page size.
pub const MAX_PAGES: usize = 10_000;
/// Maximum size of one response: 20,000 skills of 50 KiB.
const MAX_BYTES: usize = 1 << 30;
/// Maximum size of a page token.
const MAX_TOKEN_BYTES: usize = 16 << 10;

/// Size and tokens of the pages so far.
#[derive(Default)]
pub struct PageTracker {
    tokens: HashSet<String>,
    count: usize,
    bytes: usize,
}

impl PageTracker {
    /// Counts a page. Returns the token of the next page, if there is one.
    pub fn record_page(
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

    /// Whether only one page was counted so far.
    pub fn is_first(&self) -> bool {
        self.count == 1
    }
}
