//! What no event of a directory tells: links and roots that lead elsewhere, and what is mounted.

use super::allowed::Allowed;
use super::progress::Progress;
use super::survey::Survey;
use std::collections::HashSet;

impl Survey {
    /// The tokens of directories in which a link leads elsewhere than it did, or something could not
    /// be read: what no event tells where a directory on its way is not watched; and of those at which
    /// something was mounted or taken away, which no event tells at all. `None` where the root itself
    /// is elsewhere, or was not there and may be now.
    pub fn strayed(
        &self,
        allowed: &Allowed,
        mounts: &HashSet<Box<[u8]>>,
        progress: &Progress,
    ) -> Option<HashSet<u64>> {
        let path = &self.target.path;
        let ground = if mounts.is_empty() { allowed.recent() } else { allowed.look_for(path) };
        let Some(found) = &self.found else {
            let is_same = self.resolve(ground).err() == self.failed && self.failed.is_some();
            return is_same.then(HashSet::new);
        };
        if found.moved(&ground, path) {
            return None;
        }
        Some(found.strayed(mounts, progress))
    }
}
