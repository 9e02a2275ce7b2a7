//! Writer of change notices: the changes between two texts, as many lines as fit, and their descriptions.

use super::{InstructionUpdate, KeptText, NoticeChanges, UpdateKind, UpdateRequest};
use crate::skills::skill::{AuthorityRef, SharedSkill};
use crate::skills::tool_names::ToolNames;
use crate::text::instructions::LineText;
use crate::text::short_names::ShortNames;
use caproot_core::text::{single_line, truncate_with_ellipsis};
use std::collections::HashMap;

/// Limit of a notice in bytes.
pub const MAX_NOTICE_BYTES: usize = 1_024;
/// Limit of a description in a notice, in bytes.
const MAX_DESCRIPTION_BYTES: usize = 256;
/// Shortest truncated description in bytes; a shorter description is removed.
const MIN_DESCRIPTION_BYTES: usize = 12;
/// Limit of a line without a description. A skill with a longer name or handle is counted only.
const MAX_LINE_BYTES: usize = 256;

const HEAD: &str = "## Changed skills\n";
const ENVIRONMENTS_LINE: &str =
    "Other environments have the same skills now: see `environments` of `{list}`.\n";

/// Identity of a skill in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SkillKey<'a> {
    kind: &'a str,
    authority: &'a str,
    package: &'a str,
    name: &'a str,
}

impl<'a> SkillKey<'a> {
    pub fn of_skill(skill: &'a SharedSkill) -> Self {
        let AuthorityRef { kind, id } = AuthorityRef::of_skill(skill);
        Self {
            kind,
            authority: id,
            package: &skill.package,
            name: &skill.name,
        }
    }
}

/// Returns the parts of a skill whose change a notice tells.
pub fn described_parts(skill: &SharedSkill) -> [&str; 3] {
    [&skill.description, &skill.short_description, &skill.digest]
}

/// Kind of a changed skill, in the order of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ChangeKind {
    Added,
    Changed,
    Removed,
}

impl ChangeKind {
    fn heading(self) -> &'static str {
        match self {
            Self::Added => "New:\n",
            Self::Changed => "Changed, so read them again before use:\n",
            Self::Removed => "Gone:\n",
        }
    }
}

/// Line of a changed skill.
#[derive(Debug)]
struct NoticeLine {
    kind: ChangeKind,
    /// Name of the skill.
    name: String,
    /// Without a description for a skill whose description the model has or needs no more.
    text: LineText,
}

impl NoticeLine {
    fn new(change: &ChangedSkill<'_>, short_names: &ShortNames) -> Self {
        let skill = change.skill;
        let mut text = LineText::new(skill, short_names.name_of(skill), "");
        let max_len = if change.with_description {
            MAX_DESCRIPTION_BYTES
        } else {
            0
        };
        text.description = truncate_with_ellipsis(&text.description, max_len);
        Self {
            kind: change.kind,
            name: single_line(&skill.name),
            text,
        }
    }
}

/// Changed skill of two texts.
struct ChangedSkill<'a> {
    kind: ChangeKind,
    skill: &'a SharedSkill,
    with_description: bool,
    /// Number of changes of the kind before this one.
    rank: usize,
}

/// Writes the notice of the changes between two texts in place of the whole text of the update, unless
/// the notice is not shorter or exceeds the budget. An empty whole text tells a model nothing, so the
/// notice replaces it.
pub fn write_notice(
    known: &KeptText,
    latest: &KeptText,
    request: UpdateRequest<'_>,
    update: &mut InstructionUpdate,
) {
    let names = request.names;
    let found = find_changes(&known.skills, &latest.skills);
    let mut text = HEAD.to_owned();
    if known.environments != latest.environments {
        text.push_str(&names.fill_placeholders(ENVIRONMENTS_LINE));
    }

    let mut room =
        MAX_NOTICE_BYTES.saturating_sub(text.len() + closing_line(found.len(), names).len());
    let mut lines = choose_lines(&found, &mut room, request.short_names);
    let unnamed = found.len() - lines.len();
    lines.sort_by_key(|line| line.kind);

    let max_description = fair_description_len(&lines, room);
    let mut changes = NoticeChanges {
        unnamed,
        ..NoticeChanges::default()
    };
    let mut last_kind = None;
    for line in lines {
        if last_kind.replace(line.kind) != Some(line.kind) {
            text.push_str(line.kind.heading());
        }
        line.text.write(max_description, &mut text);
        let names = match line.kind {
            ChangeKind::Added => &mut changes.added,
            ChangeKind::Changed => &mut changes.changed,
            ChangeKind::Removed => &mut changes.removed,
        };
        names.push(line.name);
    }
    text.push_str(&closing_line(unnamed, names));

    let whole = &mut update.instructions.text;
    let is_shorter = whole.is_empty() || text.len() < whole.len();
    if is_shorter && text.len() <= request.budget {
        *whole = text;
        update.kind = UpdateKind::Notice;
        update.changes = Some(changes);
    } else {
        update.reason = Some("the whole text is not longer than a notice".to_owned());
    }
}

/// Returns the changes in the order in which a notice names them: in turn one of each kind, so that
/// many new skills do not displace a removed one.
fn find_changes<'a>(known: &'a [SharedSkill], latest: &'a [SharedSkill]) -> Vec<ChangedSkill<'a>> {
    let mut known_by_key: HashMap<_, _> = known
        .iter()
        .map(|skill| (SkillKey::of_skill(skill), skill))
        .collect();
    let mut changes: Vec<_> = latest
        .iter()
        .filter_map(|skill| {
            let before = known_by_key.remove(&SkillKey::of_skill(skill));
            let before = before.map(described_parts);
            let now = described_parts(skill);
            (before != Some(now)).then(|| ChangedSkill {
                kind: before.map_or(ChangeKind::Added, |_| ChangeKind::Changed),
                skill,
                with_description: before.is_none_or(|before| before[..2] != now[..2]),
                rank: 0,
            })
        })
        .collect();

    changes.extend(
        known
            .iter()
            .filter(|skill| known_by_key.contains_key(&SkillKey::of_skill(skill)))
            .map(|skill| ChangedSkill {
                kind: ChangeKind::Removed,
                skill,
                with_description: false,
                rank: 0,
            }),
    );

    let mut counts = [0_usize; 3];
    for change in &mut changes {
        let count = &mut counts[change.kind as usize];
        change.rank = *count;
        *count += 1;
    }
    // The sort is stable: the kinds keep their order within a rank.
    changes.sort_by_key(|change| change.rank);
    changes
}

/// Returns the lines that fit without descriptions, and leaves the rest of the room.
fn choose_lines(
    changed: &[ChangedSkill<'_>],
    room: &mut usize,
    short_names: &ShortNames,
) -> Vec<NoticeLine> {
    let mut chosen = Vec::new();
    let mut has_heading = [false; 3];
    // Each named line takes some bytes, so the rest of many changes is not even formatted.
    let shortest = "- a\n".len();

    for change in changed {
        if *room < shortest {
            break;
        }
        let line = NoticeLine::new(change, short_names);
        let heading_seen = &mut has_heading[change.kind as usize];
        let heading = if *heading_seen {
            0
        } else {
            change.kind.heading().len()
        };

        let bytes = heading + line.text.base_len();
        if line.text.base_len() <= MAX_LINE_BYTES && bytes <= *room {
            *heading_seen = true;
            *room -= bytes;
            chosen.push(line);
        }
    }
    chosen
}

/// Returns the length to which all descriptions must be truncated to fit into the room.
fn fair_description_len(lines: &[NoticeLine], room: usize) -> usize {
    let mut lengths: Vec<_> = lines
        .iter()
        .map(|line| line.text.description.len())
        .filter(|length| *length > 0)
        .map(|length| length + ": ".len())
        .collect();
    lengths.sort_unstable();

    let mut left = room;
    for (index, length) in lengths.iter().enumerate() {
        let share = left / (lengths.len() - index);
        if *length > share {
            let bytes = share.saturating_sub(": ".len());
            return if bytes < MIN_DESCRIPTION_BYTES {
                0
            } else {
                bytes
            };
        }
        left -= length;
    }
    MAX_DESCRIPTION_BYTES
}

fn closing_line(unnamed: usize, names: ToolNames) -> String {
    let list = names.list();
    match unnamed {
        0 => String::new(),
        1 => format!("1 more change; `{list}` lists all skills.\n"),
        more => format!("{more} more changes; `{list}` lists all skills.\n"),
    }
}
