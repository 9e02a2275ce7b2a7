//! Pages of ResolveRoots.

use super::plugin_message::{marketplace_message, plugin_message};
use super::root_messages::{VisibleRoot, resolved_root};
use super::skill_pages::{ListQuery, format_epoch, root_diagnostics};
use crate::catalog::CatalogView;
use crate::domain::limits::MAX_PAGE_BYTES;
use crate::domain::token::PageToken;
use crate::proto::caproot::v1 as pb;
use prost::Message as _;

/// Bytes reserved for the token, the epoch and the framing.
const RESERVED_BYTES: usize = 1 << 10;
/// Tag that distinguishes page tokens of ResolveRoots from those of ListSkills.
const RESOLVE_TOKEN_TAG: u8 = 2;

/// Element of a page.
enum ResolvedItem {
    Marketplace(Box<pb::Marketplace>),
    Plugin(Box<pb::Plugin>),
}

impl ResolvedItem {
    fn len(&self) -> usize {
        match self {
            Self::Marketplace(list) => list.encoded_len(),
            Self::Plugin(plugin) => plugin.encoded_len(),
        }
    }

    fn push_to(self, root: &mut pb::ResolvedRoot) {
        match self {
            Self::Marketplace(list) => root.marketplaces.push(*list),
            Self::Plugin(plugin) => root.plugins.push(*plugin),
        }
    }
}

impl ListQuery<'_> {
    /// Returns the query that a page token of ResolveRoots must match.
    pub(super) fn resolve_token_binding(&self) -> Vec<u8> {
        let mut bytes = self.page_token_binding();
        bytes.insert(0, RESOLVE_TOKEN_TAG);
        bytes
    }

    /// Builds the page that begins at a root and at one of its marketplaces and plugins.
    pub(super) fn resolved_page(
        &self,
        epoch: u64,
        view: &CatalogView,
        begin: (usize, usize),
    ) -> pb::ResolveRootsResponse {
        let first = begin == (0, 0);
        let mut page = pb::ResolveRootsResponse {
            roots: view.roots.iter().map(resolved_root).collect(),
            epoch: format_epoch(epoch),
            revision: view.revision,
            next_page_token: String::new(),
        };
        if first {
            let lists = root_diagnostics(view, "");
            for (root, list) in page.roots.iter_mut().zip(lists) {
                root.diagnostics = list;
            }
        }
        let mut room = (MAX_PAGE_BYTES - RESERVED_BYTES).saturating_sub(page.encoded_len());
        let mut count = 0;
        for (root_at, root) in view.roots.iter().enumerate().skip(begin.0) {
            let Some(shown) = VisibleRoot::new(root, "") else { continue };
            let lists = shown.catalog.marketplaces();
            let from = if root_at == begin.0 { begin.1 } else { 0 };
            let lists = lists.iter().map(|list| {
                ResolvedItem::Marketplace(Box::new(marketplace_message(&root.id, list)))
            });
            let plugins = shown.plugins();
            let plugins =
                plugins.map(|p| ResolvedItem::Plugin(Box::new(plugin_message(&root.id, p))));
            for (item_at, item) in lists.chain(plugins).enumerate().skip(from) {
                // The length prefix of the root can grow by a few bytes.
                let len = item.len() + 16;
                // On a later page, any item fits. Diagnostics can fill the first page.
                let must_take = count == 0 && !first;
                if count == self.page_size || (len > room && !must_take) {
                    let token = PageToken::at_item(epoch, view.revision, (root_at, item_at));
                    page.next_page_token = token.encode(&self.resolve_token_binding());
                    return page;
                }
                room = room.saturating_sub(len);
                count += 1;
                item.push_to(&mut page.roots[root_at]);
            }
        }
        page
    }
}
