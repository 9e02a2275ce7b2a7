//! A long list that is cheap to copy and to change in a few places: two copies share all chunks in
//! which they are the same.

use super::skill::Skill;
use std::sync::Arc;

/// Skills in one chunk: a change copies one.
const CHUNK_LEN: usize = 128;

/// Skills in order, in chunks of [`CHUNK`], the last one shorter.
#[derive(Debug, Clone)]
pub(super) struct SkillChunks(Box<[Arc<[Arc<Skill>]>]>);

impl SkillChunks {
    pub(super) fn new(skills: &[Arc<Skill>]) -> Self {
        Self(skills.chunks(CHUNK_LEN).map(Into::into).collect())
    }

    pub(super) fn get(&self, at: usize) -> &Arc<Skill> {
        &self.0[at / CHUNK_LEN][at % CHUNK_LEN]
    }

    pub(super) fn replace_skill(&mut self, at: usize, skill: Arc<Skill>) {
        let chunk = &mut self.0[at / CHUNK_LEN];
        let mut copy = chunk.to_vec();
        copy[at % CHUNK_LEN] = skill;
        *chunk = copy.into();
    }

    pub(super) fn iter(&self, from: usize) -> impl Iterator<Item = &Arc<Skill>> {
        let chunks = self.0.iter().skip(from / CHUNK_LEN);
        chunks.flat_map(|chunk| chunk.iter()).skip(from % CHUNK_LEN)
    }

    /// The pairs at the same places that are not the same, of this list and of `old`.
    pub(super) fn replaced_pairs<'a>(
        &'a self,
        old: &'a Self,
    ) -> impl Iterator<Item = (&'a Arc<Skill>, &'a Arc<Skill>)> {
        let chunks = self.0.iter().zip(&old.0).filter(|(new, old)| !Arc::ptr_eq(new, old));
        let pairs = chunks.flat_map(|(new, old)| new.iter().zip(old.iter()));
        pairs.filter(|(new, old)| !Arc::ptr_eq(new, old) && new != old)
    }
}

impl PartialEq for SkillChunks {
    fn eq(&self, other: &Self) -> bool {
        let lens = |chunks: &Self| (chunks.0.len(), chunks.0.last().map(|chunk| chunk.len()));
        lens(self) == lens(other) && self.replaced_pairs(other).next().is_none()
    }
}
