//! Pages of `ResolveRoots`: how much of the roots' marketplaces and plugins fits, and where the next
//! page begins.

use super::answers::{Shown, resolved_root};
use super::pages::{Question, diagnostics, print_epoch};
use super::plugins::{marketplace, plugin};
use crate::catalog::View;
use crate::domain::limits::MAX_PAGE_BYTES;
use crate::domain::token::PageToken;
use crate::proto::caproot::v1 as pb;
use prost::Message as _;

/// Kept free for the token, the epoch and the framing.
const SPARE_BYTES: usize = 1 << 10;
/// What tells a token of these pages from one of `ListSkills`.
const TAG: u8 = 2;

/// One thing that takes room on a page.
enum Item {
    Marketplace(Box<pb::Marketplace>),
    Plugin(Box<pb::Plugin>),
}

impl Item {
    fn len(&self) -> usize {
        match self {
            Self::Marketplace(list) => list.encoded_len(),
            Self::Plugin(plugin) => plugin.encoded_len(),
        }
    }

    fn put(self, root: &mut pb::ResolvedRoot) {
        match self {
            Self::Marketplace(list) => root.marketplaces.push(*list),
            Self::Plugin(plugin) => root.plugins.push(*plugin),
        }
    }
}

impl Question<'_> {
    /// What a token of a page of resolved roots is bound to.
    pub(super) fn resolved_bytes(&self) -> Vec<u8> {
        let mut bytes = self.bytes();
        bytes.insert(0, TAG);
        bytes
    }

    /// The page that begins at a root and at one of its marketplaces and plugins.
    pub(super) fn resolved_page(
        &self,
        epoch: u64,
        view: &View,
        begin: (usize, usize),
    ) -> pb::ResolveRootsResponse {
        let first = begin == (0, 0);
        let mut page = pb::ResolveRootsResponse {
            roots: view.roots.iter().map(resolved_root).collect(),
            epoch: print_epoch(epoch),
            revision: view.revision,
            next_page_token: String::new(),
        };
        if first {
            let lists = diagnostics(view, "");
            for (root, list) in page.roots.iter_mut().zip(lists) {
                root.diagnostics = list;
            }
        }
        let mut room = (MAX_PAGE_BYTES - SPARE_BYTES).saturating_sub(page.encoded_len());
        let mut count = 0;
        for (root_at, root) in view.roots.iter().enumerate().skip(begin.0) {
            let Some(shown) = Shown::new(root, "") else { continue };
            let lists = shown.catalog.marketplaces();
            let from = if root_at == begin.0 { begin.1 } else { 0 };
            let lists =
                lists.iter().map(|list| Item::Marketplace(Box::new(marketplace(&root.id, list))));
            let plugins = shown.plugins();
            let plugins = plugins.map(|p| Item::Plugin(Box::new(plugin(&root.id, p))));
            for (item_at, item) in lists.chain(plugins).enumerate().skip(from) {
                // The framing of the root's own length may grow by a few bytes.
                let len = item.len() + 16;
                // A later page has room for anything; the first may be full of diagnostics.
                let must_take = count == 0 && !first;
                if count == self.page_size || (len > room && !must_take) {
                    let token = PageToken::at(epoch, view.revision, (root_at, item_at));
                    page.next_page_token = token.print(&self.resolved_bytes());
                    return page;
                }
                room = room.saturating_sub(len);
                count += 1;
                item.put(&mut page.roots[root_at]);
            }
        }
        page
    }
}
