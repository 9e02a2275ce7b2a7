//! Bytes of a page. Large buffers are pooled: clearing new memory takes as long as reading the
//! page.

use caproot_core::sync::Mutex;
use caproot_core::wire::limits::MAX_READ_BYTES;
use std::fmt;

/// Minimum size of a pooled buffer. Smaller buffers are allocated on the heap.
const MIN_POOLED_BYTES: usize = 128 << 10;
/// Maximum number of idle buffers. A caller that reads page by page uses two buffers in turn.
const MAX_POOLED_BUFFERS: usize = 2;

/// Idle buffers, with their old content. The oldest comes first.
static BUFFER_POOL: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// Bytes of one page.
pub struct PageBytes {
    /// At most twice as long as the requested page. The quota of the caller counts only the page.
    bytes: Vec<u8>,
    len: usize,
}

impl PageBytes {
    /// Allocates `len` bytes and has `fill` write to them. `fill` returns the number of bytes that
    /// it wrote.
    pub(super) fn read<E>(
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<Self, E> {
        let bytes = take_pooled(len).unwrap_or_else(|| vec![0; len]);
        let mut page = Self { bytes, len };
        let filled = fill(&mut page.bytes[..len])?;
        page.truncate(filled);
        Ok(page)
    }

    /// Shortens the page to at most `len` bytes.
    pub(super) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

/// Takes a buffer of a matching size.
fn take_pooled(len: usize) -> Option<Vec<u8>> {
    if len < MIN_POOLED_BYTES {
        return None;
    }
    let mut spares = BUFFER_POOL.lock();
    let at = spares
        .iter()
        .position(|spare| (len..=2 * len).contains(&spare.len()))?;
    Some(spares.swap_remove(at))
}

impl AsRef<[u8]> for PageBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl From<Vec<u8>> for PageBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self {
            len: bytes.len(),
            bytes,
        }
    }
}

impl Drop for PageBytes {
    fn drop(&mut self) {
        if (MIN_POOLED_BYTES..=MAX_READ_BYTES).contains(&self.bytes.len()) {
            let mut spares = BUFFER_POOL.lock();
            if spares.len() == MAX_POOLED_BUFFERS {
                spares.remove(0);
            }
            spares.push(std::mem::take(&mut self.bytes));
        }
    }
}

/// Omits the bytes.
impl fmt::Debug for PageBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageBytes({})", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::{BUFFER_POOL, MAX_POOLED_BUFFERS, MAX_READ_BYTES, MIN_POOLED_BYTES, PageBytes};
    use std::convert::Infallible;

    /// Returns a page of `len` bytes, of which `filled` bytes were read.
    fn page(len: usize, byte: u8, filled: usize) -> PageBytes {
        let filled = PageBytes::read(len, |room| {
            assert_eq!(room.len(), len);
            room[..filled].fill(byte);
            Ok::<_, Infallible>(filled)
        });
        filled.unwrap_or_else(|never| match never {})
    }

    #[test]
    fn a_page_holds_only_its_own_bytes() {
        for len in [
            0,
            1,
            MIN_POOLED_BYTES - 1,
            MIN_POOLED_BYTES,
            MAX_READ_BYTES,
            MAX_READ_BYTES + 1,
        ] {
            for filled in [len, len / 2, 0] {
                for byte in 1..4 {
                    let mut page = page(len, byte, filled);
                    assert_eq!(page.as_ref(), vec![byte; filled]);
                    page.truncate(filled / 3);
                    assert_eq!(
                        (page.as_ref(), page.len()),
                        (&vec![byte; filled / 3][..], filled / 3)
                    );
                    page.truncate(len);
                    assert_eq!(page.len(), filled / 3);
                }
            }
        }
        assert_eq!(PageBytes::from(vec![7; 9]).as_ref(), [7; 9]);
        assert!(PageBytes::read(MIN_POOLED_BYTES, |_| Err(())).is_err());
    }

    #[test]
    fn few_buffers_are_pooled_and_reused_for_pages_of_similar_size() {
        let pages: Vec<_> = (0..9).map(|_| page(MAX_READ_BYTES, 1, 1)).collect();
        drop(pages);
        assert!(BUFFER_POOL.lock().len() <= MAX_POOLED_BUFFERS);
        for len in [MIN_POOLED_BYTES, MAX_READ_BYTES / 2, MAX_READ_BYTES] {
            for _ in 0..3 {
                let page = page(len, 1, len);
                assert!((len..=2 * len).contains(&page.bytes.len()));
            }
        }
        let [one, other] = [1, 2].map(|byte| page(MAX_READ_BYTES, byte, MAX_READ_BYTES));
        assert_ne!(
            one.as_ref(),
            other.as_ref(),
            "two live pages never share a buffer"
        );
    }
}
