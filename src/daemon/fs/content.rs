//! Reading of small files and pages, and digesting of whole files, in bounded memory.

use super::page_bytes::PageBytes;
use caproot_core::wire::ContentDigest;
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use tokio_util::sync::CancellationToken;

/// Size of the buffer for a file that is digested, or whose size is unknown.
const CHUNK_BYTES: usize = 64 << 10;

/// Replaces `bytes` by the start of a file, at most `max_bytes`. `size` is the reported size: if
/// the first call reads exactly as many bytes, the file ends there, and no other call is needed. A
/// file with another size is read until a call reads nothing.
pub fn read_start(
    mut file: &File,
    size: u64,
    max_bytes: usize,
    bytes: &mut Vec<u8>,
) -> io::Result<()> {
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    bytes.clear();

    let mut len = 0;
    while len < max_bytes {
        // The byte beyond the reported size shows that the file is longer.
        let end = if len < size {
            size.saturating_add(1)
        } else {
            len + CHUNK_BYTES
        };

        bytes.resize(end.min(max_bytes), 0);
        let count = match file.read(&mut bytes[len..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => result?,
        };

        let is_whole = len == 0 && count == size;
        len += count;
        if count == 0 || is_whole {
            break;
        }
    }

    bytes.truncate(len);
    Ok(())
}

/// A page of a file, with the properties of the whole file.
pub struct DigestedPage {
    /// Size of the file. If the file exceeds the limit, this is the limit plus one, and the other
    /// fields have no meaning.
    pub size: u64,
    pub digest: ContentDigest,
    pub utf8: bool,
    pub page: Vec<u8>,
}

/// Reads a file to its end, regardless of its reported size, but at most one byte beyond
/// `max_bytes`. Keeps up to `len` bytes from `offset` on.
pub fn read_digested_page(
    file: &File,
    offset: u64,
    len: usize,
    max_bytes: u64,
    cancel_token: &CancellationToken,
) -> io::Result<DigestedPage> {
    let mut hasher = Sha256::new();
    let mut utf8 = Utf8Validator::default();
    // The byte beyond the limit shows that the file is too large.
    let end = max_bytes.saturating_add(1);
    let mut buffer = vec![0; usize::try_from(end).map_or(CHUNK_BYTES, |end| end.min(CHUNK_BYTES))];
    let mut page = Vec::new();

    let mut at = 0;
    while at < end {
        check_cancelled(cancel_token)?;
        let max_len = usize::try_from(end - at).map_or(CHUNK_BYTES, |rest| rest.min(buffer.len()));

        let count = file.read_at(&mut buffer[..max_len], at)?;
        if count == 0 {
            break;
        }

        let read = &buffer[..count];
        hasher.update(read);
        utf8.push_chunk(read);

        let skip = usize::try_from(offset.saturating_sub(at))
            .unwrap_or(count)
            .min(count);
        page.extend(read[skip..].iter().take(len - page.len()));
        at += count as u64;
    }

    let digest = ContentDigest(hasher.finalize().into());
    Ok(DigestedPage {
        size: at,
        digest,
        utf8: utf8.is_valid(),
        page,
    })
}

/// Digests a file of `size` bytes. Returns the digest and whether the file is UTF-8; `None` if the
/// file has another size. Cancellation is an error.
pub fn digest_file(
    file: &File,
    size: u64,
    cancel_token: &CancellationToken,
) -> io::Result<Option<(ContentDigest, bool)>> {
    let whole = read_digested_page(file, 0, 0, size, cancel_token)?;
    Ok((whole.size == size).then_some((whole.digest, whole.utf8)))
}

/// Digests of a file and of its blocks.
pub struct BlockDigests {
    pub digest: ContentDigest,
    pub blocks: Vec<ContentDigest>,
    pub utf8: bool,
}

/// Digests the first `size` bytes of a file, and each block of them, in one pass.
pub fn digest_blocks(
    file: &File,
    size: u64,
    block_bytes: usize,
    cancel_token: &CancellationToken,
) -> io::Result<BlockDigests> {
    let mut hasher = Sha256::new();
    let mut utf8 = Utf8Validator::default();
    let mut blocks = Vec::new();
    let mut at = 0;
    while at < size {
        check_cancelled(cancel_token)?;
        let rest = usize::try_from(size - at).unwrap_or(block_bytes);
        let block = read_range(file, at, rest.min(block_bytes))?;
        let block = block.as_ref();
        if block.is_empty() {
            break;
        }
        hasher.update(block);
        utf8.push_chunk(block);
        blocks.push(ContentDigest::of(block));
        at += block.len() as u64;
    }

    Ok(BlockDigests {
        digest: ContentDigest(hasher.finalize().into()),
        blocks,
        utf8: utf8.is_valid(),
    })
}

/// Returns an error if the caller has gone. The error is discarded.
fn check_cancelled(cancel_token: &CancellationToken) -> io::Result<()> {
    if cancel_token.is_cancelled() {
        Err(io::Error::other("canceled"))
    } else {
        Ok(())
    }
}

/// Reads up to `len` bytes at `offset`.
pub fn read_range(file: &File, offset: u64, len: usize) -> io::Result<PageBytes> {
    PageBytes::read(len, |buffer| {
        let mut filled = 0;
        while filled < len {
            let count = file.read_at(&mut buffer[filled..], offset + filled as u64)?;
            if count == 0 {
                break;
            }
            filled += count;
        }
        Ok(filled)
    })
}

/// Validator of UTF-8 text in chunks.
#[derive(Default)]
struct Utf8Validator {
    broken: bool,
    /// Start of a character that continues in the next chunk.
    partial_char: Vec<u8>,
}

impl Utf8Validator {
    fn push_chunk(&mut self, chunk: &[u8]) {
        if self.broken {
            return;
        }

        let mut chunk = chunk;
        while !self.partial_char.is_empty()
            && let Some((first, rest)) = chunk.split_first()
        {
            self.partial_char.push(*first);
            chunk = rest;
            match std::str::from_utf8(&self.partial_char) {
                Ok(_) => self.partial_char.clear(),
                Err(e) if e.error_len().is_none() => {}
                Err(_) => {
                    self.broken = true;
                    return;
                }
            }
        }

        if let Err(e) = std::str::from_utf8(chunk) {
            match e.error_len() {
                None => self.partial_char.extend(&chunk[e.valid_up_to()..]),
                Some(_) => self.broken = true,
            }
        }
    }

    fn is_valid(&self) -> bool {
        !self.broken && self.partial_char.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{CHUNK_BYTES, Utf8Validator, read_start};
    use proptest::prelude::*;
    use std::io::{Seek as _, Write as _};

    proptest! {
        #[test]
        fn the_reported_size_does_not_change_what_is_read(
            len in prop_oneof![0..9_usize, CHUNK_BYTES - 2..CHUNK_BYTES + 3],
            size in prop_oneof![0..9_u64, Just(u64::MAX), Just(CHUNK_BYTES as u64)],
            max_bytes in prop_oneof![1..9_usize, CHUNK_BYTES..3 * CHUNK_BYTES],
        ) {
            let content: Vec<_> = (0..=250_u8).cycle().take(len).collect();
            let mut file = tempfile::tempfile().expect("a temporary file");
            file.write_all(&content).expect("write");
            file.rewind().expect("rewind");
            let mut read = b"old".to_vec();
            read_start(&file, size, max_bytes, &mut read).expect("read");
            prop_assert_eq!(&*read, &content[..len.min(max_bytes)]);
            // The rest of the file is read from where the start ends.
            prop_assert_eq!(file.stream_position().expect("position"), read.len() as u64);
        }

        #[test]
        fn chunks_are_validated_like_the_whole_text(text: String, junk: Vec<u8>, cut in 1usize..7) {
            for whole in [text.as_bytes(), &[text.as_bytes(), &junk].concat()] {
                let mut pieces = Utf8Validator::default();
                whole.chunks(cut).for_each(|p| pieces.push_chunk(p));
                prop_assert_eq!(pieces.is_valid(), std::str::from_utf8(whole).is_ok());
            }
        }
    }
}
