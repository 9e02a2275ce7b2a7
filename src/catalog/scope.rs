//! Directories and published roots within the access scope of a caller.
//!
//! A root is scanned, watched and read once per access scope. The allowed directories of a scope
//! end at the scope, so the code that confines the daemon to its allowed directories also confines
//! the caller: links, reads and file lists included. No response is filtered afterwards. The price
//! is one catalog per root and scope. There are at most as many scopes as caller rules.

use crate::fs::{AllowedDirs, OpenMethod};
use crate::model::{AccessScope, PublishedRoot, RootPath, RootReason, SelectedRoot};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Allowed directories and published roots of one access scope.
#[derive(Debug)]
pub struct CatalogScope {
    id: usize,
    pub allowed_dirs: AllowedDirs,
    /// In scope order, then by id.
    pub published_roots: Arc<[PublishedRoot]>,
    /// Paths of `published_roots`, by id.
    paths_by_id: HashMap<Box<str>, Arc<[u8]>>,
}

/// Identity of a catalog.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RootKey {
    scope_id: usize,
    /// Absolute path of the root, as selected.
    pub path: Arc<[u8]>,
}

/// Scopes that callers used under one policy.
#[derive(Debug)]
pub struct ScopeCache {
    opener: OpenMethod,
    allowed_dirs: Vec<PathBuf>,
    published_roots: Arc<[PublishedRoot]>,
    scopes: Mutex<HashMap<AccessScope, Arc<CatalogScope>>>,
    /// Shared by all policies, so that an access scope keeps its catalogs.
    scope_ids: Arc<Mutex<HashMap<AccessScope, usize>>>,
}

impl CatalogScope {
    /// Resolves a selected root to the key of its catalog.
    pub fn root_key(
        &self,
        selected: &SelectedRoot,
        environments: &[String],
    ) -> Result<RootKey, RootReason> {
        let path = match selected.root_path(environments)? {
            RootPath::Native(path) => path.into(),
            // A published root outside the scope looks like a root that does not exist.
            RootPath::Published(id) => {
                self.paths_by_id.get(&id).ok_or(RootReason::InvalidPath)?.clone()
            }
        };
        Ok(RootKey { scope_id: self.id, path })
    }

    pub fn contains_key(&self, key: &RootKey) -> bool {
        key.scope_id == self.id
    }
}

impl ScopeCache {
    pub fn new(
        opener: OpenMethod,
        allowed_dirs: Vec<PathBuf>,
        published_roots: Arc<[PublishedRoot]>,
    ) -> Self {
        let (scopes, scope_ids) = (Mutex::default(), Arc::default());
        Self { opener, allowed_dirs, published_roots, scopes, scope_ids }
    }

    /// Returns an empty cache for a new policy. Access scopes keep their ids.
    pub fn with_policy(
        &self,
        allowed_dirs: Vec<PathBuf>,
        published_roots: Arc<[PublishedRoot]>,
    ) -> Self {
        let scope_ids = self.scope_ids.clone();
        Self { scope_ids, ..Self::new(self.opener, allowed_dirs, published_roots) }
    }

    /// Returns the scope of an access scope. All calls return the same `Arc`.
    pub fn scope_for(&self, access_scope: &AccessScope) -> Arc<CatalogScope> {
        let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(scope) = scopes.get(access_scope) {
            return scope.clone();
        }
        let id = {
            let mut scope_ids = self.scope_ids.lock().unwrap_or_else(PoisonError::into_inner);
            let next = scope_ids.len();
            *scope_ids.entry(access_scope.clone()).or_insert(next)
        };
        let configured = self.allowed_dirs.clone();
        let allowed_dirs = match access_scope {
            AccessScope::All => AllowedDirs::with_opener(self.opener, configured),
            AccessScope::Directories(dirs) => {
                let dirs = dirs.iter().map(|dir| PathBuf::from(OsStr::from_bytes(dir)));
                AllowedDirs::with_access_scope(self.opener, configured, dirs.collect())
            }
        };
        let in_scope = |root: &&PublishedRoot| access_scope.contains_path(&root.path);
        let published_roots: Arc<[_]> =
            self.published_roots.iter().filter(in_scope).cloned().collect();
        let id_and_path = |root: &PublishedRoot| (root.id.as_str().into(), Arc::from(&*root.path));
        let paths_by_id = published_roots.iter().map(id_and_path).collect();
        let scope = Arc::new(CatalogScope { id, allowed_dirs, published_roots, paths_by_id });
        scopes.insert(access_scope.clone(), scope.clone());
        scope
    }
}
