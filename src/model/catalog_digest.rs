//! Digest of the catalog of one root, as a caller receives it. Equal digests mean equal messages.
//! `RootStatus.catalog_digest` in `root.proto` has the definition for clients in other languages.

use super::ContentDigest;
use sha2::{Digest as _, Sha256};

/// Number of digests that are hashed with one call.
const HASHED_AT_ONCE: usize = 128;

/// Kind of a message in a catalog. The number is the first byte of each hashed message, so that a
/// message of one kind cannot stand for a message of another kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CatalogMessage {
    /// A `Skill`.
    Skill = 1,
    /// A `Plugin`.
    Plugin = 2,
    /// A `Marketplace`.
    Marketplace = 3,
    /// A `Diagnostic`.
    Diagnostic = 4,
}

/// SHA-256 of the kind and the encoding of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MessageDigest([u8; 32]);

impl MessageDigest {
    /// Returns the digest of an encoded message. The fields of the message must be in the order of
    /// their numbers, and the keys of maps in byte order.
    #[must_use]
    pub fn new(kind: CatalogMessage, encoded: &[u8]) -> Self {
        Self(Sha256::new().chain_update([kind as u8]).chain_update(encoded).finalize().into())
    }
}

/// Returns the digest of a catalog with these messages. The order of the messages does not matter.
#[must_use]
pub fn digest_catalog(messages: Vec<MessageDigest>) -> ContentDigest {
    digest_sorted_catalog(&[], messages)
}

/// Returns the digest of a catalog with these messages. `sorted` is in order; the order of `others`
/// does not matter.
#[must_use]
pub fn digest_sorted_catalog(
    mut sorted: &[MessageDigest],
    mut others: Vec<MessageDigest>,
) -> ContentDigest {
    others.sort_unstable();
    let mut hasher = Sha256::new();
    for other in &others {
        let smaller;
        (smaller, sorted) = sorted.split_at(sorted.partition_point(|digest| digest < other));
        update_hash(&mut hasher, smaller);
        hasher.update(other.0);
    }
    update_hash(&mut hasher, sorted);
    ContentDigest(hasher.finalize().into())
}

fn update_hash(hasher: &mut Sha256, digests: &[MessageDigest]) {
    // Many blocks at once cost less than a call for each half of a block.
    let mut bytes =
        Vec::with_capacity(digests.len().min(HASHED_AT_ONCE) * size_of::<MessageDigest>());
    for digests in digests.chunks(HASHED_AT_ONCE) {
        bytes.clear();
        bytes.extend(digests.iter().flat_map(|digest| digest.0));
        hasher.update(&bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::{CatalogMessage, MessageDigest, digest_catalog};
    use proptest::prelude::*;

    #[test]
    fn an_empty_catalog_has_the_digest_of_no_bytes() {
        let digest = digest_catalog(Vec::new()).to_string();
        let expected = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(digest, expected);
    }

    proptest! {
        /// Law: two catalogs have equal digests if and only if they have the same messages.
        #[test]
        fn digests_are_equal_for_equal_messages(
            mut one in prop::collection::vec((0..4_usize, "[ab]{0,2}"), 0..4),
            mut other in prop::collection::vec((0..4_usize, "[ab]{0,2}"), 0..4),
        ) {
            use CatalogMessage::{Diagnostic, Marketplace, Plugin, Skill};
            let digest = |messages: &[(usize, String)]| {
                let kinds = [Skill, Plugin, Marketplace, Diagnostic];
                let message =
                    |(kind, text): &(usize, String)| MessageDigest::new(kinds[*kind], text.as_bytes());
                digest_catalog(messages.iter().map(message).collect())
            };
            let (first, second) = (digest(&one), digest(&other));
            one.reverse();
            prop_assert_eq!(digest(&one), first);
            one.sort();
            other.sort();
            prop_assert_eq!(first == second, one == other);
        }
    }
}
