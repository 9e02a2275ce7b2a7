//! Policy of the catalogs: the operator's configuration and the resolution of selections. A reload
//! replaces the policy as a whole while the daemon runs.

use super::scope::{CatalogScope, RootKey, ScopeCache};
use crate::fs::{DisabledSkills, OpenMethod, ReadRules};
use crate::model::{
    AccessScope, Catalog, Limits, PublishedRoot, RelPath, RootReason, SelectedRoot,
};
use crate::scan::ScanTarget;
use crate::scan::search::SearchRules;
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

/// Policy that is applied, with the scopes of callers.
#[derive(Debug)]
pub struct CatalogPolicy {
    pub environments: Arc<[String]>,
    scopes: ScopeCache,
    /// All published roots, in any scope.
    published_roots: Arc<[PublishedRoot]>,
    rules: SearchRules,
    pub timing: WatchTiming,
}

impl CatalogPolicy {
    pub fn from_config(opener: OpenMethod, config: PolicyConfig) -> Self {
        Self::new(config, |allowed_dirs, roots| ScopeCache::new(opener, allowed_dirs, roots))
    }

    /// Returns the successor of this policy.
    pub fn with_config(&self, config: PolicyConfig) -> Self {
        Self::new(config, |allowed_dirs, roots| self.scopes.with_policy(allowed_dirs, roots))
    }

    fn new(
        config: PolicyConfig,
        scopes: impl FnOnce(Vec<PathBuf>, Arc<[PublishedRoot]>) -> ScopeCache,
    ) -> Self {
        let PolicyConfig { environments, allowed_dirs, published_roots, rules, timing } = config;
        let published_roots: Arc<[_]> = published_roots.into();
        let scopes = scopes(allowed_dirs, published_roots.clone());
        Self { environments: environments.into(), scopes, published_roots, rules, timing }
    }

    pub fn limits(&self) -> &Limits {
        &self.rules.limits
    }

    pub fn scope_for(&self, access_scope: &AccessScope) -> Arc<CatalogScope> {
        self.scopes.scope_for(access_scope)
    }

    /// Whether both policies resolve every selection to the same roots.
    pub fn resolves_selections_like(&self, other: &Self) -> bool {
        self.published_roots == other.published_roots && self.environments == other.environments
    }

    pub fn root_keys(
        &self,
        access_scope: &AccessScope,
        selection: &[SelectedRoot],
    ) -> Vec<Result<RootKey, RootReason>> {
        let scope = self.scope_for(access_scope);
        selection.iter().map(|selected| scope.root_key(selected, &self.environments)).collect()
    }

    pub fn scan_target(&self, key: &RootKey) -> ScanTarget {
        ScanTarget {
            path: (*key.path).into(),
            rules: self.rules.clone(),
            published: self.published_roots.clone(),
        }
    }

    /// Returns the rules for reading and listing the files of a package.
    pub fn read_rule<'a>(&'a self, catalog: &'a Catalog, package: &RelPath) -> ReadRules<'a> {
        let disabled_skills = DisabledSkills {
            packages: catalog.disabled_packages(),
            rules: &self.rules.disable_rules,
            published: &self.published_roots,
        };
        // The rules of skills apply to a package that is a skill and a plugin.
        let plugin = catalog.plugin(package).filter(|_| catalog.skill(package).is_none());
        ReadRules {
            skipped_dirs: &self.rules.skipped_dirs,
            follow_links: catalog.header.follow_links,
            disabled_skills,
            manifest_files: catalog.manifest_files(),
            plugin: plugin.map(|plugin| &**plugin),
        }
    }
}
