//! Events between two views of the same roots, in order. An event has at most about 64 KiB.
//!
//! A root contributes its changed skills, plugins and marketplaces (`delta_items`), its diagnostics
//! if they changed, and its state if it changed. Each event is built when the stream asks for it, so
//! that a slow reader has one event in memory.

use super::catalog_digests::CatalogDigests;
use super::plugin_message::{marketplace_message, plugin_message};
use super::requests::{KnownCatalogs, ListQuery};
use super::root_messages::{handle_or_empty, removal_reason};
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
    let sent = (0..now.len()).filter(|at| !now[*at].unchanged);
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
        let before = self
            .old
            .as_ref()
            .map_or_else(Vec::new, |old| self.digests.root_statuses(self.query, old));
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
    let (changed, diagnosed) = (change.clone(), change.clone());
    let all = roots.clone().into_iter();
    all.flat_map(move |at| changed.delta_events(at))
        .chain(once_with(move || diagnosed.diagnostic_events(&roots)).flatten())
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

impl<'a> ViewChange<'a> {
    fn delta_events(&self, at: usize) -> impl Iterator<Item = Event> + Send + use<'a> {
        let id = &self.new.view.roots[at].id;
        let before = self.old.as_ref().and_then(|old| *old.roots.get(at)?);
        let items = delta_items(self.query, before, self.new.roots[at]);
        fill_events(items, DeltaItem::encoded_len).map(move |items| {
            let mut delta = pb::SkillDelta {
                root_id: id.as_str().to_owned(),
                ..pb::SkillDelta::default()
            };
            for item in items {
                item.add_to(&mut delta);
            }
            Event::Delta(delta)
        })
    }
}

/// Returns the changes of a root in two views. A root that cannot be used has nothing.
fn delta_items<'a>(
    query: &'a ListQuery,
    before: Option<VisibleRoot<'a>>,
    now: Option<VisibleRoot<'a>>,
) -> Boxed<'a, DeltaItem> {
    match (before, now) {
        (None, None) => Box::new(empty()),
        (Some(old), None) => {
            let reason = pb::RemovalReason::RootUnavailable;
            let removed = old
                .skills(0)
                .map(move |(_, skill)| removed_skill(old.id, &skill.package, reason));

            let plugins = old.plugins().collect();
            let marketplaces = [old.catalog.marketplaces(), &[]];
            let plugins = plugin_items(query, old.id, plugins, Vec::new(), marketplaces);
            Box::new(removed.chain(plugins))
        }
        (None, Some(new)) => {
            let plugins = new.plugins().cloned().collect();
            let marketplaces = [&[], new.catalog.marketplaces()];
            let plugins = plugin_items(query, new.id, Vec::new(), plugins, marketplaces);
            Box::new(all_skills(query, new).chain(plugins))
        }
        (Some(old), Some(new)) => changed_items(query, old, new),
    }
}

/// Returns every listed skill of a root.
fn all_skills<'a>(
    query: &'a ListQuery,
    new: VisibleRoot<'a>,
) -> impl Iterator<Item = DeltaItem> + Send + use<'a> {
    new.skills(0).map(move |(_, skill)| {
        let scope = new.catalog.header.scope;
        DeltaItem::Skill(skill_message(new.id, scope, skill, query.view))
    })
}

/// Returns the changes between two catalogs of a root.
fn changed_items<'a>(
    query: &'a ListQuery,
    old: VisibleRoot<'a>,
    new: VisibleRoot<'a>,
) -> Boxed<'a, DeltaItem> {
    if Arc::ptr_eq(old.catalog, new.catalog) {
        return Box::new(empty());
    }
    let diff = diff_catalogs(old.catalog, new.catalog);

    let gone = diff
        .removed
        .iter()
        .map(|(package, reason)| (package, removal_reason(*reason)));
    let hidden = diff
        .upserted
        .iter()
        .filter(|now| !new.is_listed(now))
        .map(|now| (&now.package, pb::RemovalReason::Disabled));
    let removed: Vec<_> = gone
        .chain(hidden)
        .filter(|(package, _)| old.listed_skill(package).is_some())
        .map(|(package, reason)| removed_skill(new.id, package, reason))
        .collect();

    // The scope is in the message of each skill.
    let scope = new.catalog.header.scope;
    let upserted: Boxed<'a, DeltaItem> = if old.catalog.header.scope == scope {
        Box::new(diff.upserted.into_iter().filter_map(move |now| {
            if !new.is_listed(&now) {
                return None;
            }
            let message = skill_message(new.id, scope, &now, query.view);
            let before = old
                .listed_skill(&now.package)
                .map(|skill| skill_message(old.id, scope, skill, query.view));
            // The change may be invisible in this view.
            (before.as_ref() != Some(&message)).then_some(DeltaItem::Skill(message))
        }))
    } else {
        Box::new(all_skills(query, new))
    };

    let can_name = |plugin: &Plugin| plugin.check_handle(new.id).is_ok();
    let removed_plugins = diff
        .removed_plugins
        .iter()
        .filter_map(|package| old.catalog.plugin(package))
        .filter(|plugin| can_name(plugin))
        .collect();
    let plugins = diff
        .upserted_plugins
        .into_iter()
        .filter(|plugin| can_name(plugin))
        .collect();
    let marketplaces = [old.catalog.marketplaces(), new.catalog.marketplaces()];
    let plugins = plugin_items(query, new.id, removed_plugins, plugins, marketplaces);
    Box::new(removed.into_iter().chain(upserted).chain(plugins))
}

/// Returns the changes of plugins, and the marketplaces if they changed: `before` and `now`. The basic
/// view has neither.
fn plugin_items<'a>(
    query: &ListQuery,
    root: &'a RootId,
    removed: Vec<&'a Arc<Plugin>>,
    upserted: Vec<Arc<Plugin>>,
    [before, now]: [&'a [PluginMarketplace]; 2],
) -> Boxed<'a, DeltaItem> {
    if query.view == pb::SkillView::Basic {
        return Box::new(empty());
    }

    let removed = removed
        .into_iter()
        .map(move |plugin| DeltaItem::RemovedPlugin(handle_or_empty(root, Some(&plugin.package))));
    let upserted = upserted
        .into_iter()
        .map(move |plugin| DeltaItem::Plugin(plugin_message(root, &plugin)));
    let lists = once_with(move || {
        let lists = now.iter().map(|list| marketplace_message(root, list));
        DeltaItem::Marketplaces(pb::MarketplaceList {
            marketplaces: lists.collect(),
        })
    });

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
        let mut events = Vec::new();
        for at in roots.iter().copied() {
            let root = &self.new.view.roots[at];
            let before = match &self.old {
                None => Vec::new(),
                // Equal states have equal diagnostics, unless their share of the limit differs.
                Some(old)
                    if old.view.roots[at].state.is_same(&root.state)
                        && old.diagnostic_bytes == self.new.diagnostic_bytes =>
                {
                    continue;
                }
                Some(old) => old.root_diagnostics(at),
            };
            let now = self.new.root_diagnostics(at);
            if before != now {
                events.extend(diagnostic_lists(&root.id, now));
            }
        }
        events
    }
}

/// Returns the diagnostics of a root; an empty list if the root has none any longer.
fn diagnostic_lists(root: &RootId, diagnostics: Vec<pb::Diagnostic>) -> Vec<Event> {
    let empty_list = diagnostics.is_empty().then(Vec::new);
    fill_events(diagnostics.into_iter(), pb::Diagnostic::encoded_len)
        .chain(empty_list)
        .enumerate()
        .map(|(number, diagnostics)| {
            Event::Diagnostics(pb::DiagnosticList {
                root_id: root.as_str().to_owned(),
                diagnostics,
                continued: number > 0,
            })
        })
        .collect()
}

// --- Size of events -------------------------------------------------------------------------------

/// Divides messages among events. A message over the limit has an event of its own.
pub fn fill_events<T>(
    messages: impl Iterator<Item = T>,
    encoded_len: fn(&T) -> usize,
) -> impl Iterator<Item = Vec<T>> {
    let mut sized = messages
        .map(move |message| (encoded_len(&message) + FIELD_BYTES, message))
        .peekable();
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
