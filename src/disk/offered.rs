//! Where the published roots are on one ground: looked up once, and not for each root that is searched
//! there. Leaves what that means for a search to `approach`.

use super::allowed::Ground;
use crate::domain::{Published, Spot};
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

/// What was looked up on a ground.
#[derive(Debug, Default)]
pub(super) struct Offered(OnceLock<(Arc<[Published]>, Arc<Places>)>);

/// Places of published roots.
#[derive(Debug)]
pub(super) struct Places {
    /// One for each; `None` for one that is nowhere on the ground.
    pub(super) each: Box<[Option<Spot>]>,
    pub(super) all: Arc<HashSet<Spot>>,
}

impl Ground {
    /// Where these are. As a rule, everybody who stands on a ground asks for the same.
    pub(super) fn places_of(&self, published: &Arc<[Published]>) -> Arc<Places> {
        if let Some((of, places)) = self.offered.0.get()
            && Arc::ptr_eq(of, published)
        {
            return places.clone();
        }
        let each = published.iter().map(|root| self.resolve_published(&root.path).ok());
        let each: Box<[_]> = each.collect();
        let all = Arc::new(each.iter().flatten().cloned().collect());
        let places = Arc::new(Places { each, all });
        // Any other may lead elsewhere by the next time.
        if published.iter().all(|root| self.is_given(&root.path)) {
            // Others may have been here first, with the same.
            let _ = self.offered.0.set((published.clone(), places.clone()));
        }
        places
    }
}
