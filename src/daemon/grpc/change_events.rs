//! Events between two views of the same roots. An event has at most about 64 KiB.

use super::catalog_digests::CatalogDigests;
use super::list_pages::root_diagnostics;
use super::plugin_message::{marketplace_message, plugin_message};
use super::requests::{KnownCatalogs, ListQuery};
use super::root_messages::{VisibleRoot, handle_or_empty, removal_reason, root_status};
use super::skill_message::skill_message;
use crate::daemon::catalog::{CatalogView, RootView};
use crate::daemon::model::diff::{CatalogDiff, diff_catalogs};
use crate::daemon::model::{Plugin, PluginMarketplace};
use caproot_core::proto::caproot::v1 as pb;
use caproot_core::wire::{RelPath, RootId};
use pb::watch_skills_response::Event;
use prost::Message as _;
use std::collections::VecDeque;
use std::iter::once_with;
use std::sync::Arc;

/// Size at which an event is full.
const MAX_FRAGMENT_BYTES: usize = 60 << 10;

/// Returns the events that lead from one view to another, in order. Each event is built on demand.
/// For a root with a known catalog, the only event is its state. Without an old view, or with known
/// catalogs, the states come first. Otherwise the states come last, because their digests would
/// delay the changes.
pub fn change_events<'a>(
    query: &'a ListQuery,
    digests: &'a CatalogDigests,
    known: &KnownCatalogs,
    old: Option<&'a CatalogView>,
    new: &'a CatalogView,
) -> impl Iterator<Item = Event> + Send + 'a {
    let pairs: Vec<RootPair<'a>> = new
        .roots
        .iter()
        .enumerate()
        .map(|(at, now)| RootPair {
            before: old.and_then(|view| view.roots.get(at)),
            now,
        })
        .collect();

    // The states are compared now if they come first, and on demand if they come last.
    let are_states_last = old.is_some() && known.is_empty();
    let mut states = StatePair::default();
    if !are_states_last {
        states = StatePair::new(query, digests, old, new);
    }
    known.mark_unchanged(&mut states.now);
    let unchanged: Arc<[bool]> = (0..new.roots.len())
        .map(|at| states.now.get(at).is_some_and(|status| status.unchanged))
        .collect();
    let last_states = are_states_last
        .then(|| once_with(move || StatePair::new(query, digests, old, new).into_events()));

    let may_differ = pairs
        .iter()
        .any(|pair| pair.may_have_new_diagnostics(query));
    let skipped = unchanged.clone();
    let skills = pairs
        .into_iter()
        .enumerate()
        .filter(move |(at, _)| !skipped[*at])
        .flat_map(move |(_, pair)| RootDeltas::new(query, pair.before, pair.now));
    let problems = may_differ.then(|| changed_diagnostics(query, old, new, unchanged));

    states
        .into_events()
        .chain(skills)
        .chain(problems.into_iter().flatten())
        .chain(last_states.into_iter().flatten().flatten())
}

/// A root in two views.
#[derive(Clone, Copy)]
struct RootPair<'a> {
    before: Option<&'a RootView>,
    now: &'a RootView,
}

impl RootPair<'_> {
    /// Whether the diagnostics may differ. Diagnostics of an equal state are equal.
    fn may_have_new_diagnostics(&self, query: &ListQuery) -> bool {
        let now = self.now;
        let Some(before) = self.before else {
            return true;
        };
        if before.state.is_same(&now.state) {
            return false;
        }

        match (before.state.catalog(), now.state.catalog()) {
            (Some(old), Some(new)) => {
                let are_equal = Arc::ptr_eq(&new.diagnostics, &old.diagnostics)
                    || new.diagnostics == old.diagnostics;
                !are_equal
                    || root_status(before, &query.product) != root_status(now, &query.product)
            }
            _ => true,
        }
    }
}

/// States of the roots of two views.
#[derive(Default)]
struct StatePair {
    before: Vec<pb::RootStatus>,
    now: Vec<pb::RootStatus>,
}

impl StatePair {
    fn new(
        query: &ListQuery,
        digests: &CatalogDigests,
        old: Option<&CatalogView>,
        new: &CatalogView,
    ) -> Self {
        Self {
            before: old
                .map(|old| digests.root_statuses(query, old))
                .unwrap_or_default(),
            now: digests.root_statuses(query, new),
        }
    }

    /// Returns an event for each state that is not equal to the state before.
    fn into_events(self) -> impl Iterator<Item = Event> + Send {
        let before = self.before;
        self.now
            .into_iter()
            .enumerate()
            .filter(move |(at, status)| before.get(*at) != Some(status))
            .map(|(_, status)| Event::RootStatus(status))
    }
}

/// Returns the diagnostics of each root whose diagnostics changed. Skips the roots in `unchanged`.
fn changed_diagnostics<'a>(
    query: &ListQuery,
    old: Option<&CatalogView>,
    new: &'a CatalogView,
    unchanged: Arc<[bool]>,
) -> impl Iterator<Item = Event> + Send + use<'a> {
    let now = root_diagnostics(new, &query.product);
    let before = old.map(|old| root_diagnostics(old, &query.product));
    now.into_iter()
        .enumerate()
        .filter(move |(at, _)| !unchanged[*at])
        .filter(move |(at, list)| match &before {
            Some(before) => before[*at] != *list,
            None => !list.is_empty(),
        })
        .flat_map(move |(at, list)| diagnostic_events(&new.roots[at].id, list))
}

fn diagnostic_events(root: &RootId, list: Vec<pb::Diagnostic>) -> Vec<Event> {
    let mut lists = vec![pb::DiagnosticList {
        root_id: root.as_str().to_owned(),
        ..pb::DiagnosticList::default()
    }];

    let mut size = 0;

    for diagnostic in list {
        size += diagnostic.encoded_len() + 4;
        if size > MAX_FRAGMENT_BYTES {
            size = 0;
            lists.push(pb::DiagnosticList {
                root_id: root.as_str().to_owned(),
                diagnostics: Vec::new(),
                continued: true,
            });
        }

        if let Some(last) = lists.last_mut() {
            last.diagnostics.push(diagnostic);
        }
    }

    lists.into_iter().map(Event::Diagnostics).collect()
}

/// Iterator over the deltas of one root.
struct RootDeltas<'a> {
    root: &'a RootView,
    removed: std::vec::IntoIter<pb::RemovedSkill>,
    upserted: Box<dyn Iterator<Item = pb::Skill> + Send + 'a>,
    /// Skill that did not fit into the previous fragment.
    deferred_skill: Option<pb::Skill>,
    plugins: PluginChanges<'a>,
}

impl<'a> RootDeltas<'a> {
    fn new(query: &'a ListQuery, before: Option<&'a RootView>, now: &'a RootView) -> Self {
        let old = before.and_then(|root| VisibleRoot::new(root, &query.product));
        let new = VisibleRoot::new(now, &query.product);
        let diff = match (old, new) {
            (Some(old), Some(new)) if !std::ptr::eq(old.catalog, new.catalog) => {
                diff_catalogs(old.catalog, new.catalog)
            }
            _ => CatalogDiff::default(),
        };

        let skills = match (old, new) {
            (None, None) => SkillChanges::default(),
            (Some(old), None) => SkillChanges::all_removed(old),
            (None, Some(new)) => SkillChanges {
                upserted: Box::new(all_skills(query, new)),
                ..SkillChanges::default()
            },
            (Some(old), Some(new)) => SkillChanges::between(query, &old, &new, &diff),
        };
        let plugins = match query.view {
            pb::SkillView::Basic => PluginChanges::default(),
            _ => PluginChanges::between(old, new, diff),
        };

        Self {
            root: now,
            removed: skills.removed.into_iter(),
            upserted: skills.upserted,
            deferred_skill: None,
            plugins,
        }
    }
}

/// Returns every listed skill of a root. Each message is built on demand.
fn all_skills<'a>(
    query: &'a ListQuery,
    new: VisibleRoot<'a>,
) -> impl Iterator<Item = pb::Skill> + Send + use<'a> {
    new.catalog
        .skills(0)
        .filter(move |skill| new.is_listed(skill))
        .map(move |skill| skill_message(new.id, new.catalog.header.scope, skill, query.view))
}

/// Changes of the skills of a root.
struct SkillChanges<'a> {
    removed: Vec<pb::RemovedSkill>,
    upserted: Box<dyn Iterator<Item = pb::Skill> + Send + 'a>,
}

impl Default for SkillChanges<'_> {
    fn default() -> Self {
        Self {
            removed: Vec::new(),
            upserted: Box::new(std::iter::empty()),
        }
    }
}

impl<'a> SkillChanges<'a> {
    /// Returns the changes of a root that cannot be used any longer.
    fn all_removed(old: VisibleRoot<'a>) -> Self {
        let reason = pb::RemovalReason::RootUnavailable;
        Self {
            removed: old
                .skills(0)
                .map(|(_, skill)| removed_skill(old.id, &skill.package, reason))
                .collect(),
            ..Self::default()
        }
    }

    /// Returns the changes between two catalogs.
    fn between(
        query: &'a ListQuery,
        old: &VisibleRoot<'a>,
        new: &VisibleRoot<'a>,
        diff: &CatalogDiff,
    ) -> Self {
        let mut removed: Vec<_> = diff
            .removed
            .iter()
            .filter(|(package, _)| old.listed_skill(package).is_some())
            .map(|(package, reason)| removed_skill(new.id, package, removal_reason(*reason)))
            .collect();

        // The scope is in the message of each skill.
        let old_scope = old.catalog.header.scope;
        let new_scope = new.catalog.header.scope;
        if old_scope != new_scope {
            let upserted = Box::new(all_skills(query, *new));
            return Self { removed, upserted };
        }

        let mut upserted = Vec::new();
        for now in &diff.upserted {
            let before = old.listed_skill(&now.package);
            if !new.is_listed(now) {
                if before.is_some() {
                    let reason = pb::RemovalReason::Disabled;
                    removed.push(removed_skill(new.id, &now.package, reason));
                }
                continue;
            }

            let message = skill_message(new.id, new_scope, now, query.view);
            // The change may be invisible in this view.
            if before.is_none_or(|b| skill_message(old.id, old_scope, b, query.view) != message) {
                upserted.push(message);
            }
        }
        Self {
            removed,
            upserted: Box::new(upserted.into_iter()),
        }
    }
}

fn removed_skill(root: &RootId, package: &RelPath, reason: pb::RemovalReason) -> pb::RemovedSkill {
    pb::RemovedSkill {
        package: handle_or_empty(root, Some(package)),
        reason: reason.into(),
    }
}

impl Iterator for RootDeltas<'_> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let mut delta = pb::SkillDelta {
            root_id: self.root.id.as_str().to_owned(),
            ..pb::SkillDelta::default()
        };

        let mut size = 0;

        while size < MAX_FRAGMENT_BYTES {
            let Some(removed) = self.removed.next() else {
                break;
            };
            size += removed.encoded_len() + 4;
            delta.removed.push(removed);
        }

        while size < MAX_FRAGMENT_BYTES {
            let Some(skill) = self.deferred_skill.take().or_else(|| self.upserted.next()) else {
                break;
            };

            let len = skill.encoded_len() + 4;
            if size > 0 && size + len > MAX_FRAGMENT_BYTES {
                self.deferred_skill = Some(skill);
                break;
            }
            size += len;
            delta.upserted.push(skill);
        }

        self.plugins
            .append_to_delta(self.root, &mut delta, &mut size);

        (size > 0).then_some(Event::Delta(delta))
    }
}

/// Changes of the plugins and marketplaces of a root that are not sent yet. Each message is built
/// when it is sent.
#[derive(Default)]
struct PluginChanges<'a> {
    removed: VecDeque<String>,
    upserted: VecDeque<Arc<Plugin>>,
    /// Changed marketplaces.
    marketplaces: Option<MarketplaceUpdate<'a>>,
}

/// Root whose marketplaces changed; `None` if the root cannot be used.
struct MarketplaceUpdate<'a>(Option<VisibleRoot<'a>>);

/// Returns the marketplaces of a root; none if the root cannot be used.
fn marketplaces(root: Option<VisibleRoot<'_>>) -> &[PluginMarketplace] {
    root.map_or(&[], |root| root.catalog.marketplaces())
}

impl<'a> PluginChanges<'a> {
    /// Returns the changes between two versions of a root. `diff` is empty unless both have a
    /// catalog.
    fn between(
        old: Option<VisibleRoot<'a>>,
        new: Option<VisibleRoot<'a>>,
        diff: CatalogDiff,
    ) -> Self {
        let differs = marketplaces(old) != marketplaces(new);
        let mut changes = Self {
            marketplaces: differs.then_some(MarketplaceUpdate(new)),
            ..Self::default()
        };

        match (old, new) {
            (Some(old), None) => {
                changes.removed = old
                    .plugins()
                    .map(|plugin| handle_or_empty(old.id, Some(&plugin.package)))
                    .collect();
            }
            (None, Some(new)) => changes.upserted = new.plugins().cloned().collect(),
            (Some(old), Some(new)) => {
                changes.removed = diff
                    .removed_plugins
                    .iter()
                    .filter_map(|package| old.catalog.plugin(package))
                    .filter(|plugin| plugin.check_handle(new.id).is_ok())
                    .map(|plugin| handle_or_empty(new.id, Some(&plugin.package)))
                    .collect();
                changes.upserted = diff
                    .upserted_plugins
                    .into_iter()
                    .filter(|plugin| plugin.check_handle(new.id).is_ok())
                    .collect();
            }
            (None, None) => {}
        }
        changes
    }

    /// Appends changes to a delta until its size reaches the limit.
    fn append_to_delta(&mut self, root: &RootView, delta: &mut pb::SkillDelta, size: &mut usize) {
        while *size < MAX_FRAGMENT_BYTES {
            let Some(removed) = self.removed.pop_front() else {
                break;
            };
            *size += removed.len() + 4;
            delta.removed_plugins.push(removed);
        }
        while *size < MAX_FRAGMENT_BYTES {
            let Some(plugin) = self.upserted.front() else {
                break;
            };

            let message = plugin_message(&root.id, plugin);
            let len = message.encoded_len() + 4;
            if *size > 0 && *size + len > MAX_FRAGMENT_BYTES {
                return;
            }

            self.upserted.pop_front();
            *size += len;
            delta.upserted_plugins.push(message);
        }

        if !self.upserted.is_empty() || *size >= MAX_FRAGMENT_BYTES {
            return;
        }

        let Some(MarketplaceUpdate(visible)) = &self.marketplaces else {
            return;
        };

        let list = pb::MarketplaceList {
            marketplaces: marketplaces(*visible)
                .iter()
                .map(|list| marketplace_message(&root.id, list))
                .collect(),
        };

        let len = list.encoded_len() + 4;
        if *size > 0 && *size + len > MAX_FRAGMENT_BYTES {
            return;
        }

        self.marketplaces = None;
        *size += len;
        delta.marketplaces = Some(list);
    }
}
