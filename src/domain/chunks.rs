//! A long list that is cheap to copy and to change in a few places: two copies share all chunks in
//! which they are the same.

use super::skill::Skill;
use std::sync::Arc;

/// Skills in one chunk: a change copies one.
const CHUNK: usize = 128;

/// Skills in order, in chunks of [`CHUNK`], the last one shorter.
#[derive(Debug, Clone)]
pub(super) struct Chunks(Box<[Arc<[Arc<Skill>]>]>);

impl Chunks {
    pub(super) fn new(skills: &[Arc<Skill>]) -> Self {
        Self(skills.chunks(CHUNK).map(Into::into).collect())
    }

    pub(super) fn get(&self, at: usize) -> &Arc<Skill> {
        &self.0[at / CHUNK][at % CHUNK]
    }

    pub(super) fn replace(&mut self, at: usize, skill: Arc<Skill>) {
        let chunk = &mut self.0[at / CHUNK];
        let mut copy = chunk.to_vec();
        copy[at % CHUNK] = skill;
        *chunk = copy.into();
    }

    pub(super) fn iter(&self, from: usize) -> impl Iterator<Item = &Arc<Skill>> {
        let chunks = self.0.iter().skip(from / CHUNK);
        chunks.flat_map(|chunk| chunk.iter()).skip(from % CHUNK)
    }

    /// The pairs at the same places that are not the same, of this list and of `old`.
    pub(super) fn replaced<'a>(
        &'a self,
        old: &'a Self,
    ) -> impl Iterator<Item = (&'a Arc<Skill>, &'a Arc<Skill>)> {
        let chunks = self.0.iter().zip(&old.0).filter(|(new, old)| !Arc::ptr_eq(new, old));
        let pairs = chunks.flat_map(|(new, old)| new.iter().zip(old.iter()));
        pairs.filter(|(new, old)| !Arc::ptr_eq(new, old) && new != old)
    }
}

impl PartialEq for Chunks {
    fn eq(&self, other: &Self) -> bool {
        let lens = |chunks: &Self| (chunks.0.len(), chunks.0.last().map(|chunk| chunk.len()));
        lens(self) == lens(other) && self.replaced(other).next().is_none()
    }
}
