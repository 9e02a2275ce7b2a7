//! `skills.list`: a page of what there is. Pure; leaves which view to `call`.

use super::SharedSkill;
use super::cursor::SkillListCursor;
use super::result::{MAX_RESULT_BYTES, json_escaped_len};
use super::text::truncate_with_ellipsis;
use super::view::{SessionView, is_hidden};
use crate::hidden_chars::escape_hidden_chars;
use serde::Serialize;
use std::borrow::Cow;

/// The most bytes of a page that warnings take, as JSON.
const MAX_WARNINGS_BYTES: usize = 2_048;

/// One page.
#[derive(Debug, Serialize)]
pub(super) struct SkillListPage<'a> {
    pub(super) skills: Vec<SkillListEntry<'a>>,
    pub(super) next_cursor: Option<String>,
    pub(super) warnings: Vec<String>,
    pub(super) truncated: bool,
}

/// One skill.
#[derive(Debug, Serialize)]
pub(super) struct SkillListEntry<'a> {
    authority: AuthorityRef<'a>,
    pub(super) package: &'a str,
    name: Cow<'a, str>,
    description: String,
    main_resource: &'a str,
}

/// Who listed a skill.
#[derive(Debug, Serialize)]
pub(super) struct AuthorityRef<'a> {
    pub(super) kind: &'a str,
    pub(super) id: &'a str,
}

impl<'a> AuthorityRef<'a> {
    pub(super) fn of_skill(skill: &'a SharedSkill) -> Self {
        let authority = skill.authority.as_ref();
        Self {
            kind: authority.map_or("", |authority| &authority.kind),
            id: authority.map_or("", |authority| &authority.id),
        }
    }
}

/// The page of a view that begins at a skill. It holds as many as fit whole; of one that does not fit on
/// a page of its own, the description is cut. One that does not even fit without is left out, with a
/// warning. Warnings come on the first page. `truncated`: more follows, or a limit cut a search short.
pub(super) fn list_page(view: &SessionView, begin: usize) -> SkillListPage<'_> {
    let mut warnings = if begin == 0 { page_warnings(view) } else { Vec::new() };
    let mut skills: Vec<SkillListEntry<'_>> = Vec::new();
    let mut left_out = 0_usize;
    let mut at = begin;
    // With a cursor and the longest count of what is left out.
    let mut taken = json_size(&SkillListPage {
        skills: Vec::new(),
        next_cursor: Some("_".repeat(SkillListCursor::ENCODED_LEN)),
        warnings: [warnings.clone(), vec![omitted_warning(usize::MAX)]].concat(),
        truncated: false,
    });
    while let Some(skill) = view.skills.get(at) {
        if !is_hidden(skill) {
            let room = MAX_RESULT_BYTES.saturating_sub(taken);
            let mut entry = SkillListEntry {
                authority: AuthorityRef::of_skill(skill),
                package: &skill.package,
                name: escape_hidden_chars(&skill.name),
                description: escape_hidden_chars(&skill.description).into_owned(),
                main_resource: &skill.main_resource,
            };
            // The comma before it.
            let whole = json_size(&entry) + 1;
            if whole > room && !skills.is_empty() {
                break;
            }
            if whole > room {
                let bare = whole - json_escaped_len(&entry.description);
                if bare > room {
                    left_out += 1;
                    at += 1;
                    continue;
                }
                entry.description = truncate_description(&entry.description, room - bare);
            }
            taken += json_size(&entry) + 1;
            skills.push(entry);
        }
        at += 1;
    }
    if left_out > 0 {
        warnings.push(omitted_warning(left_out));
    }
    let more = view.skills[at.min(view.skills.len())..].iter().any(|skill| !is_hidden(skill));
    let next = u32::try_from(at).ok().filter(|_| more);
    let next_cursor = next.map(|at| SkillListCursor { view_id: view.id, index: at }.encode());
    SkillListPage { skills, next_cursor, warnings, truncated: more || view.truncated }
}

fn omitted_warning(count: usize) -> String {
    format!("{count} skills are left out here: their names are too long for a result")
}

/// The view's warnings, as many as may be.
fn page_warnings(view: &SessionView) -> Vec<String> {
    let hidden = (view.hidden > 0).then(|| {
        format!("{} skills are not listed: only a person may call them, by name", view.hidden)
    });
    let mut taken = 0;
    let mut kept = Vec::new();
    let all = view.warnings.iter().cloned().chain(hidden);
    let total = all.clone().count();
    for warning in all {
        taken += json_escaped_len(&warning) + 3;
        if taken > MAX_WARNINGS_BYTES {
            kept.push(format!("{} warnings more", total - kept.len()));
            break;
        }
        kept.push(warning);
    }
    kept
}

/// A description that takes at most so many bytes of JSON.
fn truncate_description(text: &str, room: usize) -> String {
    let mut bytes = text.len();
    loop {
        let short = truncate_with_ellipsis(text, bytes);
        if json_escaped_len(&short) <= room {
            return short;
        }
        // Each round takes off at least what is too much, were nothing escaped.
        let over = json_escaped_len(&short) - room;
        bytes = short.len().saturating_sub((over / 6).max(1));
    }
}

fn json_size(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |json| json.len())
}

#[cfg(test)]
pub(super) mod tests;
