//! Events between two views of the same roots. An event has at most about 64 KiB.

use super::catalog_digests::CatalogDigests;
use super::list_pages::root_diagnostics;
use super::plugin_message::{marketplace_message, plugin_message};
use super::requests::{KnownCatalogs, ListQuery};
use super::root_messages::{VisibleRoot, handle_or_empty, removal_reason, root_status};
use super::skill_message::skill_message;
use crate::catalog::{CatalogView, RootView};
use crate::model::diff::{CatalogDiff, diff_catalogs};
use crate::model::{Plugin, Skill};
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
    let pairs = move || {
        let before = move |at: usize| old.and_then(|view| view.roots.get(at));
        new.roots
            .iter()
            .enumerate()
            .map(move |(at, root)| (before(at), root))
    };
    let statuses = move || {
        let before = old
            .map(|old| digests.root_statuses(query, old))
            .unwrap_or_default();
        (before, digests.root_statuses(query, new))
    };
    let are_states_last = old.is_some() && known.is_empty();
    let (before, mut now) = if are_states_last {
        (Vec::new(), Vec::new())
    } else {
        statuses()
    };
    known.mark_unchanged(&mut now);
    let is_unchanged = |at: usize| now.get(at).is_some_and(|status| status.unchanged);
    let unchanged: Arc<[bool]> = (0..new.roots.len()).map(is_unchanged).collect();
    let first_states = state_events(before, now);
    let last_states = are_states_last.then(|| {
        once_with(move || {
            let (before, now) = statuses();
            state_events(before, now)
        })
    });
    let skipped = unchanged.clone();
    let changed = pairs().enumerate().filter(move |(at, _)| !skipped[*at]);
    let skills = changed.flat_map(|(_, (before, now))| RootDeltas::new(query, before, now));
    let may_differ =
        pairs().any(
            |(before, now)| match (before, before.map(|b| b.state.catalog())) {
                (Some(before), Some(Some(old))) if !before.state.is_same(&now.state) => {
                    let new = now.state.catalog();
                    new.is_none_or(|new| {
                        !Arc::ptr_eq(&new.diagnostics, &old.diagnostics)
                            && new.diagnostics != old.diagnostics
                    }) || root_status(before, &query.product) != root_status(now, &query.product)
                }
                (before, _) => before.is_none_or(|before| !before.state.is_same(&now.state)),
            },
        );
    let problems = may_differ.then(|| {
        let now = root_diagnostics(new, &query.product);
        let before = old.map(|old| root_diagnostics(old, &query.product));
        let changed = now
            .into_iter()
            .enumerate()
            .filter(move |(at, _)| !unchanged[*at]);
        let differs = changed.filter(move |(at, list)| match &before {
            Some(before) => before[*at] != *list,
            None => !list.is_empty(),
        });
        differs.flat_map(|(at, list)| diagnostic_events(&new.roots[at].id, list))
    });
    let problems = problems.into_iter().flatten();
    first_states
        .chain(skills)
        .chain(problems)
        .chain(last_states.into_iter().flatten().flatten())
}

/// Returns an event for each state that is not equal to the state before.
fn state_events(
    before: Vec<pb::RootStatus>,
    now: Vec<pb::RootStatus>,
) -> impl Iterator<Item = Event> + Send {
    now.into_iter().enumerate().filter_map(move |(at, status)| {
        (before.get(at) != Some(&status)).then_some(Event::RootStatus(status))
    })
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
        let visible = |root: &'a RootView| VisibleRoot::new(root, &query.product);
        let (old, new) = (before.and_then(visible), visible(now));
        let diff = match (old, new) {
            (Some(old), Some(new)) if !std::ptr::eq(old.catalog, new.catalog) => {
                diff_catalogs(old.catalog, new.catalog)
            }
            _ => CatalogDiff::default(),
        };
        let (removed, upserted): (_, Box<dyn Iterator<Item = pb::Skill> + Send>) = match (old, new)
        {
            (None, None) => (Vec::new(), Box::new(std::iter::empty())),
            (Some(old), None) => {
                let to_removed = |(_, skill): (_, &Skill)| {
                    removed_skill(old.id, &skill.package, pb::RemovalReason::RootUnavailable)
                };
                (
                    old.skills(0).map(to_removed).collect(),
                    Box::new(std::iter::empty()),
                )
            }
            (None, Some(new)) => (Vec::new(), Box::new(all_skills(query, new))),
            (Some(old), Some(new)) => skill_changes(query, &old, &new, &diff),
        };
        let plugins = match query.view {
            pb::SkillView::Basic => PluginChanges::default(),
            _ => PluginChanges::between(old, new, diff),
        };
        Self {
            root: now,
            removed: removed.into_iter(),
            upserted,
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
    let listed = new
        .catalog
        .skills(0)
        .filter(move |skill| new.is_listed(skill));
    listed.map(move |s| skill_message(new.id, new.catalog.header.scope, s, query.view))
}

type SkillChanges<'a> = (
    Vec<pb::RemovedSkill>,
    Box<dyn Iterator<Item = pb::Skill> + Send + 'a>,
);

fn skill_changes<'a>(
    query: &'a ListQuery,
    old: &VisibleRoot<'a>,
    new: &VisibleRoot<'a>,
    diff: &CatalogDiff,
) -> SkillChanges<'a> {
    let scopes = (old.catalog.header.scope, new.catalog.header.scope);
    let was_listed = |package: &RelPath| {
        old.catalog
            .skill(package)
            .filter(|skill| old.is_listed(skill))
            .map(|skill| &**skill)
    };
    let mut removed: Vec<_> = (diff.removed.iter())
        .filter(|(package, _)| was_listed(package).is_some())
        .map(|(package, reason)| removed_skill(new.id, package, removal_reason(*reason)))
        .collect();
    if scopes.0 != scopes.1 {
        return (removed, Box::new(all_skills(query, *new)));
    }
    let mut upserted = Vec::new();
    for now in &diff.upserted {
        let before = was_listed(&now.package);
        if !new.is_listed(now) {
            if before.is_some() {
                removed.push(removed_skill(
                    new.id,
                    &now.package,
                    pb::RemovalReason::Disabled,
                ));
            }
            continue;
        }
        let message = skill_message(new.id, scopes.1, now, query.view);
        // The change may be invisible in this view.
        if before.is_none_or(|b| skill_message(old.id, scopes.0, b, query.view) != message) {
            upserted.push(message);
        }
    }
    (removed, Box::new(upserted.into_iter()))
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

impl<'a> PluginChanges<'a> {
    /// Returns the changes between two versions of a root. `diff` is empty unless both have a
    /// catalog.
    fn between(
        old: Option<VisibleRoot<'a>>,
        new: Option<VisibleRoot<'a>>,
        diff: CatalogDiff,
    ) -> Self {
        let handle = |id: &RootId, plugin: &Plugin| handle_or_empty(id, Some(&plugin.package));
        let lists = |root: Option<VisibleRoot<'a>>| {
            root.map_or(&[][..], |root| root.catalog.marketplaces())
        };
        let differs = lists(old) != lists(new);
        let mut changes = Self {
            marketplaces: differs.then_some(MarketplaceUpdate(new)),
            ..Self::default()
        };
        match (old, new) {
            (Some(old), None) => {
                changes.removed = old.plugins().map(|plugin| handle(old.id, plugin)).collect();
            }
            (None, Some(new)) => changes.upserted = new.plugins().cloned().collect(),
            (Some(old), Some(new)) => {
                let is_listed = |plugin: &Arc<Plugin>| plugin.check_handle(new.id).is_ok();
                let old_plugin = |package| old.catalog.plugin(package).cloned();
                let removed = diff.removed_plugins.iter().filter_map(old_plugin);
                let removed = removed
                    .filter(is_listed)
                    .map(|plugin| handle(new.id, &plugin));
                changes.removed = removed.collect();
                changes.upserted = diff
                    .upserted_plugins
                    .into_iter()
                    .filter(is_listed)
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
        let lists = visible.map_or(&[][..], |root| root.catalog.marketplaces());
        let list = pb::MarketplaceList {
            marketplaces: lists
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
