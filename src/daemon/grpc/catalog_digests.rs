//! Digests of catalogs as they are served. The digests of all skills are kept while their catalog is
//! in use. A changed skill costs the hashes of its old and its new message, and of their groups.

use super::plugin_message::{marketplace_message, plugin_message};
use super::requests::ListQuery;
use super::root_messages::root_status;
use super::skill_message::encode_skill;
use super::visible_view::{VisibleRoot, VisibleView};
use crate::daemon::catalog::WatchMode;
use crate::daemon::model::diff::diff_catalogs;
use crate::daemon::model::{Catalog, Skill};
use caproot_core::proto::caproot::v1 as pb;
use caproot_core::sync::{Mutex, map_chunks};
use caproot_core::wire::{CatalogMessage, ContentDigest, DigestGroups, MessageDigest, RootId};
use lru::LruCache;
use prost::Message;
use std::sync::{Arc, Weak};

/// Maximum number of catalogs, each with a root id and a view.
const MAX_CATALOGS: usize = 4_096;
/// Maximum number of digests of skills: 64 MiB.
const MAX_SKILL_DIGESTS: usize = 2 << 20;
/// Maximum number of products and other variants of one catalog.
const MAX_VARIANTS: usize = 16;
/// Maximum number of catalogs that are searched for the catalog that a catalog was made of.
const MAX_SIMILAR_CATALOGS: usize = 8;

/// Maximum number of skills whose digests are computed without additional threads. A thread starts
/// in the time of some fifty digests.
const MAX_INLINE_SKILLS: usize = 500;

/// Encoded messages of the first skills of a catalog, which its digest took. One buffer has them all: a thousand
/// small ones would leave holes in the heap.
#[derive(Debug, Default)]
pub struct FirstSkills {
    bytes: Vec<u8>,
    /// End of each message in `bytes`.
    ends: Vec<usize>,
}

/// Digests of served catalogs. All clones share the same digests.
#[derive(Debug, Clone)]
pub struct CatalogDigests(Arc<Mutex<ServedDigests>>);

#[derive(Debug)]
struct ServedDigests {
    catalogs: LruCache<CatalogKey, DigestedCatalog>,
    /// How many digests of skills `catalogs` has.
    skill_count: usize,
}

/// Key of a catalog: its address, and the parts of a request that change every message of a skill.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CatalogKey {
    address: usize,
    root: RootId,
    is_basic: bool,
}

#[derive(Debug)]
struct DigestedCatalog {
    /// Keeps the address from being used again.
    catalog: Weak<Catalog>,
    /// Digests of the skills, before the filter of products. `None` if a newer catalog has them, or
    /// while a digest is computed.
    skills: Option<DigestGroups>,
    variants: Vec<(CatalogVariant, ContentDigest)>,
}

/// Other parts of a request, and of the state of a root, that change the messages of a catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CatalogVariant {
    /// Lower-case; empty if the product does not matter.
    product: String,
    watch_mode: WatchMode,
    /// Maximum size of the diagnostics.
    diagnostic_bytes: usize,
}

impl FirstSkills {
    /// Returns the message of the skill with this index in the catalog.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.bytes[start..end])
    }

    fn append(&mut self, next: Self) {
        let start = self.bytes.len();
        self.bytes.extend(next.bytes);
        self.ends.extend(next.ends.iter().map(|end| start + end));
    }
}

impl CatalogDigests {
    /// Creates an empty cache.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(ServedDigests {
            catalogs: LruCache::unbounded(),
            skill_count: 0,
        })))
    }

    /// Returns the state of each root of a view, with the digest of its catalog.
    pub fn root_statuses(
        &self,
        query: &ListQuery,
        visible: &VisibleView<'_>,
    ) -> Vec<pb::RootStatus> {
        self.statuses_with_skills(query, visible, 0).0
    }

    /// Returns the state of each root of a view, and the encoded skills that its digest took. They
    /// have at most about `max_bytes` bytes, and are empty for a catalog whose digest was known.
    pub fn statuses_with_skills(
        &self,
        query: &ListQuery,
        visible: &VisibleView<'_>,
        mut max_bytes: usize,
    ) -> (Vec<pb::RootStatus>, Vec<FirstSkills>) {
        let roots = visible.view.roots.iter().zip(&visible.roots);
        let statuses = roots.map(|(root, shown)| {
            let mut status = root_status(root, shown.as_ref());
            let mut encoded = FirstSkills::default();
            if let Some(shown) = shown {
                let limits = (visible.diagnostic_bytes, max_bytes);
                let digest = self.root_digest(query, limits, shown, &mut encoded);
                status.catalog_digest = digest.to_string();
            }
            max_bytes = max_bytes.saturating_sub(encoded.bytes.len());
            (status, encoded)
        });
        statuses.unzip()
    }

    /// Returns the digest of a root, and adds the encoded skills that it took to `encoded`.
    fn root_digest(
        &self,
        query: &ListQuery,
        (diagnostic_bytes, encoded_bytes): (usize, usize),
        visible: &VisibleRoot<'_>,
        encoded: &mut FirstSkills,
    ) -> ContentDigest {
        let catalog = visible.catalog;
        let key = CatalogKey {
            address: Arc::as_ptr(catalog).addr(),
            root: visible.id.clone(),
            is_basic: query.view == pb::SkillView::Basic,
        };

        let mut product = query.product.to_ascii_lowercase();
        // Products for which all skills are listed share a digest.
        if catalog.lists_all(visible.id, &product) {
            product.clear();
        }
        let variant = CatalogVariant {
            product,
            watch_mode: visible.watch_mode,
            diagnostic_bytes,
        };

        let known = self.0.lock().variant(&key, &variant);
        known.unwrap_or_else(|| {
            self.compute(key, variant, query.view, visible, (encoded, encoded_bytes))
        })
    }

    /// Computes and stores a digest. Other callers use the cache meanwhile.
    fn compute(
        &self,
        key: CatalogKey,
        variant: CatalogVariant,
        view: pb::SkillView,
        visible: &VisibleRoot<'_>,
        (encoded, encoded_bytes): (&mut FirstSkills, usize),
    ) -> ContentDigest {
        let catalog = visible.catalog;
        let cached = self.0.lock().take_skills(&key);
        let skills = cached
            .or_else(|| self.update_earlier(&key, view, visible))
            .unwrap_or_else(|| {
                let digests;
                (digests, *encoded) =
                    encoded_digests(visible, view, catalog.skills(0), encoded_bytes);
                DigestGroups::new(digests)
            });

        // Only the digests of all skills are kept, because each product lists another part of them.
        let listed = (!catalog.lists_all(&key.root, &variant.product)).then(|| {
            let listed = catalog.skills(0).filter(|skill| visible.is_listed(skill));
            DigestGroups::new(sorted_digests(visible, view, listed))
        });

        let mut messages = Vec::new();
        if !key.is_basic {
            for plugin in visible.plugins() {
                let message = plugin_message(&key.root, plugin);
                messages.push(digest(CatalogMessage::Plugin, &message));
            }
            for list in catalog.marketplaces() {
                let message = marketplace_message(&key.root, list);
                messages.push(digest(CatalogMessage::Marketplace, &message));
            }
        }
        for diagnostic in visible.diagnostics(variant.diagnostic_bytes) {
            messages.push(digest(CatalogMessage::Diagnostic, &diagnostic));
        }

        let digest = listed.as_ref().unwrap_or(&skills).catalog_digest(messages);
        self.0
            .lock()
            .insert(key, catalog, skills, (variant, digest));
        digest
    }

    /// Returns the digests of the skills of a catalog, made of those of an earlier catalog.
    /// Returns `None` if no earlier catalog shares most skills.
    fn update_earlier(
        &self,
        key: &CatalogKey,
        view: pb::SkillView,
        visible: &VisibleRoot<'_>,
    ) -> Option<DigestGroups> {
        let catalog = visible.catalog;
        let (earlier, old) = self.0.lock().similar_catalog(key, catalog)?;
        let diff = diff_catalogs(&old, catalog);
        let removed = diff.removed.iter().map(|(package, _)| package);
        let replaced: Vec<_> = diff
            .upserted
            .iter()
            .map(|skill| &skill.package)
            .chain(removed)
            .filter_map(|package| old.skill(package))
            .collect();
        if replaced.len() + diff.upserted.len() > catalog.len() / 2 {
            return None;
        }

        let replaced = sorted_digests(visible, view, replaced.into_iter());
        let added = sorted_digests(visible, view, diff.upserted.iter());
        let mut digests = self.0.lock().take_skills(&earlier)?;
        digests.replace(&replaced, &added).then_some(digests)
    }
}

impl ServedDigests {
    fn variant(&mut self, key: &CatalogKey, variant: &CatalogVariant) -> Option<ContentDigest> {
        let variants = &self.catalogs.get(key)?.variants;
        variants
            .iter()
            .find(|(known, _)| known == variant)
            .map(|(_, digest)| *digest)
    }

    /// Removes the digests of the skills of a catalog and returns them.
    fn take_skills(&mut self, key: &CatalogKey) -> Option<DigestGroups> {
        let skills = self.catalogs.get_mut(key)?.skills.take()?;
        self.skill_count -= skills.digest_count();
        Some(skills)
    }

    /// Returns another catalog whose messages of skills have the same root id, view and scope: the
    /// catalog that this one was made of, or else the most recent one.
    fn similar_catalog(
        &self,
        key: &CatalogKey,
        catalog: &Catalog,
    ) -> Option<(CatalogKey, Arc<Catalog>)> {
        let others = self.catalogs.iter().filter_map(|(other, known)| {
            let is_similar =
                other.root == key.root && other.is_basic == key.is_basic && known.skills.is_some();
            let other_catalog = is_similar.then(|| known.catalog.upgrade()).flatten()?;
            let has_same_scope = other_catalog.header.scope == catalog.header.scope;
            has_same_scope.then_some((other, other_catalog))
        });

        let others: Vec<_> = others.take(MAX_SIMILAR_CATALOGS).collect();
        let origin = others
            .iter()
            .find(|(_, other)| catalog.replaced_skills(other).is_some());
        let (key, similar) = origin.or(others.first())?;
        Some((CatalogKey::clone(key), similar.clone()))
    }

    fn insert(
        &mut self,
        key: CatalogKey,
        catalog: &Arc<Catalog>,
        skills: DigestGroups,
        variant: (CatalogVariant, ContentDigest),
    ) {
        // Digests of dropped catalogs go first, so that they evict none of a catalog in use.
        self.drop_unused();

        let known = self.remove(&key);
        let mut variants = known.map(|known| known.variants).unwrap_or_default();
        if variants.len() == MAX_VARIANTS {
            variants.remove(0);
        }
        variants.push(variant);

        self.skill_count += skills.digest_count();
        self.catalogs.put(
            key,
            DigestedCatalog {
                catalog: Arc::downgrade(catalog),
                skills: Some(skills),
                variants,
            },
        );

        while self.skill_count > MAX_SKILL_DIGESTS || self.catalogs.len() > MAX_CATALOGS {
            let Some((oldest, _)) = self.catalogs.peek_lru() else {
                break;
            };
            let oldest = CatalogKey::clone(oldest);
            drop(self.remove(&oldest));
        }
    }

    fn remove(&mut self, key: &CatalogKey) -> Option<DigestedCatalog> {
        let removed = self.catalogs.pop(key)?;
        self.skill_count -= removed
            .skills
            .as_ref()
            .map_or(0, DigestGroups::digest_count);
        Some(removed)
    }

    /// Drops the digests of catalogs that are not in use.
    fn drop_unused(&mut self) {
        let all = self.catalogs.iter();
        let unused = all.filter(|(_, known)| known.catalog.strong_count() == 0);
        for key in unused.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            drop(self.remove(&key));
        }
    }
}

/// Returns the sorted digests of skills as a caller of the root sees them.
fn sorted_digests<'a>(
    visible: &VisibleRoot<'_>,
    view: pb::SkillView,
    skills: impl Iterator<Item = &'a Arc<Skill>>,
) -> Vec<MessageDigest> {
    encoded_digests(visible, view, skills, 0).0
}

/// Returns the sorted digests of skills, and the messages of the first ones: about `max_bytes` bytes
/// from each chunk.
fn encoded_digests<'a>(
    visible: &VisibleRoot<'_>,
    view: pb::SkillView,
    skills: impl Iterator<Item = &'a Arc<Skill>>,
    max_bytes: usize,
) -> (Vec<MessageDigest>, FirstSkills) {
    let skills: Vec<_> = skills.collect();
    let chunks = map_chunks(&skills, MAX_INLINE_SKILLS, |skills| {
        encoded_chunk(visible, view, skills, max_bytes)
    });

    let mut digests = Vec::with_capacity(skills.len());
    let mut first = FirstSkills::default();
    for (chunk, encoded) in chunks {
        // A message that is not kept ends the first ones.
        if first.ends.len() == digests.len() {
            first.append(encoded);
        }
        digests.extend(chunk);
    }

    // This sort merges the sorted chunks.
    digests.sort();
    (digests, first)
}

fn encoded_chunk(
    visible: &VisibleRoot<'_>,
    view: pb::SkillView,
    skills: &[&Arc<Skill>],
    max_bytes: usize,
) -> (Vec<MessageDigest>, FirstSkills) {
    let scope = visible.catalog.header.scope;
    let mut digests = Vec::with_capacity(skills.len());
    let mut first = FirstSkills::default();
    let mut is_kept = true;
    for skill in skills {
        let start = first.bytes.len();
        encode_skill(visible.id, scope, skill, view, &mut first.bytes);
        digests.push(MessageDigest::new(
            CatalogMessage::Skill,
            &first.bytes[start..],
        ));

        // The other skills of the chunk share the rest of the buffer.
        is_kept &= first.bytes.len() <= max_bytes;
        if is_kept {
            first.ends.push(first.bytes.len());
        } else {
            first.bytes.truncate(start);
        }
    }
    digests.sort_unstable();
    (digests, first)
}

fn digest(kind: CatalogMessage, message: &impl Message) -> MessageDigest {
    MessageDigest::new(kind, &message.encode_to_vec())
}
