//! Digests of contents.

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use std::fmt;

/// Start of each digest.
const ALGORITHM_PREFIX: &str = "sha256:";

/// SHA-256 of a whole file or of a catalog. Displays as `sha256:` and 64 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentDigest(pub [u8; 32]);

impl ContentDigest {
    /// Returns the digest of a whole content.
    #[must_use]
    pub fn of(content: impl AsRef<[u8]>) -> Self {
        Self(Sha256::digest(content).into())
    }

    /// Parses a digest as the protocol writes it: `sha256:` and 64 lower-case hex digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.strip_prefix(ALGORITHM_PREFIX)?.as_bytes();
        let mut bytes = [0; 32];
        if hex.len() != 2 * bytes.len() {
            return None;
        }
        for (byte, digits) in bytes.iter_mut().zip(hex.as_chunks::<2>().0) {
            *byte = hex_value(digits[0])? << 4 | hex_value(digits[1])?;
        }
        Some(Self(bytes))
    }
}

/// Whether a text is a digest as the protocol writes it.
#[must_use]
pub fn is_digest(text: &str) -> bool {
    ContentDigest::parse(text).is_some()
}

/// Returns the first eight digits of a digest with its algorithm.
#[must_use]
pub fn short_digest(digest: &str) -> &str {
    let digits = digest.rsplit(':').next().unwrap_or_default();
    digits.get(..8).unwrap_or(digits)
}

/// Returns the value of a lower-case hex digit.
fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl Serialize for ContentDigest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ContentDigest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text)
            .ok_or_else(|| D::Error::custom("is not `sha256:` and 64 lower-case hex digits"))
    }
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
        f.write_str(ALGORITHM_PREFIX)?;
        f.write_str(str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

#[cfg(test)]
mod tests {
    use super::ContentDigest;
    use proptest::prelude::*;

    #[test]
    fn texts_in_another_form_are_no_digests() {
        let zeros = "0".repeat(64);
        for bad in [
            String::new(),
            zeros.clone(),
            format!("sha256:{}", "0".repeat(63)),
            format!("sha256:{zeros}0"),
            format!("sha256:{}A", "0".repeat(63)),
            format!("sha256:+{}", "0".repeat(63)),
            format!("SHA256:{zeros}"),
        ] {
            assert_eq!(ContentDigest::parse(&bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn formatted_digests_parse_to_themselves(bytes: [u8; 32]) {
            let digest = ContentDigest(bytes);
            prop_assert_eq!(ContentDigest::parse(&digest.to_string()), Some(digest));
        }
    }
}
