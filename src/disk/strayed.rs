//! What no event of a directory tells: links and roots that lead elsewhere, and what is mounted.

use super::allowed_dirs::AllowedDirs;
use super::root_index::RootIndex;
use super::scan_progress::ScanProgress;
use std::collections::HashSet;

impl RootIndex {
    /// The tokens of directories in which a link leads elsewhere than it did, or something could not
    /// be read: what no event tells where a directory on its way is not watched; and of those at which
    /// something was mounted or taken away, which no event tells at all. `None` where the root itself
    /// is elsewhere, or was not there and may be now.
    pub fn unreported_changes(
        &self,
        allowed: &AllowedDirs,
        mounts: &HashSet<Box<[u8]>>,
        progress: &ScanProgress,
    ) -> Option<HashSet<u64>> {
        let path = &self.target.path;
        let ground = if mounts.is_empty() {
            allowed.recent_snapshot()
        } else {
            allowed.snapshot_for_path(path)
        };
        let Some(found) = &self.scanned_root else {
            let is_same = self.resolve_root(ground).err() == self.unusable_reason
                && self.unusable_reason.is_some();
            return is_same.then(HashSet::new);
        };
        if found.has_moved(&ground, path) {
            return None;
        }
        Some(found.unreported_changes(mounts, progress))
    }
}
