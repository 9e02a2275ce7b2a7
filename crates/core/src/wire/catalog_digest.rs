//! Digest of the catalog of one root, as a caller receives it. Equal digests mean equal messages.
//! `RootStatus.catalog_digest` in `root.proto` has the definition for clients in other languages.

use super::ContentDigest;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;

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
        Self(
            Sha256::new()
                .chain_update([kind as u8])
                .chain_update(encoded)
                .finalize()
                .into(),
        )
    }
}

/// Digests of the messages of a catalog, grouped by their first byte. Each group keeps its hash, so
/// that the digest of a catalog after a change costs the hashes of the changed groups, and one hash
/// over the hashes of at most 256 groups.
#[derive(Debug, Default)]
pub struct DigestGroups {
    /// By first byte. No group is empty.
    groups: BTreeMap<u8, DigestGroup>,
    digest_count: usize,
}

#[derive(Debug, Default)]
struct DigestGroup {
    /// In order.
    digests: Vec<[u8; 32]>,
    /// SHA-256 of the joined digests.
    hash: [u8; 32],
}

/// Returns the digest of a catalog with these messages. The order of the messages does not matter.
#[must_use]
pub fn digest_catalog(messages: Vec<MessageDigest>) -> ContentDigest {
    DigestGroups::default().catalog_digest(messages)
}

impl DigestGroups {
    /// Groups digests, which need no order.
    #[must_use]
    pub fn new(mut digests: Vec<MessageDigest>) -> Self {
        digests.sort_unstable();
        let mut groups = Self::default();
        groups.replace(&[], &digests);
        groups
    }

    /// Returns the number of digests.
    #[must_use]
    pub fn digest_count(&self) -> usize {
        self.digest_count
    }

    /// Removes one occurrence of each digest in `removed`, and adds those in `added`. Both are in
    /// order. The cost is proportional to the changed groups.
    ///
    /// Returns whether all of `removed` occurred. If not, the groups are of no use.
    pub fn replace(&mut self, removed: &[MessageDigest], added: &[MessageDigest]) -> bool {
        let mut removed_rest = removed;
        let mut added_rest = added;
        let mut removed_all = true;

        for first_byte in 0..=u8::MAX {
            let removed = split_group(&mut removed_rest, first_byte);
            let added = split_group(&mut added_rest, first_byte);
            if removed.is_empty() && added.is_empty() {
                continue;
            }

            let group = self.groups.entry(first_byte).or_default();
            self.digest_count -= group.digests.len();
            let mut removed = removed.iter().peekable();
            group
                .digests
                .retain(|digest| removed.next_if(|other| other.0 == *digest).is_none());
            removed_all &= removed.peek().is_none();

            group.add(added);
            group.hash = hash_group(&group.digests);
            self.digest_count += group.digests.len();

            // The hash of an empty group would change the digest of the catalog.
            if group.digests.is_empty() {
                self.groups.remove(&first_byte);
            }
        }

        removed_all
    }

    /// Returns the digest of a catalog with the messages of these groups and `others`. The order of
    /// `others` does not matter.
    #[must_use]
    pub fn catalog_digest(&self, mut others: Vec<MessageDigest>) -> ContentDigest {
        others.sort_unstable();
        let mut rest = &others[..];
        let mut hasher = Sha256::new();

        for first_byte in 0..=u8::MAX {
            let others = split_group(&mut rest, first_byte);
            let group = self.groups.get(&first_byte);
            if others.is_empty() {
                if let Some(group) = group {
                    hasher.update(group.hash);
                }
            } else {
                let digests = group.map_or(&[][..], |group| &group.digests).to_vec();
                let mut merged = DigestGroup {
                    digests,
                    hash: [0; 32],
                };
                merged.add(others);
                hasher.update(hash_group(&merged.digests));
            }
        }

        ContentDigest(hasher.finalize().into())
    }
}

impl DigestGroup {
    /// Adds digests with the same first byte. Leaves `hash` as before.
    fn add(&mut self, digests: &[MessageDigest]) {
        self.digests.reserve_exact(digests.len());
        self.digests.extend(digests.iter().map(|digest| digest.0));
        self.digests.sort_unstable();
    }
}

/// Splits the digests with this first byte from the start of sorted digests.
fn split_group<'a>(sorted: &mut &'a [MessageDigest], first_byte: u8) -> &'a [MessageDigest] {
    let end = sorted.partition_point(|digest| digest.0[0] <= first_byte);
    let (group, rest) = sorted.split_at(end);
    *sorted = rest;
    group
}

fn hash_group(digests: &[[u8; 32]]) -> [u8; 32] {
    Sha256::digest(digests.as_flattened()).into()
}

#[cfg(test)]
mod tests {
    use super::{CatalogMessage, DigestGroups, MessageDigest, digest_catalog};
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

        /// Law: replaced digests have the digest of a catalog with the messages that are left.
        #[test]
        fn replaced_digests_are_those_of_the_new_messages(
            old in prop::collection::vec(0..1_000_u16, 0..600),
            removed in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
            added in prop::collection::vec(0..1_000_u16, 0..20),
            others in prop::collection::vec(0..1_000_u16, 0..5),
        ) {
            let digests = |numbers: &[u16]| {
                let digest = |n: &u16| MessageDigest::new(CatalogMessage::Skill, &n.to_le_bytes());
                let mut digests: Vec<_> = numbers.iter().map(digest).collect();
                digests.sort_unstable();
                digests
            };
            let (mut kept, mut gone) = (old.clone(), Vec::new());
            for index in removed {
                if !kept.is_empty() {
                    gone.push(kept.swap_remove(index.index(kept.len())));
                }
            }
            let mut groups = DigestGroups::new(digests(&old));
            prop_assert!(groups.replace(&digests(&gone), &digests(&added)));
            kept.extend(added);
            prop_assert_eq!(groups.digest_count(), kept.len());
            prop_assert!(!DigestGroups::new(digests(&kept)).replace(&digests(&[1_000]), &[]));
            kept.extend(&others);
            prop_assert_eq!(groups.catalog_digest(digests(&others)), digest_catalog(digests(&kept)));
        }
    }
}
