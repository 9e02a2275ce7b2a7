//! Mirrors that the sessions of a process share, by environment and selection.

use crate::mirror::{Mirror, MirrorSelection, WeakMirror};
use caproot_core::sync::Mutex;
use std::collections::BTreeMap;

/// Number of environments from which ended mirrors are removed.
const MIN_SWEEP_LEN: usize = 64;

/// Mirrors in use. A mirror ends with its last clone, and then only its selection stays here until
/// the next sweep.
#[derive(Debug, Default)]
pub struct MirrorPool(Mutex<MirrorPoolState>);

#[derive(Debug, Default)]
struct MirrorPoolState {
    mirrors: BTreeMap<String, Vec<(MirrorSelection, WeakMirror)>>,
    /// Number of environments at which the next sweep removes ended mirrors.
    next_sweep_len: usize,
}

impl MirrorPool {
    /// Returns the mirror of an environment with this selection, which `start` returns if there is
    /// none. The roots of the selection must be sorted.
    pub fn find_or_start(
        &self,
        environment_id: &str,
        selection: MirrorSelection,
        start: impl FnOnce(MirrorSelection) -> Mirror,
    ) -> Mirror {
        let mut state = self.0.lock();
        let found = state.mirrors.get(environment_id).and_then(|mirrors| {
            mirrors
                .iter()
                .find(|(other, _)| *other == selection)?
                .1
                .upgrade()
        });
        if let Some(mirror) = found {
            return mirror;
        }
        let mirror = start(selection.clone());
        state.add(environment_id, selection, &mirror);
        mirror
    }

    /// Returns the number of shared mirrors in use.
    pub fn len(&self) -> usize {
        let state = self.0.lock();
        state
            .mirrors
            .values()
            .flatten()
            .filter(|(_, mirror)| mirror.is_in_use())
            .count()
    }
}

impl MirrorPoolState {
    fn add(&mut self, environment_id: &str, selection: MirrorSelection, mirror: &Mirror) {
        let mirrors = self.mirrors.entry(environment_id.to_owned()).or_default();
        mirrors.retain(|(_, mirror)| mirror.is_in_use());
        mirrors.push((selection, mirror.downgrade()));
        // Doubling the length between two sweeps keeps the cost of a mirror constant.
        if self.mirrors.len() >= self.next_sweep_len.max(MIN_SWEEP_LEN) {
            self.mirrors
                .retain(|_, mirrors| mirrors.iter().any(|(_, mirror)| mirror.is_in_use()));
            self.next_sweep_len = 2 * self.mirrors.len();
        }
    }
}
