//! Pages of `ListSkills` and `ResolveRoots`.

use super::catalog_digests::{CatalogDigests, FirstSkills};
use super::encoded_body::MessageBuf;
use super::plugin_message::{marketplace_message, plugin_message};
use super::readiness_messages::{ViewReadiness, readiness_message};
use super::requests::PageRequest;
use super::root_messages::resolved_root;
use super::skill_message::{encode_skill, write_message};
use super::visible_view::VisibleView;
use crate::daemon::catalog::CatalogView;
use bytes::Bytes;
use caproot_core::proto::caproot::v1 as pb;
use caproot_core::text::truncate_with_ellipsis;
use caproot_core::wire::cursor::Cursor as _;
use caproot_core::wire::limits::MAX_PAGE_BYTES;
use prost::Message as _;
use tonic::Status;

/// Bytes reserved for the token, the epoch and the framing.
const RESERVED_BYTES: usize = 1 << 10;
/// Number of the field `skills`.
const SKILLS_FIELD: u32 = 1;
/// Number of the field `readiness` of a skill. The catalog digest leaves the field out.
const READINESS_FIELD: u32 = 16;
/// Warning of a list without roots, which looks like a list without skills.
const NO_ROOT_SELECTED: &str =
    "no root is selected, so there are no skills; ListRoots returns roots to select";
const MAX_WARNINGS: usize = 16;
const MAX_WARNING_BYTES: usize = 256;

/// Encodes a page of `ListSkills`. `readiness` is that of the view's skills.
pub fn encode_skill_page(
    request: &PageRequest,
    epoch: u64,
    digests: &CatalogDigests,
    view: &CatalogView,
    readiness: &ViewReadiness,
) -> Result<Bytes, Status> {
    let query = &request.query;
    let visible = VisibleView::new(view, &query.product);

    let kept_bytes = if request.roots_only {
        0
    } else {
        MAX_PAGE_BYTES
    };
    let (mut roots, encoded) = digests.statuses_with_skills(query, &visible, kept_bytes);
    request.known_catalogs.mark_unchanged(&mut roots);
    let mut page = pb::ListSkillsResponse {
        roots,
        epoch: format_epoch(epoch),
        revision: view.revision,
        ..pb::ListSkillsResponse::default()
    };

    page.truncated = page.roots.iter().any(|r| r.truncated);
    if request.is_first_page() && !request.roots_only {
        page.warnings = if page.roots.is_empty() {
            vec![NO_ROOT_SELECTED.to_owned()]
        } else {
            root_warnings(&page.roots)
        };
        page.diagnostics = visible
            .diagnostics()
            .zip(&page.roots)
            .filter(|(_, root)| !root.unchanged)
            .flat_map(|(list, _)| list)
            .collect();
    }

    // The skills fill the room that the other fields leave.
    let mut buffer = MessageBuf::with_capacity(0);
    let room = (MAX_PAGE_BYTES - RESERVED_BYTES).saturating_sub(page.encoded_len());
    let next = if request.roots_only {
        None
    } else {
        write_skills(
            &mut buffer,
            request,
            &page.roots,
            &encoded,
            (&visible, readiness),
            room,
        )
    };
    if let Some(next) = next {
        page.next_page_token = request.next_page_token(epoch, view.revision, next);
    } else {
        page.resume_token = query.resume_token(epoch, view.revision).encode(b"");
    }

    buffer.append_message(&page);
    buffer.finish(0)
}

/// Writes the skills that fit on the page. Returns the start of the next page, if there is one.
/// `encoded` has messages that the digests of this call took.
fn write_skills(
    buffer: &mut MessageBuf,
    request: &PageRequest,
    statuses: &[pb::RootStatus],
    encoded: &[FirstSkills],
    (visible, readiness): (&VisibleView<'_>, &ViewReadiness),
    mut room: usize,
) -> Option<(usize, usize)> {
    let PageRequest { query, begin, .. } = request;

    let mut count = 0;
    for (root_at, shown) in visible.roots.iter().enumerate().skip(begin.0) {
        let Some(shown) = shown.filter(|_| !statuses[root_at].unchanged) else {
            continue;
        };

        let scope = shown.catalog.header.scope;
        let readiness = readiness.get(root_at).and_then(Option::as_ref);
        let from = if root_at == begin.0 { begin.1 } else { 0 };
        for (skill_at, listed) in shown.skills(from) {
            if count == request.page_size {
                return Some((root_at, skill_at));
            }

            // On a later page, any skill fits. Diagnostics can fill the first page.
            let must_take = count == 0 && !request.is_first_page();
            let written =
                buffer.try_append_fields(if must_take { usize::MAX } else { room }, |out| {
                    write_message(SKILLS_FIELD, out, |out| {
                        match encoded[root_at].get(skill_at) {
                            Some(message) => out.extend_from_slice(message),
                            None => encode_skill(shown.id, scope, listed, query.view, out),
                        }
                        let checked = readiness.and_then(|table| table.skills.get(&listed.package));
                        if let Some(checked) = checked {
                            let message = readiness_message(checked);
                            prost::encoding::message::encode(READINESS_FIELD, &message, out);
                        }
                    });
                });

            let Some(len) = written else {
                return Some((root_at, skill_at));
            };
            room = room.saturating_sub(len);
            count += 1;
        }
    }
    None
}

/// Builds a page of `ResolveRoots`: marketplaces and plugins.
pub fn resolved_page(
    request: &PageRequest,
    epoch: u64,
    view: &CatalogView,
) -> pb::ResolveRootsResponse {
    let begin = request.begin;
    let visible = VisibleView::new(view, "");

    let mut page = build_roots_page(request, epoch, view, &visible);
    let mut room = (MAX_PAGE_BYTES - RESERVED_BYTES).saturating_sub(page.encoded_len());
    let mut count = 0;
    for (root_at, shown) in visible.roots.iter().enumerate().skip(begin.0) {
        let Some(shown) = shown else {
            continue;
        };

        // The items of a root are its marketplaces, then its plugins.
        let lists = shown.catalog.marketplaces();
        let plugins: Vec<_> = shown.plugins().collect();
        let from = if root_at == begin.0 { begin.1 } else { 0 };
        for item_at in from..lists.len() + plugins.len() {
            let list = lists
                .get(item_at)
                .map(|list| marketplace_message(shown.id, list));
            let plugin = item_at
                .checked_sub(lists.len())
                .map(|at| plugin_message(shown.id, plugins[at]));
            // The length prefix of the root can grow by a few bytes.
            let len = 16
                + list.as_ref().map_or(0, pb::Marketplace::encoded_len)
                + plugin.as_ref().map_or(0, pb::Plugin::encoded_len);
            // On a later page, any item fits. Diagnostics can fill the first page.
            let must_take = count == 0 && !request.is_first_page();
            if count == request.page_size || (len > room && !must_take) {
                let next = (root_at, item_at);
                page.next_page_token = request.next_page_token(epoch, view.revision, next);
                return page;
            }

            room = room.saturating_sub(len);
            count += 1;
            page.roots[root_at].marketplaces.extend(list);
            page.roots[root_at].plugins.extend(plugin);
        }
    }
    page
}

/// Builds a page of `ResolveRoots` that has no marketplaces and plugins yet.
fn build_roots_page(
    request: &PageRequest,
    epoch: u64,
    view: &CatalogView,
    visible: &VisibleView<'_>,
) -> pb::ResolveRootsResponse {
    let mut page = pb::ResolveRootsResponse {
        roots: view
            .roots
            .iter()
            .zip(&visible.roots)
            .map(|(root, visible)| resolved_root(root, visible.as_ref()))
            .collect(),
        epoch: format_epoch(epoch),
        revision: view.revision,
        next_page_token: String::new(),
    };

    if request.is_first_page() {
        for (root, list) in page.roots.iter_mut().zip(visible.diagnostics()) {
            root.diagnostics = list;
        }
    }
    page
}

/// Formats the epoch of a response.
pub fn format_epoch(epoch: u64) -> String {
    format!("{epoch:016x}")
}

/// Returns warnings for a model or a person, one line for each root.
fn root_warnings(roots: &[pb::RootStatus]) -> Vec<String> {
    let mut all: Vec<String> = roots.iter().filter_map(root_warning).collect();
    if all.len() > MAX_WARNINGS {
        let more = all.len() - (MAX_WARNINGS - 1);
        all.truncate(MAX_WARNINGS - 1);
        all.push(format!(
            "{more} more roots have warnings; see their statuses"
        ));
    }
    for text in &mut all {
        *text = truncate_with_ellipsis(text, MAX_WARNING_BYTES);
    }
    all
}

fn root_warning(root: &pb::RootStatus) -> Option<String> {
    let warning = match &*root.message {
        "" if root.truncated => "a limit truncated the scan of a root",
        "" => return None,
        message => message,
    };
    Some(format!("{warning}: {}", root.id))
}
