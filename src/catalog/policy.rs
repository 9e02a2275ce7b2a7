//! What a keeper goes by: the operator's terms, and what becomes of a selection under them. Other terms
//! may take their place while the daemon runs; all of them do at once.

use super::CatalogStore;
use super::scope::{CatalogScope, ScopeCache};
use super::state::RootKey;
use super::timing::WatchTiming;
use crate::disk::{DisabledSkills, OpenMethod, ReadRules, ScanTarget};
use crate::domain::search::SearchRules;
use crate::domain::{
    AccessScope, Catalog, PublishedRoot, RelPath, RootPath, RootReason, SelectedRoot,
};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use tokio::sync::Semaphore;

/// What the operator says.
#[derive(Debug, Clone)]
pub struct PolicyConfig {
    /// The environments whose roots it resolves; never empty.
    pub environments: Vec<String>,
    /// The directories below which roots and their links may lie, absolute.
    pub allowed_dirs: Vec<PathBuf>,
    /// In scope order, then by id.
    pub published_roots: Vec<PublishedRoot>,
    /// What a search may do.
    pub rules: SearchRules,
    /// When roots are looked at.
    pub timing: WatchTiming,
}

/// Terms in force, and what was made of them.
#[derive(Debug)]
pub(super) struct CatalogPolicy {
    pub(super) environments: Arc<[String]>,
    pub(super) scopes: ScopeCache,
    /// All of them, whoever may use them.
    pub(super) published_roots: Arc<[PublishedRoot]>,
    pub(super) rules: SearchRules,
    pub(super) timing: WatchTiming,
}

impl CatalogStore {
    /// Goes by other terms from now on: every root is searched again. Calls that are under way may end
    /// as they began.
    pub fn apply_policy(&self, terms: PolicyConfig) {
        let mut ledger = self.lock_state();
        let before = self.policy();
        let regime = Arc::new(before.with_config(terms));
        *self.0.policy.lock().unwrap_or_else(PoisonError::into_inner) = regime.clone();
        let limits = &regime.rules.limits;
        ledger.set_max_history(limits.max_history);
        if !before.resolves_selections_like(&regime) {
            ledger.discard_resume_points();
        }
        for work in ledger.task_handles_mut() {
            if limits.max_reads_per_root != before.rules.limits.max_reads_per_root {
                // Reads that have a turn keep it beside these.
                work.read_permits = Arc::new(Semaphore::new(limits.max_reads_per_root));
            }
            work.changes.record_change(|notes| notes.needs_full_rescan = true);
        }
        self.0.revisions.send_replace(ledger.revision());
    }
}

impl CatalogPolicy {
    pub(super) fn from_config(opener: OpenMethod, terms: PolicyConfig) -> Self {
        Self::new(terms, |allowed, published| ScopeCache::new(opener, allowed, published))
    }

    fn with_config(&self, terms: PolicyConfig) -> Self {
        Self::new(terms, |allowed, published| self.scopes.with_policy(allowed, published))
    }

    fn new(
        terms: PolicyConfig,
        bounds: impl FnOnce(Vec<PathBuf>, Arc<[PublishedRoot]>) -> ScopeCache,
    ) -> Self {
        let PolicyConfig {
            environments,
            allowed_dirs: allowed,
            published_roots: published,
            rules,
            timing,
        } = terms;
        let published: Arc<[_]> = published.into();
        let bounds = bounds(allowed, published.clone());
        Self {
            environments: environments.into(),
            scopes: bounds,
            published_roots: published,
            rules,
            timing,
        }
    }

    /// Whether every selection means what it means under the other.
    fn resolves_selections_like(&self, other: &Self) -> bool {
        self.published_roots == other.published_roots && self.environments == other.environments
    }

    /// What the catalogs of selected roots depend on, for a caller of this reach.
    pub(super) fn root_keys(
        &self,
        reach: &AccessScope,
        selection: &[SelectedRoot],
    ) -> Vec<Result<RootKey, RootReason>> {
        let bound = self.scopes.scope_for(reach);
        selection.iter().map(|selected| self.root_key(&bound, selected)).collect()
    }

    fn root_key(
        &self,
        bound: &CatalogScope,
        selected: &SelectedRoot,
    ) -> Result<RootKey, RootReason> {
        let path = match selected.root_path(&self.environments)? {
            RootPath::Native(path) => path.into(),
            // One that is not offered is no other than one that there is not.
            RootPath::Published(id) => {
                bound.paths_by_id.get(&id).ok_or(RootReason::InvalidPath)?.clone()
            }
        };
        Ok(RootKey { scope_id: bound.id, path })
    }

    pub(super) fn scan_target(&self, key: &RootKey) -> ScanTarget {
        ScanTarget {
            path: (*key.path).into(),
            rules: self.rules.clone(),
            published: self.published_roots.clone(),
        }
    }

    /// By what files of a package are read, and listed.
    pub(super) fn read_rule<'a>(
        &'a self,
        catalog: &'a Catalog,
        package: &RelPath,
    ) -> ReadRules<'a> {
        let follow_links = catalog.header.follow_links;
        let off = DisabledSkills {
            packages: catalog.disabled_packages(),
            rules: &self.rules.disable_rules,
            published: &self.published_roots,
        };
        // What is both is read as a skill is.
        let plugin = catalog.plugin(package).filter(|_| catalog.skill(package).is_none());
        ReadRules {
            skipped_dirs: &self.rules.skipped_dirs,
            follow_links,
            disabled_skills: off,
            manifest_files: catalog.manifest_files(),
            plugin: plugin.map(|plugin| &**plugin),
        }
    }
}
