//! `skills.list`: pages of a view. Search results have the form of these pages.

use super::session_view::SessionView;
use super::view_cursor::ViewCursor;
use crate::skills::readiness::missing_notes;
use crate::skills::result::json_escaped_len;
use crate::skills::skill::{AuthorityRef, SharedSkill, is_hidden};
use caproot_core::text::{escape_hidden_chars, truncate_with_ellipsis};
use caproot_core::wire::cursor::Cursor as _;
use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Bytes of the warnings of a page, as JSON.
const MAX_WARNINGS_BYTES: usize = 2_048;

/// Page of the list, as a model gets it.
#[derive(Debug, Serialize)]
pub struct SkillListPage<'a> {
    skills: Vec<SkillListEntry<'a>>,
    next_cursor: Option<String>,
    warnings: Vec<String>,
    truncated: bool,
    /// Number of skills that the page has, omits or does not list.
    #[serde(skip)]
    pub taken: usize,
}

/// Skill of a page.
#[derive(Debug, Serialize)]
struct SkillListEntry<'a> {
    authority: AuthorityRef<'a>,
    package: &'a str,
    name: Cow<'a, str>,
    description: String,
    main_resource: &'a str,
    /// Requirements that the executor does not have, such as `program jq`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<String>,
    /// Package of the skill in each environment, if several environments have it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    environments: BTreeMap<&'a str, String>,
    #[serde(skip)]
    skill: &'a SharedSkill,
}

impl SkillListPage<'_> {
    /// Returns the skills of the page.
    pub fn shared_skills(&self) -> impl Iterator<Item = &SharedSkill> {
        self.skills.iter().map(|entry| entry.skill)
    }

    /// Returns the page with the cursor of the next page. `truncated` means that more pages follow or
    /// that a limit cut a scan short.
    pub fn finish(self, view: &SessionView, next_cursor: Option<String>) -> Self {
        Self {
            truncated: next_cursor.is_some() || view.truncated,
            next_cursor,
            ..self
        }
    }
}

/// Returns the page of a view that begins at a skill, in a result of at most `max_bytes` bytes. The first
/// page has the warnings of the view.
pub fn list_page(view: &SessionView, begin: usize, max_bytes: usize) -> SkillListPage<'_> {
    let warnings = if begin == 0 {
        page_warnings(view)
    } else {
        Vec::new()
    };
    let page = fill_page(view, warnings, view.skills.iter().skip(begin), max_bytes);

    let index = begin + page.taken;
    let has_more = view
        .skills
        .iter()
        .skip(index)
        .any(|skill| is_listed(view, skill));
    let next_index = u32::try_from(index).ok().filter(|_| has_more);
    let view_id = view.id;
    let next_cursor = next_index.map(|index| ViewCursor { view_id, index }.encode(b""));
    page.finish(view, next_cursor)
}

/// Returns a page without its cursor, with as many whole skills as fit, in their order. If the first skill
/// does not fit, its description is truncated; if the skill does not fit without a description, the skill is
/// omitted with a warning.
pub fn fill_page<'a>(
    view: &'a SessionView,
    warnings: Vec<String>,
    skills: impl Iterator<Item = &'a SharedSkill>,
    max_bytes: usize,
) -> SkillListPage<'a> {
    let mut page = SkillListPage {
        skills: Vec::new(),
        next_cursor: Some("_".repeat(ViewCursor::MAX_CHARS)),
        warnings,
        truncated: false,
        taken: 0,
    };
    // Room is reserved for a cursor and for the longest warning of omitted skills.
    page.warnings.push(omitted_warning(usize::MAX));
    let mut room = max_bytes.saturating_sub(json_size(&page));
    page.warnings.pop();

    let mut omitted = 0;
    for skill in skills {
        if !is_listed(view, skill) {
            page.taken += 1;
            continue;
        }

        let mut entry = SkillListEntry {
            environments: view.equal_roots.packages(skill),
            authority: AuthorityRef::of_skill(skill),
            package: &skill.package,
            name: escape_hidden_chars(&skill.name),
            description: escape_hidden_chars(&skill.description).into_owned(),
            main_resource: &skill.main_resource,
            missing: missing_notes(skill),
            skill,
        };
        // One byte for the comma.
        let whole = json_size(&entry) + 1;
        if whole > room && !page.skills.is_empty() {
            break;
        }
        page.taken += 1;
        if whole > room {
            let bare = whole - json_escaped_len(&entry.description);
            if bare > room {
                omitted += 1;
                continue;
            }
            entry.description = truncate_description(&entry.description, room - bare);
        }

        room = room.saturating_sub(json_size(&entry) + 1);
        page.skills.push(entry);
    }

    if omitted > 0 {
        page.warnings.push(omitted_warning(omitted));
    }
    page
}

/// Returns whether the list has a skill.
pub fn is_listed(view: &SessionView, skill: &SharedSkill) -> bool {
    !is_hidden(skill) && view.equal_roots.is_in_lists(skill)
}

fn omitted_warning(count: usize) -> String {
    format!("{count} skills are omitted here: their names are too long for a result")
}

/// Returns the warnings of a view, up to [`MAX_WARNINGS_BYTES`].
pub fn page_warnings(view: &SessionView) -> Vec<String> {
    let count = view.hidden;
    let hidden = (count > 0).then(|| {
        format!("{count} skills are not listed: a model may use them only if a person names them")
    });
    let all = view.warnings.iter().cloned().chain(hidden);
    let total = all.clone().count();

    let mut used = 0;
    let mut kept = Vec::new();
    for warning in all {
        used += json_escaped_len(&warning) + 3;
        if used > MAX_WARNINGS_BYTES {
            kept.push(format!("{} more warnings", total - kept.len()));
            break;
        }
        kept.push(warning);
    }

    kept
}

/// Truncates a description to at most `room` bytes of JSON.
fn truncate_description(text: &str, room: usize) -> String {
    let mut bytes = text.len();
    loop {
        let short = truncate_with_ellipsis(text, bytes);
        if json_escaped_len(&short) <= room {
            return short;
        }
        // JSON escapes a byte to at most six, so a sixth of the excess can be removed at once.
        let over = json_escaped_len(&short) - room;
        bytes = short.len().saturating_sub((over / 6).max(1));
    }
}

fn json_size(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |json| json.len())
}

#[cfg(test)]
pub(crate) mod tests;
