//! Events between two views of the same roots, in order. An event has at most about 64 KiB.
//!
//! A root contributes its changed skills, plugins and marketplaces (`delta_items`), its diagnostics
//! if they changed, and its state if it changed. Each event is built when the stream asks for it, so
//! that a slow reader has one event in memory.

use super::catalog_digests::CatalogDigests;
use super::plugin_message::{marketplace_message, plugin_message};
use super::requests::{KnownCatalogs, ListQuery};
use super::root_messages::{handle_or_empty, removal_reason, root_status};
use super::skill_message::skill_message;
use super::visible_view::{VisibleRoot, VisibleView};
use crate::daemon::catalog::CatalogView;
use crate::daemon::model::diff::diff_catalogs;
use crate::daemon::model::{Plugin, PluginMarketplace};
use caproot_core::proto::caproot::v1 as pb;
use caproot_core::wire::{RelPath, RootId};
use pb::watch_skills_response::Event;
use prost::Message as _;
use std::iter::{empty, from_fn, once_with};
use std::mem;
use std::sync::Arc;

/// Size at which an event is full.
const MAX_EVENT_BYTES: usize = 60 << 10;
/// Size of the tag and the length of a message in an event.
const FIELD_BYTES: usize = 4;

/// Iterator that a stream keeps while it sends.
type Boxed<'a, T> = Box<dyn Iterator<Item = T> + Send + 'a>;

/// Returns the events that lead from one view to another. For a root with a known catalog, the only
/// event is its state.
pub fn change_events<'a>(
    query: &'a ListQuery,
    digests: &'a CatalogDigests,
    known: &KnownCatalogs,
    old: Option<&'a CatalogView>,
    new: &'a CatalogView,
) -> Boxed<'a, Event> {
    let change = Arc::new(ViewChange {
        query,
        digests,
        old: old.map(|view| VisibleView::new(view, &query.product)),
        new: VisibleView::new(new, &query.product),
    });
    if old.is_some() && known.is_empty() {
        // The states come last: the digests in them are computed only now, which would delay the changes.
        let contents = content_events(&change, (0..new.roots.len()).collect());
        let states = once_with(move || {
            let now = digests.root_statuses(query, &change.new);
            change.state_events(now)
        });
        return Box::new(contents.chain(states.flatten()));
    }

    // The states come first, because they say which catalogs the client has.
    let mut now = digests.root_statuses(query, &change.new);
    known.mark_unchanged(&mut now);
    let sent = now.iter().enumerate();
    let sent = sent.filter_map(|(at, status)| (!status.unchanged).then_some(at));
    let contents = content_events(&change, sent.collect());
    Box::new(change.state_events(now).chain(contents))
}

/// Two views of the same roots.
struct ViewChange<'a> {
    query: &'a ListQuery,
    digests: &'a CatalogDigests,
    old: Option<VisibleView<'a>>,
    new: VisibleView<'a>,
}

impl ViewChange<'_> {
    /// Returns an event for each state that is not equal to the state before.
    fn state_events(&self, now: Vec<pb::RootStatus>) -> impl Iterator<Item = Event> + Send + use<> {
        let old = self.old.as_ref();
        let before = old.map(|old| self.digests.root_statuses(self.query, old));
        let before = before.unwrap_or_default();
        now.into_iter()
            .enumerate()
            .filter(move |(at, status)| before.get(*at) != Some(status))
            .map(|(_, status)| Event::RootStatus(status))
    }
}

/// Returns the deltas of roots, followed by their diagnostics. `roots` has the indices of the roots.
fn content_events<'a>(
    change: &Arc<ViewChange<'a>>,
    roots: Vec<usize>,
) -> impl Iterator<Item = Event> + Send + use<'a> {
    let query = change.query;
    let deltas: Vec<_> = roots
        .iter()
        .map(|at| RootPair {
            id: &change.new.view.roots[*at].id,
            before: change.old.as_ref().and_then(|old| *old.roots.get(*at)?),
            now: change.new.roots[*at],
        })
        .collect();
    let diagnosed = change.clone();
    let diagnostics = once_with(move || diagnosed.diagnostic_events(&roots));

    deltas
        .into_iter()
        .flat_map(move |pair| delta_events(query, pair))
        .chain(diagnostics.flatten())
}

/// A root in two views.
#[derive(Clone, Copy)]
struct RootPair<'a> {
    id: &'a RootId,
    before: Option<VisibleRoot<'a>>,
    now: Option<VisibleRoot<'a>>,
}

// --- Skills, plugins and marketplaces -----------------------------------------------------------

/// One change in a delta.
enum DeltaItem {
    RemovedSkill(pb::RemovedSkill),
    Skill(pb::Skill),
    RemovedPlugin(String),
    Plugin(pb::Plugin),
    /// All marketplaces of the root.
    Marketplaces(pb::MarketplaceList),
}

impl DeltaItem {
    fn encoded_len(&self) -> usize {
        match self {
            Self::RemovedSkill(removed) => removed.encoded_len(),
            Self::Skill(skill) => skill.encoded_len(),
            Self::RemovedPlugin(package) => package.len(),
            Self::Plugin(plugin) => plugin.encoded_len(),
            Self::Marketplaces(list) => list.encoded_len(),
        }
    }

    fn add_to(self, delta: &mut pb::SkillDelta) {
        match self {
            Self::RemovedSkill(removed) => delta.removed.push(removed),
            Self::Skill(skill) => delta.upserted.push(skill),
            Self::RemovedPlugin(package) => delta.removed_plugins.push(package),
            Self::Plugin(plugin) => delta.upserted_plugins.push(plugin),
            Self::Marketplaces(list) => delta.marketplaces = Some(list),
        }
    }
}

fn delta_events<'a>(
    query: &'a ListQuery,
    pair: RootPair<'a>,
) -> impl Iterator<Item = Event> + Send + use<'a> {
    fill_events(delta_items(query, pair), DeltaItem::encoded_len).map(move |items| {
        let mut delta = pb::SkillDelta {
            root_id: pair.id.as_str().to_owned(),
            ..pb::SkillDelta::default()
        };
        for item in items {
            item.add_to(&mut delta);
        }
        Event::Delta(delta)
    })
}

/// Returns the changes of a root. A root that cannot be used has nothing.
fn delta_items<'a>(query: &'a ListQuery, pair: RootPair<'a>) -> Boxed<'a, DeltaItem> {
    match (pair.before, pair.now) {
        (None, None) => Box::new(empty()),
        (Some(old), None) => Box::new(lost_items(query, old)),
        (None, Some(new)) => {
            let plugins = plugin_items(query, || PluginChanges {
                root: new.id,
                removed: Vec::new(),
                upserted: new.plugins().cloned().collect(),
                marketplaces: [&[], new.catalog.marketplaces()],
            });
            Box::new(all_skills(query, new).chain(plugins))
        }
        (Some(old), Some(new)) => changed_items(query, old, new),
    }
}

/// Returns the changes of a root that cannot be used any longer.
fn lost_items<'a>(
    query: &'a ListQuery,
    old: VisibleRoot<'a>,
) -> impl Iterator<Item = DeltaItem> + Send + use<'a> {
    let skills = old.skills(0);
    let removed: Vec<_> = skills
        .map(|(_, skill)| removed_skill(old.id, &skill.package, pb::RemovalReason::RootUnavailable))
        .collect();
    let plugins = plugin_items(query, || PluginChanges {
        root: old.id,
        removed: old
            .plugins()
            .map(|plugin| handle_or_empty(old.id, Some(&plugin.package)))
            .collect(),
        upserted: Vec::new(),
        marketplaces: [old.catalog.marketplaces(), &[]],
    });
    removed.into_iter().chain(plugins)
}

/// Returns every listed skill of a root.
fn all_skills<'a>(
    query: &'a ListQuery,
    new: VisibleRoot<'a>,
) -> impl Iterator<Item = DeltaItem> + Send + use<'a> {
    let skills = new.catalog.skills(0);
    skills
        .filter(move |skill| new.is_listed(skill))
        .map(move |skill| skill_message(new.id, new.catalog.header.scope, skill, query.view))
        .map(DeltaItem::Skill)
}

/// Returns the changes between two catalogs of a root.
fn changed_items<'a>(
    query: &'a ListQuery,
    old: VisibleRoot<'a>,
    new: VisibleRoot<'a>,
) -> Boxed<'a, DeltaItem> {
    if std::ptr::eq(old.catalog, new.catalog) {
        return Box::new(empty());
    }
    let diff = diff_catalogs(old.catalog, new.catalog);

    let gone = diff.removed.iter();
    let gone = gone
        .filter(|(package, _)| old.listed_skill(package).is_some())
        .map(|(package, reason)| removed_skill(new.id, package, removal_reason(*reason)));
    let hidden = diff.upserted.iter();
    let hidden = hidden
        .filter(|now| !new.is_listed(now) && old.listed_skill(&now.package).is_some())
        .map(|now| removed_skill(new.id, &now.package, pb::RemovalReason::Disabled));
    let removed: Vec<_> = gone.chain(hidden).collect();

    // The scope is in the message of each skill.
    let (old_scope, new_scope) = (old.catalog.header.scope, new.catalog.header.scope);
    let upserted: Boxed<'a, DeltaItem> = if old_scope == new_scope {
        let listed = diff.upserted.into_iter();
        let listed = listed.filter(move |now| new.is_listed(now));
        Box::new(listed.filter_map(move |now| {
            let message = skill_message(new.id, new_scope, &now, query.view);
            let before = old.listed_skill(&now.package);
            let before = before.map(|skill| skill_message(old.id, old_scope, skill, query.view));
            // The change may be invisible in this view.
            (before.as_ref() != Some(&message)).then_some(DeltaItem::Skill(message))
        }))
    } else {
        Box::new(all_skills(query, new))
    };

    let can_name = |plugin: &Plugin| plugin.check_handle(new.id).is_ok();
    let plugins = plugin_items(query, || PluginChanges {
        root: new.id,
        removed: diff
            .removed_plugins
            .iter()
            .filter_map(|package| old.catalog.plugin(package))
            .filter(|plugin| can_name(plugin))
            .map(|plugin| handle_or_empty(new.id, Some(&plugin.package)))
            .collect(),
        upserted: diff
            .upserted_plugins
            .into_iter()
            .filter(|plugin| can_name(plugin))
            .collect(),
        marketplaces: [old.catalog.marketplaces(), new.catalog.marketplaces()],
    });
    Box::new(removed.into_iter().chain(upserted).chain(plugins))
}

/// Changed plugins of a root, and its marketplaces in both views.
struct PluginChanges<'a> {
    root: &'a RootId,
    /// Handles.
    removed: Vec<String>,
    upserted: Vec<Arc<Plugin>>,
    marketplaces: [&'a [PluginMarketplace]; 2],
}

/// Returns the changes of plugins, and the marketplaces if they changed. The basic view has neither.
fn plugin_items<'a>(
    query: &ListQuery,
    find_changes: impl FnOnce() -> PluginChanges<'a>,
) -> Boxed<'a, DeltaItem> {
    if query.view == pb::SkillView::Basic {
        return Box::new(empty());
    }
    let PluginChanges {
        root,
        removed,
        upserted,
        marketplaces: [before, now],
    } = find_changes();

    let upserted = upserted.into_iter();
    let upserted = upserted.map(move |plugin| DeltaItem::Plugin(plugin_message(root, &plugin)));
    let lists = once_with(move || {
        let lists = now.iter().map(|list| marketplace_message(root, list));
        DeltaItem::Marketplaces(pb::MarketplaceList {
            marketplaces: lists.collect(),
        })
    });

    let removed = removed.into_iter().map(DeltaItem::RemovedPlugin);
    let lists = lists.take(usize::from(before != now));
    Box::new(removed.chain(upserted).chain(lists))
}

fn removed_skill(root: &RootId, package: &RelPath, reason: pb::RemovalReason) -> DeltaItem {
    DeltaItem::RemovedSkill(pb::RemovedSkill {
        package: handle_or_empty(root, Some(package)),
        reason: reason.into(),
    })
}

// --- Diagnostics ----------------------------------------------------------------------------------

impl ViewChange<'_> {
    /// Returns the diagnostics of each of these roots whose diagnostics changed.
    fn diagnostic_events(&self, roots: &[usize]) -> Vec<Event> {
        if !roots.iter().any(|at| self.may_have_new_diagnostics(*at)) {
            return Vec::new();
        }

        let before = self.old.as_ref().map(VisibleView::diagnostics);
        let mut now = self.new.diagnostics();
        let mut events = Vec::new();
        for at in roots {
            let list = mem::take(&mut now[*at]);
            let differs = match &before {
                Some(before) => before[*at] != list,
                None => !list.is_empty(),
            };
            if differs {
                events.extend(diagnostic_lists(&self.new.view.roots[*at].id, list));
            }
        }
        events
    }

    /// Whether the diagnostics of a root may differ. Diagnostics of an equal state are equal.
    fn may_have_new_diagnostics(&self, at: usize) -> bool {
        let Some(old) = &self.old else {
            return true;
        };
        let (before, now) = (&old.view.roots[at], &self.new.view.roots[at]);
        if before.state.is_same(&now.state) {
            return false;
        }

        let (Some(old_shown), Some(new_shown)) = (&old.roots[at], &self.new.roots[at]) else {
            return true;
        };
        let old_list = &old_shown.catalog.diagnostics;
        let new_list = &new_shown.catalog.diagnostics;
        let are_equal = Arc::ptr_eq(new_list, old_list) || new_list == old_list;
        !are_equal || root_status(before, Some(old_shown)) != root_status(now, Some(new_shown))
    }
}

/// Returns the diagnostics of a root; an empty list if the root has none any longer.
fn diagnostic_lists(root: &RootId, diagnostics: Vec<pb::Diagnostic>) -> Vec<Event> {
    let diagnostics = diagnostics.into_iter();
    let mut lists: Vec<_> = fill_events(diagnostics, pb::Diagnostic::encoded_len).collect();
    if lists.is_empty() {
        lists.push(Vec::new());
    }

    let lists = lists.into_iter().enumerate();
    let events = lists.map(|(number, diagnostics)| {
        Event::Diagnostics(pb::DiagnosticList {
            root_id: root.as_str().to_owned(),
            diagnostics,
            continued: number > 0,
        })
    });
    events.collect()
}

// --- Size of events -------------------------------------------------------------------------------

/// Divides messages among events. A message over the limit has an event of its own.
pub fn fill_events<T>(
    messages: impl Iterator<Item = T>,
    encoded_len: fn(&T) -> usize,
) -> impl Iterator<Item = Vec<T>> {
    let sized = messages.map(move |message| (encoded_len(&message) + FIELD_BYTES, message));
    let mut sized = sized.peekable();
    from_fn(move || {
        let mut event = Vec::new();
        let mut size = 0;
        while let Some((len, message)) =
            sized.next_if(|(len, _)| size == 0 || size + len <= MAX_EVENT_BYTES)
        {
            size += len;
            event.push(message);
        }
        (!event.is_empty()).then_some(event)
    })
}
