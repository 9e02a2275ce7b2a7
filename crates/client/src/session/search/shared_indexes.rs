//! Indexes that the sessions of this process share: a catalog of many sessions is indexed once.

use super::catalog_index::CatalogIndex;
use crate::session::skill::SharedSkill;
use caproot_core::sync::Mutex;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, LazyLock, Weak};

/// Number of indexes from which ended indexes are removed.
const MIN_SWEEP_LEN: usize = 64;

static SHARED_INDEXES: LazyLock<Mutex<SharedIndexes>> = LazyLock::new(Mutex::default);

/// Indexes that a session holds, by the addresses of their skills.
#[derive(Debug, Default)]
struct SharedIndexes {
    known: HashMap<u64, Weak<CatalogIndex>>,
    /// Number of indexes at which the next sweep removes ended indexes.
    next_sweep_len: usize,
}

/// Returns the index of these skills that a session of this process holds, or a new one.
pub fn share_index(skills: &[SharedSkill]) -> Arc<CatalogIndex> {
    let key = address_hash(skills);
    let mut shared = SHARED_INDEXES.lock();

    // A held index holds its skills, so no other skill has their addresses.
    let held = shared.known.get(&key).and_then(Weak::upgrade);
    if let Some(index) = held.filter(|index| index.has_skills(skills)) {
        return index;
    }

    let index = Arc::new(CatalogIndex::new(skills.to_vec()));
    shared.known.insert(key, Arc::downgrade(&index));
    shared.sweep();
    index
}

impl SharedIndexes {
    fn sweep(&mut self) {
        if self.known.len() >= self.next_sweep_len.max(MIN_SWEEP_LEN) {
            self.known.retain(|_, index| index.strong_count() > 0);
            self.next_sweep_len = 2 * self.known.len();
        }
    }
}

fn address_hash(skills: &[SharedSkill]) -> u64 {
    let mut hash = DefaultHasher::new();
    for skill in skills {
        Arc::as_ptr(skill).hash(&mut hash);
    }
    hash.finish()
}

#[cfg(test)]
mod tests {
    use super::share_index;
    use caproot_core::proto::caproot::v1::Skill;
    use std::sync::Arc;

    #[test]
    fn the_same_skills_have_one_index() {
        let skills: Vec<_> = (0..3).map(|_| Arc::new(Skill::default())).collect();
        let index = share_index(&skills);
        assert!(Arc::ptr_eq(&index, &share_index(&skills.clone())));

        let equal: Vec<_> = (0..3).map(|_| Arc::new(Skill::default())).collect();
        assert!(!Arc::ptr_eq(&index, &share_index(&equal)));
        assert!(!Arc::ptr_eq(&index, &share_index(&skills[1..])));
    }

    #[test]
    fn ended_indexes_are_removed() {
        for _ in 0..1_000 {
            share_index(&[Arc::new(Skill::default())]);
        }
        let known = super::SHARED_INDEXES.lock().known.len();
        assert!(known < 500, "{known}");
    }
}
