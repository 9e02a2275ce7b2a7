//! Digests of contents.

use std::fmt;

/// SHA-256 of a whole file or of a catalog. Displays as `sha256:` and 64 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentDigest(pub [u8; 32]);

/// Whether a text is a digest as the protocol writes it: `sha256:` and 64 lower-case hex digits.
#[must_use]
pub fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == 64
            && hex
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

impl fmt::Display for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        // One list formats thousands of digests, so all digits are written at once.
        let mut text = [0; 64];
        for (two, byte) in text.as_chunks_mut::<2>().0.iter_mut().zip(self.0) {
            *two = [
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ];
        }
        f.write_str("sha256:")?;
        f.write_str(str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}
