//! Reads and digests file contents in bounded memory.

use super::cancellation::CancelToken;
use super::page_bytes::PageBytes;
use crate::domain::limits::{MAX_FRONTMATTER_BYTES, MAX_MANIFEST_BYTES};
use crate::domain::{ContentDigest, FileProblem, HiddenTextScanner};
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;

/// What of a SKILL.md is held while it is read: the frontmatter, its fences and a line more.
pub(super) const HEAD_BYTES: usize = MAX_FRONTMATTER_BYTES + 4_096;
const CHUNK_BYTES: usize = 64 << 10;

/// What is known of a file whose beginning was read.
pub(super) struct FileHead {
    /// Whether its beginning is all of it.
    pub(super) is_complete: bool,
    /// Of all of it; `None` where the file is over the bound.
    pub(super) digest: Option<ContentDigest>,
    /// The problem with hidden characters in the file; in its beginning, if the file is over the bound.
    pub(super) hidden: Option<FileProblem>,
}

/// Reads a file's head into `bytes`, in the place of what they were. Digests the whole file and looks for
/// hidden characters in it, unless the file is over `max_bytes`.
pub(super) fn read_head(
    mut file: &File,
    size: u64,
    max_bytes: u64,
    bytes: &mut Vec<u8>,
) -> io::Result<FileHead> {
    bytes.clear();
    bytes.reserve(HEAD_BYTES.min(usize::try_from(size).unwrap_or(HEAD_BYTES)) + 1);
    file.take(HEAD_BYTES as u64 + 1).read_to_end(bytes)?;
    let whole = bytes.len() <= HEAD_BYTES;
    let mut hidden = HiddenTextScanner::default();
    hidden.push(bytes);
    let digest = if size > max_bytes {
        None
    } else {
        let mut hasher = Sha256::new();
        hasher.update(&*bytes);
        let mut rest = if whole { Vec::new() } else { vec![0; CHUNK_BYTES] };
        let mut seen = bytes.len() as u64;
        while !whole && seen <= max_bytes {
            let n = file.read(&mut rest)?;
            if n == 0 {
                break;
            }
            seen += n as u64;
            hasher.update(&rest[..n]);
            hidden.push(&rest[..n]);
        }
        (seen <= max_bytes).then(|| ContentDigest(hasher.finalize().into()))
    };
    bytes.truncate(HEAD_BYTES);
    Ok(FileHead { is_complete: whole, digest, hidden: hidden.finish() })
}

/// Reads a small file whole, and one byte more where it is over the bound, so that its reader sees
/// that it is.
pub(super) fn read_small_file(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MAX_MANIFEST_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A page of a file, with what there is to know of all of it.
pub(super) struct DigestedPage {
    /// One more than the bound where the file is over it, and nothing else counts.
    pub(super) size: u64,
    pub(super) digest: ContentDigest,
    pub(super) utf8: bool,
    pub(super) page: Vec<u8>,
}

/// Reads a file to its end, whatever its size is said to be, but no further than a byte beyond
/// `max_bytes`; holds up to `len` bytes of it from `offset` on.
pub(super) fn read_digested_page(
    file: &File,
    offset: u64,
    len: usize,
    max_bytes: u64,
    wanted: &CancelToken,
) -> io::Result<DigestedPage> {
    let (mut hasher, mut utf8) = (Sha256::new(), Utf8Validator::default());
    let (mut buffer, mut page) = (vec![0; CHUNK_BYTES], Vec::new());
    let mut at = 0;
    while at <= max_bytes {
        wanted.check_cancelled()?;
        let room = usize::try_from(max_bytes + 1 - at).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        let n = file.read_at(&mut buffer[..room], at)?;
        if n == 0 {
            break;
        }
        let read = &buffer[..n];
        hasher.update(read);
        utf8.push_chunk(read);
        let skip = usize::try_from(offset.saturating_sub(at)).unwrap_or(n).min(n);
        page.extend(read[skip..].iter().take(len - page.len()));
        at += n as u64;
    }
    let digest = ContentDigest(hasher.finalize().into());
    Ok(DigestedPage { size: at, digest, utf8: utf8.is_valid(), page })
}

/// The digest of a file that is `size` bytes long, and whether it is UTF-8; `None` where it is
/// shorter or longer. That nobody wants it any more is an error.
pub(super) fn digest_file(
    file: &File,
    size: u64,
    wanted: &CancelToken,
) -> io::Result<Option<(ContentDigest, bool)>> {
    let mut hasher = Sha256::new();
    let mut utf8 = Utf8Validator::default();
    let mut buffer = vec![0; CHUNK_BYTES.min(usize::try_from(size).unwrap_or(CHUNK_BYTES))];
    let mut at = 0;
    while at < size {
        wanted.check_cancelled()?;
        let want = buffer.len().min(usize::try_from(size - at).unwrap_or(usize::MAX));
        let n = file.read_at(&mut buffer[..want], at)?;
        if n == 0 {
            return Ok(None);
        }
        hasher.update(&buffer[..n]);
        utf8.push_chunk(&buffer[..n]);
        at += n as u64;
    }
    let is_longer = file.read_at(&mut [0], size)? > 0;
    Ok((!is_longer).then(|| (ContentDigest(hasher.finalize().into()), utf8.is_valid())))
}

/// Reads up to `len` bytes at `offset`.
pub(super) fn read_range(file: &File, offset: u64, len: usize) -> io::Result<PageBytes> {
    PageBytes::read(len, |room| {
        let mut filled = 0;
        while filled < len {
            let n = file.read_at(&mut room[filled..], offset + filled as u64)?;
            if n == 0 {
                break;
            }
            filled += n;
        }
        Ok(filled)
    })
}

/// Whether text that comes in pieces is UTF-8.
#[derive(Default)]
struct Utf8Validator {
    broken: bool,
    /// The beginning of a character whose end is in the next piece.
    partial_char: Vec<u8>,
}

impl Utf8Validator {
    fn push_chunk(&mut self, piece: &[u8]) {
        if self.broken {
            return;
        }
        let mut piece = piece;
        while !self.partial_char.is_empty() {
            let Some((first, rest)) = piece.split_first() else { return };
            self.partial_char.push(*first);
            piece = rest;
            match std::str::from_utf8(&self.partial_char) {
                Ok(_) => self.partial_char.clear(),
                Err(e) if e.error_len().is_none() => {}
                Err(_) => {
                    self.broken = true;
                    return;
                }
            }
        }
        if let Err(e) = std::str::from_utf8(piece) {
            match e.error_len() {
                None => self.partial_char.extend(&piece[e.valid_up_to()..]),
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
    use super::Utf8Validator;
    use proptest::prelude::*;

    proptest! {
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
