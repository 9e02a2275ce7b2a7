//! The part of the allowed roots within which somebody's roots are looked at.
//!
//! A root is searched, watched and read once for each bound that somebody has who asks for it, on a
//! ground that ends at the bound: the same code that keeps the daemon to its allowed roots then keeps
//! a caller to its part of them, links, reads and lists of files included, and no answer is filtered
//! afterwards. What that costs is a catalog more for a root that callers of several bounds use, and
//! bounds are as few as the operator's rules.

use crate::disk::{AllowedDirs, OpenMethod};
use crate::domain::{AccessScope, PublishedRoot};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// One bound.
#[derive(Debug)]
pub(super) struct CatalogScope {
    /// By which catalogs of one bound are told from those of another.
    pub(super) id: usize,
    /// What may be opened.
    pub(super) allowed_dirs: AllowedDirs,
    /// What is offered, in scope order, then by id.
    pub(super) published_roots: Arc<[PublishedRoot]>,
    /// Their paths, by id.
    pub(super) paths_by_id: HashMap<Box<str>, Arc<[u8]>>,
}

/// All bounds that were asked for, under the same terms.
#[derive(Debug)]
pub(super) struct ScopeCache {
    opener: OpenMethod,
    allowed_dirs: Vec<PathBuf>,
    published_roots: Arc<[PublishedRoot]>,
    scopes: Mutex<HashMap<AccessScope, Arc<CatalogScope>>>,
    /// Under all terms: what a reach has a catalog of stays its own.
    scope_ids: Arc<Mutex<HashMap<AccessScope, usize>>>,
}

impl ScopeCache {
    pub(super) fn new(
        opener: OpenMethod,
        allowed: Vec<PathBuf>,
        published: Arc<[PublishedRoot]>,
    ) -> Self {
        Self {
            opener,
            allowed_dirs: allowed,
            published_roots: published,
            scopes: Mutex::default(),
            scope_ids: Arc::default(),
        }
    }

    /// The same reaches, under other terms.
    pub(super) fn with_policy(
        &self,
        allowed: Vec<PathBuf>,
        published: Arc<[PublishedRoot]>,
    ) -> Self {
        let numbers = self.scope_ids.clone();
        Self {
            opener: self.opener,
            allowed_dirs: allowed,
            published_roots: published,
            scopes: Mutex::default(),
            scope_ids: numbers,
        }
    }

    /// The bound of a reach, always the same.
    pub(super) fn scope_for(&self, reach: &AccessScope) -> Arc<CatalogScope> {
        let mut made = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bound) = made.get(reach) {
            return bound.clone();
        }
        let number = {
            let mut numbers = self.scope_ids.lock().unwrap_or_else(PoisonError::into_inner);
            let next = numbers.len();
            *numbers.entry(reach.clone()).or_insert(next)
        };
        let given = self.allowed_dirs.clone();
        let allowed = match reach {
            AccessScope::All => AllowedDirs::with_opener(self.opener, given),
            AccessScope::Directories(dirs) => {
                let dirs = dirs.iter().map(|dir| PathBuf::from(OsStr::from_bytes(dir)));
                AllowedDirs::with_access_scope(self.opener, given, dirs.collect())
            }
        };
        let published = self.published_roots.iter().filter(|root| reach.contains_path(&root.path));
        let published: Arc<[_]> = published.cloned().collect();
        let by_id = published.iter().map(|root| (root.id.as_str().into(), (&*root.path).into()));
        let by_id = by_id.collect();
        let bound = Arc::new(CatalogScope {
            id: number,
            allowed_dirs: allowed,
            published_roots: published,
            paths_by_id: by_id,
        });
        made.insert(reach.clone(), bound.clone());
        bound
    }
}
