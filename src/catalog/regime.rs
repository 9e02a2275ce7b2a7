//! What a keeper goes by: the operator's terms, and what becomes of a selection under them. Other terms
//! may take their place while the daemon runs; all of them do at once.

use super::Keeper;
use super::bound::{Bound, Bounds};
use super::ledger::Key;
use super::timing::Timing;
use crate::disk::{Off, Opener, Rule, Target};
use crate::domain::search::Rules;
use crate::domain::{Catalog, Published, Reach, Reason, RelPath, RootPath, Selected};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use tokio::sync::Semaphore;

/// What the operator says.
#[derive(Debug, Clone)]
pub struct Terms {
    /// The environments whose roots it resolves; never empty.
    pub environments: Vec<String>,
    /// The directories below which roots and their links may lie, absolute.
    pub allowed: Vec<PathBuf>,
    /// In scope order, then by id.
    pub published: Vec<Published>,
    /// What a search may do.
    pub rules: Rules,
    /// When roots are looked at.
    pub timing: Timing,
}

/// Terms in force, and what was made of them.
#[derive(Debug)]
pub(super) struct Regime {
    pub(super) environments: Arc<[String]>,
    pub(super) bounds: Bounds,
    /// All of them, whoever may use them.
    pub(super) published: Arc<[Published]>,
    pub(super) rules: Rules,
    pub(super) timing: Timing,
}

impl Keeper {
    /// Goes by other terms from now on: every root is searched again. Calls that are under way may end
    /// as they began.
    pub fn renew(&self, terms: Terms) {
        let mut ledger = self.ledger();
        let before = self.regime();
        let regime = Arc::new(before.renewed(terms));
        *self.0.regime.lock().unwrap_or_else(PoisonError::into_inner) = regime.clone();
        let limits = &regime.rules.limits;
        ledger.keep(limits.max_history);
        if !before.names_the_same(&regime) {
            ledger.rename();
        }
        for work in ledger.works() {
            if limits.max_reads != before.rules.limits.max_reads {
                // Reads that have a turn keep it beside these.
                work.reads = Arc::new(Semaphore::new(limits.max_reads));
            }
            work.bell.note(|notes| notes.lost = true);
        }
        self.0.revisions.send_replace(ledger.revision());
    }
}

impl Regime {
    pub(super) fn first(opener: Opener, terms: Terms) -> Self {
        Self::new(terms, |allowed, published| Bounds::new(opener, allowed, published))
    }

    fn renewed(&self, terms: Terms) -> Self {
        Self::new(terms, |allowed, published| self.bounds.renewed(allowed, published))
    }

    fn new(terms: Terms, bounds: impl FnOnce(Vec<PathBuf>, Arc<[Published]>) -> Bounds) -> Self {
        let Terms { environments, allowed, published, rules, timing } = terms;
        let published: Arc<[_]> = published.into();
        let bounds = bounds(allowed, published.clone());
        Self { environments: environments.into(), bounds, published, rules, timing }
    }

    /// Whether every selection means what it means under the other.
    fn names_the_same(&self, other: &Self) -> bool {
        self.published == other.published && self.environments == other.environments
    }

    /// What the catalogs of selected roots depend on, for a caller of this reach.
    pub(super) fn keys(&self, reach: &Reach, selection: &[Selected]) -> Vec<Result<Key, Reason>> {
        let bound = self.bounds.of(reach);
        selection.iter().map(|selected| self.key(&bound, selected)).collect()
    }

    fn key(&self, bound: &Bound, selected: &Selected) -> Result<Key, Reason> {
        let path = match selected.place(&self.environments)? {
            RootPath::Native(path) => path.into(),
            // One that is not offered is no other than one that there is not.
            RootPath::Published(id) => bound.by_id.get(&id).ok_or(Reason::InvalidPath)?.clone(),
        };
        Ok(Key { bound: bound.number, path })
    }

    pub(super) fn target(&self, key: &Key) -> Target {
        Target {
            path: (*key.path).into(),
            rules: self.rules.clone(),
            published: self.published.clone(),
        }
    }

    /// By what files of a package are read, and listed.
    pub(super) fn rule<'a>(&'a self, catalog: &'a Catalog, package: &RelPath) -> Rule<'a> {
        let follow_links = catalog.header.follow_links;
        let off = Off {
            packages: catalog.off(),
            rules: &self.rules.switched_off,
            published: &self.published,
        };
        // What is both is read as a skill is.
        let plugin = catalog.plugin(package).filter(|_| catalog.skill(package).is_none());
        Rule {
            passed_over: &self.rules.passed_over,
            follow_links,
            off,
            declaring: catalog.declaring(),
            plugin: plugin.map(|plugin| &**plugin),
        }
    }
}
