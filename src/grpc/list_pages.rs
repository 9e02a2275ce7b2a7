//! Pages of `ListSkills` and `ResolveRoots`.

use super::encoded_body::MessageBuf;
use super::plugin_message::{marketplace_message, plugin_message};
use super::root_messages::{VisibleRoot, resolved_root, root_status};
use super::skill_message::encode_skill;
use super::wire_format;
use crate::catalog::CatalogView;
use crate::model::limits::MAX_PAGE_BYTES;
use crate::model::text::truncate_with_ellipsis;
use crate::model::token::{PageToken, ResumeToken};
use crate::model::{AccessScope, SelectedRoot};
use crate::proto::caproot::v1 as pb;
use bytes::Bytes;
use prost::Message as _;
use tonic::Status;

/// Maximum bytes of diagnostics in a response.
const MAX_DIAGNOSTIC_BYTES: usize = 512 << 10;
/// Bytes reserved for the token, the epoch and the framing.
const RESERVED_BYTES: usize = 1 << 10;
/// Tag that distinguishes page tokens of `ResolveRoots` from those of `ListSkills`.
const RESOLVE_TOKEN_TAG: u8 = 2;
/// Number of the field `skills`.
const SKILLS_FIELD: u32 = 1;
const MAX_WARNINGS: usize = 16;
const MAX_WARNING_BYTES: usize = 256;

/// Query of a list, without the position of the page.
pub struct ListQuery<'a> {
    /// Access scope of the caller. Tokens are only valid for callers with the same scope.
    pub access_scope: &'a AccessScope,
    pub selection: &'a [SelectedRoot],
    pub product: &'a str,
    pub view: pb::SkillView,
    pub page_size: usize,
}

/// Element of a page of `ResolveRoots`.
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
    /// Returns the query that a page token must match. A length precedes each text, so that
    /// different queries have different bytes.
    pub fn page_token_binding(&self) -> Vec<u8> {
        self.encode_with_roots(self.selection.iter())
    }

    /// Returns the query that a resume token must match. The order of the roots does not matter.
    pub fn resume_token_binding(&self) -> Vec<u8> {
        let mut roots: Vec<_> = self.selection.iter().collect();
        // Ids are unique in a selection.
        roots.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        self.encode_with_roots(roots.into_iter())
    }

    fn encode_with_roots<'s>(&self, roots: impl Iterator<Item = &'s SelectedRoot>) -> Vec<u8> {
        let mut bytes = vec![u8::from(self.view == pb::SkillView::Basic)];
        let roots =
            roots.flat_map(|s| [s.id.as_str(), &*s.location_type, &*s.environment, &*s.path]);
        for text in std::iter::once(self.product).chain(roots) {
            bytes.extend((text.len() as u64).to_be_bytes());
            bytes.extend(text.as_bytes());
        }
        // Empty for an unrestricted caller; otherwise the first byte differs from a length.
        bytes.extend(self.access_scope.to_bytes());
        bytes
    }

    /// Encodes the page that begins at a root and a skill.
    pub fn encode_page(
        &self,
        epoch: u64,
        view: &CatalogView,
        begin: (usize, usize),
    ) -> Result<Bytes, Status> {
        let is_first_page = begin == (0, 0);
        let mut page = pb::ListSkillsResponse {
            roots: view.roots.iter().map(|root| root_status(root, self.product)).collect(),
            epoch: format_epoch(epoch),
            revision: view.revision,
            ..pb::ListSkillsResponse::default()
        };
        page.truncated = page.roots.iter().any(|r| r.truncated);
        if is_first_page {
            page.warnings = root_warnings(&page.roots);
            page.diagnostics = root_diagnostics(view, self.product).into_iter().flatten().collect();
        }
        let mut buffer = MessageBuf::with_capacity(0);
        let room = (MAX_PAGE_BYTES - RESERVED_BYTES).saturating_sub(page.encoded_len());
        if let Some(next) = self.write_skills(&mut buffer, view, begin, room) {
            let token = PageToken::at_item(epoch, view.revision, next);
            page.next_page_token = token.encode(&self.page_token_binding());
        } else {
            let query = self.resume_token_binding();
            page.resume_token = ResumeToken::new(epoch, view.revision, &query).encode();
        }
        buffer.append_message(&page);
        buffer.finish()
    }

    /// Writes the skills that fit on the page. Returns the start of the next page, if there is one.
    fn write_skills(
        &self,
        buffer: &mut MessageBuf,
        view: &CatalogView,
        begin: (usize, usize),
        mut room: usize,
    ) -> Option<(usize, usize)> {
        let mut count = 0;
        for (root_at, root) in view.roots.iter().enumerate().skip(begin.0) {
            let Some(visible) = VisibleRoot::new(root, self.product) else { continue };
            let scope = visible.catalog.header.scope;
            let from = if root_at == begin.0 { begin.1 } else { 0 };
            for (skill_at, listed) in visible.skills(from) {
                if count == self.page_size {
                    return Some((root_at, skill_at));
                }
                // On a later page, any skill fits. Diagnostics can fill the first page.
                let must_take = count == 0 && begin != (0, 0);
                let written =
                    buffer.try_append_fields(if must_take { usize::MAX } else { room }, |out| {
                        wire_format::write_message(SKILLS_FIELD, out, |out| {
                            encode_skill(&root.id, scope, listed, self.view, out);
                        });
                    });
                let Some(len) = written else { return Some((root_at, skill_at)) };
                room = room.saturating_sub(len);
                count += 1;
            }
        }
        None
    }

    /// Returns the query that a page token of `ResolveRoots` must match.
    pub fn resolve_token_binding(&self) -> Vec<u8> {
        let mut bytes = self.page_token_binding();
        bytes.insert(0, RESOLVE_TOKEN_TAG);
        bytes
    }

    /// Builds the page that begins at a root and at one of its marketplaces and plugins.
    pub fn resolved_page(
        &self,
        epoch: u64,
        view: &CatalogView,
        begin: (usize, usize),
    ) -> pb::ResolveRootsResponse {
        let is_first_page = begin == (0, 0);
        let mut page = pb::ResolveRootsResponse {
            roots: view.roots.iter().map(resolved_root).collect(),
            epoch: format_epoch(epoch),
            revision: view.revision,
            next_page_token: String::new(),
        };
        if is_first_page {
            let lists = root_diagnostics(view, "");
            for (root, list) in page.roots.iter_mut().zip(lists) {
                root.diagnostics = list;
            }
        }
        let mut room = (MAX_PAGE_BYTES - RESERVED_BYTES).saturating_sub(page.encoded_len());
        let mut count = 0;
        for (root_at, root) in view.roots.iter().enumerate().skip(begin.0) {
            let Some(visible) = VisibleRoot::new(root, "") else { continue };
            let lists = visible.catalog.marketplaces();
            let from = if root_at == begin.0 { begin.1 } else { 0 };
            let lists = lists.iter().map(|list| {
                ResolvedItem::Marketplace(Box::new(marketplace_message(&root.id, list)))
            });
            let plugins = visible.plugins();
            let plugins =
                plugins.map(|p| ResolvedItem::Plugin(Box::new(plugin_message(&root.id, p))));
            for (item_at, item) in lists.chain(plugins).enumerate().skip(from) {
                // The length prefix of the root can grow by a few bytes.
                let len = item.len() + 16;
                // On a later page, any item fits. Diagnostics can fill the first page.
                let must_take = count == 0 && !is_first_page;
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

/// Formats the epoch of a response.
pub fn format_epoch(epoch: u64) -> String {
    format!("{epoch:016x}")
}

/// Returns the diagnostics of each root, most severe first. The roots share the byte limit equally.
pub fn root_diagnostics(view: &CatalogView, product: &str) -> Vec<Vec<pb::Diagnostic>> {
    let all = view.roots.iter().map(|root| VisibleRoot::new(root, product));
    let mut all: Vec<_> = all.map(|s| s.map(|s| s.diagnostics()).unwrap_or_default()).collect();
    let roots_with_diagnostics = all.iter().filter(|d| !d.is_empty()).count().max(1);
    for diagnostics in &mut all {
        diagnostics.truncate(crate::model::limits::MAX_DIAGNOSTICS);
        let mut room = MAX_DIAGNOSTIC_BYTES / roots_with_diagnostics;
        let fitting = diagnostics.iter().take_while(|d| {
            let len = d.encoded_len() + 4;
            let fits = len <= room;
            room = room.saturating_sub(len);
            fits
        });
        let fitting = fitting.count();
        diagnostics.truncate(fitting);
    }
    all
}

/// Returns warnings for a model or a person, one line for each root.
fn root_warnings(roots: &[pb::RootStatus]) -> Vec<String> {
    let mut all: Vec<String> = roots.iter().filter_map(root_warning).collect();
    if all.len() > MAX_WARNINGS {
        let more = all.len() - (MAX_WARNINGS - 1);
        all.truncate(MAX_WARNINGS - 1);
        all.push(format!("{more} more roots have warnings; see their statuses"));
    }
    for text in &mut all {
        *text = truncate_with_ellipsis(text, MAX_WARNING_BYTES);
    }
    all
}

fn root_warning(root: &pb::RootStatus) -> Option<String> {
    if !root.message.is_empty() {
        return Some(format!("{}: {}", root.message, root.id));
    }
    if root.truncated {
        return Some(format!("a limit truncated the scan of a root: {}", root.id));
    }
    None
}
