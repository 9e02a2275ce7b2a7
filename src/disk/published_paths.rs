//! Where the published roots are on one ground: looked up once, and not for each root that is searched
//! there. Leaves what that means for a search to `approach`.

use super::allowed_dirs::AllowedDirsSnapshot;
use crate::domain::{PublishedRoot, ResolvedPath};
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

/// What was looked up on a ground.
#[derive(Debug, Default)]
pub(super) struct PublishedPathCache(OnceLock<(Arc<[PublishedRoot]>, Arc<PublishedPaths>)>);

/// Places of published roots.
#[derive(Debug)]
pub(super) struct PublishedPaths {
    /// One for each; `None` for one that is nowhere on the ground.
    pub(super) by_root: Box<[Option<ResolvedPath>]>,
    pub(super) all: Arc<HashSet<ResolvedPath>>,
}

impl AllowedDirsSnapshot {
    /// Where these are. As a rule, everybody who stands on a ground asks for the same.
    pub(super) fn published_paths_of(
        &self,
        published: &Arc<[PublishedRoot]>,
    ) -> Arc<PublishedPaths> {
        if let Some((of, places)) = self.published_paths.0.get()
            && Arc::ptr_eq(of, published)
        {
            return places.clone();
        }
        let each = published.iter().map(|root| self.resolve_published(&root.path).ok());
        let each: Box<[_]> = each.collect();
        let all = Arc::new(each.iter().flatten().cloned().collect());
        let places = Arc::new(PublishedPaths { by_root: each, all });
        // Any other may lead elsewhere by the next time.
        if published.iter().all(|root| self.is_configured(&root.path)) {
            // Others may have been here first, with the same.
            let _ = self.published_paths.0.set((published.clone(), places.clone()));
        }
        places
    }
}
