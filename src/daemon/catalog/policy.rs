//! Policy of the catalogs: the operator's configuration, the scopes of callers, and the resolution
//! of selections. A reload replaces the policy as a whole while the daemon runs.
//!
//! A root is scanned, watched and read once per access scope. The allowed directories of a scope
//! end at the scope, so the code that confines the daemon to its allowed directories also confines
//! the caller: links, reads and file lists included. No response is filtered afterwards. The price
//! is one catalog per root and scope. There are at most as many scopes as caller rules.

use crate::daemon::fs::{AllowedDirs, OpenMethod, ReadRules};
use crate::daemon::model::{
    AccessScope, Catalog, Limits, PublishedRoot, RootPath, RootReason, SelectedRoot, TrustMode,
    TrustPolicy,
};
use crate::daemon::scan::ScanTarget;
use crate::daemon::scan::search::SearchRules;
use caproot_core::sync::Mutex;
use caproot_core::wire::RelPath;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Configuration that an operator sets and can reload.
#[derive(Debug, Clone)]
pub struct PolicyConfig {
    /// Environments whose roots the daemon resolves; never empty.
    pub environments: Vec<String>,
    /// Absolute paths of the directories that contain all roots and link targets.
    pub allowed_dirs: Vec<PathBuf>,
    /// Published roots in scope order, then by id.
    pub published_roots: Vec<PublishedRoot>,
    /// Limits and exclusions of scans.
    pub rules: SearchRules,
    /// Intervals and timeouts.
    pub timing: WatchTiming,
}

/// Intervals and timeouts of watching and scanning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchTiming {
    /// Time without events after which a change is published.
    pub debounce: Duration,
    /// Longest time between the first event and publication, even if events keep coming.
    pub max_debounce: Duration,
    /// Interval of rechecks for changes that inotify does not report: targets of links, the path of
    /// the root, and mounts.
    pub recheck_interval: Duration,
    /// Interval of full scans of a polled root.
    pub poll_interval: Duration,
    /// Interval of full scans of a watched root, varied by up to 10 %.
    pub full_scan_interval: Duration,
    /// Interval of full scans of a root on an overlay filesystem, which misses some events.
    pub overlay_scan_interval: Duration,
    /// How long the task of an unused root keeps running.
    pub idle_timeout: Duration,
    /// Time without progress after which a scan makes its root unavailable.
    pub stuck_timeout: Duration,
    /// How long the reader of a stream may pause in the middle of a state. The daemon then discards
    /// the rest of the state, and the stream resynchronizes.
    pub stalled_reader_timeout: Duration,
}

impl Default for WatchTiming {
    fn default() -> Self {
        Self {
            debounce: Duration::from_millis(20),
            max_debounce: Duration::from_millis(500),
            recheck_interval: Duration::from_secs(2),
            poll_interval: Duration::from_secs(5),
            full_scan_interval: Duration::from_mins(10),
            overlay_scan_interval: Duration::from_mins(1),
            idle_timeout: Duration::from_mins(10),
            stuck_timeout: Duration::from_secs(5),
            stalled_reader_timeout: Duration::from_secs(10),
        }
    }
}

/// Policy that is applied, with the scopes that callers used under it.
#[derive(Debug)]
pub struct CatalogPolicy {
    pub environments: Arc<[String]>,
    pub timing: WatchTiming,
    rules: SearchRules,
    allowed_dirs: Vec<PathBuf>,
    /// All published roots, in any scope.
    published_roots: Arc<[PublishedRoot]>,
    opener: OpenMethod,
    scopes: Mutex<HashMap<AccessScope, Arc<CatalogScope>>>,
    /// Shared by all policies, so that an access scope keeps its catalogs.
    scope_ids: Arc<Mutex<HashMap<AccessScope, usize>>>,
}

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

impl CatalogPolicy {
    /// Returns the first policy of a store.
    pub fn new(opener: OpenMethod, config: PolicyConfig) -> Self {
        let PolicyConfig {
            environments,
            allowed_dirs,
            published_roots,
            rules,
            timing,
        } = config;
        Self {
            environments: environments.into(),
            timing,
            rules,
            allowed_dirs,
            published_roots: published_roots.into(),
            opener,
            scopes: Mutex::default(),
            scope_ids: Arc::default(),
        }
    }

    /// Returns the successor of this policy. Access scopes keep their ids.
    pub fn with_config(&self, config: PolicyConfig) -> Self {
        Self {
            scope_ids: self.scope_ids.clone(),
            ..Self::new(self.opener, config)
        }
    }

    pub fn limits(&self) -> &Limits {
        &self.rules.limits
    }

    pub fn trust(&self) -> Option<&TrustPolicy> {
        self.rules.trust.as_ref()
    }

    /// Whether both policies resolve every selection to the same roots.
    pub fn resolves_selections_like(&self, other: &Self) -> bool {
        self.published_roots == other.published_roots && self.environments == other.environments
    }

    /// Whether both policies approve the same skills.
    pub fn approves_like(&self, other: &Self) -> bool {
        let [own, other] = [self, other].map(|policy| {
            let trust = policy.trust()?;
            Some((&trust.lock.lock, trust.mode, &trust.roots))
        });
        own == other
    }

    /// Resolves a selection to the keys of its catalogs.
    pub fn root_keys(
        &self,
        access_scope: &AccessScope,
        selection: &[SelectedRoot],
    ) -> Vec<Result<RootKey, RootReason>> {
        let scope = self.scope_for(access_scope);
        selection
            .iter()
            .map(|selected| scope.root_key(selected, &self.environments))
            .collect()
    }

    /// Returns the scope of an access scope. All calls return the same `Arc`.
    pub fn scope_for(&self, access_scope: &AccessScope) -> Arc<CatalogScope> {
        let mut scopes = self.scopes.lock();
        if let Some(scope) = scopes.get(access_scope) {
            return scope.clone();
        }

        // An id outlives the policy, so that an access scope keeps its catalogs after a reload.
        let id = {
            let mut scope_ids = self.scope_ids.lock();
            let next = scope_ids.len();
            *scope_ids.entry(access_scope.clone()).or_insert(next)
        };

        // A caller that is bound to roots does not see skills behind the links of default roots.
        let configured = self.allowed_dirs.clone();
        let allowed_dirs = match access_scope {
            AccessScope::All => {
                AllowedDirs::with_links(self.opener, configured, &self.published_roots)
            }
            AccessScope::Directories(dirs) => {
                let paths = dirs.iter().map(|dir| PathBuf::from(OsStr::from_bytes(dir)));
                AllowedDirs::with_access_scope(self.opener, configured, paths.collect())
            }
        };

        let published_roots: Arc<[PublishedRoot]> = self
            .published_roots
            .iter()
            .filter(|root| access_scope.contains_path(&root.path))
            .cloned()
            .collect();
        let paths_by_id = published_roots
            .iter()
            .map(|root| (root.id.as_str().into(), Arc::from(&*root.path)))
            .collect();

        let scope = Arc::new(CatalogScope {
            id,
            allowed_dirs,
            published_roots,
            paths_by_id,
        });
        scopes.insert(access_scope.clone(), scope.clone());
        scope
    }

    pub fn scan_target(&self, key: &RootKey) -> ScanTarget {
        ScanTarget {
            path: (*key.path).into(),
            rules: self.rules.clone(),
            published: self.published_roots.clone(),
        }
    }

    /// Returns the rules for reading and listing the files of a package. Returns `None` if the
    /// package is not approved and therefore must not be read.
    pub fn read_rules<'a>(
        &'a self,
        catalog: &'a Catalog,
        package: &RelPath,
    ) -> Option<ReadRules<'a>> {
        let mut rules = self
            .rules
            .read_rules(&self.published_roots, catalog, package);
        let is_hidden = catalog.header.trust.map(|trust| trust.mode) == Some(TrustMode::Hide);
        if let Some(trust) = self.trust()
            && is_hidden
            && trust.mode == TrustMode::Hide
        {
            rules.approved_files = Some(catalog.approved_files(package, trust)?);
        }
        Some(rules)
    }
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
            RootPath::Published(id) => self
                .paths_by_id
                .get(&id)
                .ok_or(RootReason::UnknownPublished)?
                .clone(),
        };
        Ok(RootKey {
            scope_id: self.id,
            path,
        })
    }

    /// Returns the key of a published root of the scope.
    pub fn key_of(&self, root: &PublishedRoot) -> RootKey {
        RootKey {
            scope_id: self.id,
            path: Arc::from(&*root.path),
        }
    }

    pub fn contains_key(&self, key: &RootKey) -> bool {
        key.scope_id == self.id
    }
}
