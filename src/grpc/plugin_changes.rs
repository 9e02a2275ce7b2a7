//! Changes of the plugins and marketplaces of a root, for [`super::change_events`].

use super::change_events::MAX_FRAGMENT_BYTES;
use super::plugin_message::{marketplace_message, plugin_message};
use super::root_messages::{VisibleRoot, handle_or_empty};
use crate::catalog::RootView;
use crate::domain::diff::diff_catalogs;
use crate::domain::{Plugin, RootId};
use crate::proto::caproot::v1 as pb;
use prost::Message as _;
use std::collections::VecDeque;
use std::sync::Arc;

/// Changes that are not sent yet. Each message is built when it is sent.
#[derive(Default)]
pub(super) struct PluginChanges<'a> {
    removed: VecDeque<String>,
    upserted: VecDeque<Arc<Plugin>>,
    /// Changed marketplaces.
    marketplaces: Option<MarketplaceUpdate<'a>>,
}

/// Root whose marketplaces changed; `None` if the root cannot be used.
struct MarketplaceUpdate<'a>(Option<VisibleRoot<'a>>);

impl<'a> PluginChanges<'a> {
    /// Returns the changes between two versions of a root.
    pub(super) fn between(old: Option<VisibleRoot<'a>>, new: Option<VisibleRoot<'a>>) -> Self {
        let handle = |id: &RootId, plugin: &Plugin| handle_or_empty(id, Some(&plugin.package));
        let lists =
            |shown: Option<VisibleRoot<'a>>| shown.map_or(&[][..], |s| s.catalog.marketplaces());
        let differs = lists(old) != lists(new);
        let mut changes =
            Self { marketplaces: differs.then_some(MarketplaceUpdate(new)), ..Self::default() };
        match (old, new) {
            (Some(old), None) => {
                changes.removed = old.plugins().map(|plugin| handle(old.id, plugin)).collect();
            }
            (None, Some(new)) => changes.upserted = new.plugins().cloned().collect(),
            (Some(old), Some(new)) if !std::ptr::eq(old.catalog, new.catalog) => {
                let change = diff_catalogs(old.catalog, new.catalog);
                let was_there = |package| old.catalog.plugin(package).cloned();
                let gone = change.removed_plugins.iter().filter_map(was_there);
                let gone = gone.filter(|plugin| plugin.check_handle(new.id).is_ok());
                changes.removed = gone.map(|plugin| handle(new.id, &plugin)).collect();
                let come = change.upserted_plugins.into_iter();
                changes.upserted =
                    come.filter(|plugin| plugin.check_handle(new.id).is_ok()).collect();
            }
            _ => {}
        }
        changes
    }

    /// Appends changes to a delta until its size reaches the limit.
    pub(super) fn append_to_delta(
        &mut self,
        root: &RootView,
        delta: &mut pb::SkillDelta,
        size: &mut usize,
    ) {
        while *size < MAX_FRAGMENT_BYTES {
            let Some(removed) = self.removed.pop_front() else { break };
            *size += removed.len() + 4;
            delta.removed_plugins.push(removed);
        }
        while *size < MAX_FRAGMENT_BYTES {
            let Some(next) = self.upserted.front() else { break };
            let next = plugin_message(&root.id, next);
            let len = next.encoded_len() + 4;
            if *size > 0 && *size + len > MAX_FRAGMENT_BYTES {
                return;
            }
            self.upserted.pop_front();
            *size += len;
            delta.upserted_plugins.push(next);
        }
        if !self.upserted.is_empty() || *size >= MAX_FRAGMENT_BYTES {
            return;
        }
        let Some(MarketplaceUpdate(shown)) = &self.marketplaces else { return };
        let lists = shown.map_or(&[][..], |shown| shown.catalog.marketplaces());
        let list = pb::MarketplaceList {
            marketplaces: lists.iter().map(|list| marketplace_message(&root.id, list)).collect(),
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
