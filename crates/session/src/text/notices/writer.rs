//! Writer of change notices: the changes between two texts, as many lines as fit, and their descriptions.

use super::{InstructionUpdate, KeptText, NoticeChanges, UpdateKind, UpdateRequest};
use crate::skills::skill::{AuthorityRef, SharedSkill};
use crate::skills::tool_names::ToolNames;
use crate::text::instructions::InstructionText;
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
    /// Short name, or the name.
    start: String,
    /// Handle, if there is no short name.
    package: Option<String>,
    /// Empty for a skill whose description the model has or needs no more.
    description: String,
}

impl NoticeLine {
    fn new(change: &ChangedSkill<'_>, short_names: &ShortNames) -> Self {
        let ChangedSkill {
            kind,
            skill,
            with_description,
            ..
        } = *change;
        let short = Some(&skill.short_description).filter(|short| !short.trim().is_empty());
        let description = short.unwrap_or(&skill.description);
        let short_name = short_names.name_of(skill);
        Self {
            kind,
            name: single_line(&skill.name),
            start: short_name.map_or_else(|| single_line(&skill.name), str::to_owned),
            package: short_name.is_none().then(|| single_line(&skill.package)),
            description: if with_description {
                truncate_with_ellipsis(&single_line(description), MAX_DESCRIPTION_BYTES)
            } else {
                String::new()
            },
        }
    }

    /// Returns the bytes of the line without a description.
    fn base_len(&self) -> usize {
        let package = self
            .package
            .as_ref()
            .map_or(0, |package| package.len() + " ()".len());
        self.start.len() + package + "- \n".len()
    }

    fn to_text(&self, max_description: usize) -> String {
        let description = truncate_with_ellipsis(&self.description, max_description);
        let separator = if description.is_empty() { "" } else { ": " };
        let package = self.package.as_ref().map(|package| format!(" ({package})"));
        format!(
            "- {}{separator}{description}{}\n",
            self.start,
            package.unwrap_or_default()
        )
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

/// Notice with the names in it.
pub struct ChangeNotice {
    text: String,
    changes: NoticeChanges,
}

impl ChangeNotice {
    /// Writes the notice of the changes between two texts.
    pub fn write(known: &KeptText, latest: &KeptText, request: UpdateRequest<'_>) -> Self {
        let names = request.names;
        let found = find_changes(&known.skills, &latest.skills);
        let mut text = HEAD.to_owned();
        if known.environments != latest.environments {
            text.push_str(&names.fill_placeholders(ENVIRONMENTS_LINE));
        }

        let reserved = text.len() + closing_line(found.len(), names).len();
        let room = MAX_NOTICE_BYTES.saturating_sub(reserved);
        let mut lines = choose_lines(&found, room, request.short_names);
        let unnamed = found.len() - lines.named.len();
        lines.named.sort_by_key(|line| line.kind);

        let max_description = fair_description_len(&lines.named, lines.room);
        let mut changes = NoticeChanges {
            unnamed,
            ..NoticeChanges::default()
        };
        let mut last_kind = None;
        for line in lines.named {
            if last_kind.replace(line.kind) != Some(line.kind) {
                text.push_str(line.kind.heading());
            }
            text.push_str(&line.to_text(max_description));
            changes.names_of(line.kind).push(line.name);
        }

        text.push_str(&closing_line(unnamed, names));
        Self { text, changes }
    }

    /// Returns the update with the notice, or with the whole text if the notice is not shorter or
    /// exceeds the budget. An empty whole text tells a model nothing, so the notice replaces it.
    pub fn into_update(
        self,
        id: String,
        budget: usize,
        whole: InstructionText,
    ) -> InstructionUpdate {
        let is_shorter = whole.text.is_empty() || self.text.len() < whole.text.len();
        if !is_shorter || self.text.len() > budget {
            let reason = "the whole text is not longer than a notice";
            return InstructionUpdate::whole(id, Some(reason), whole);
        }

        InstructionUpdate {
            id,
            kind: UpdateKind::Notice,
            reason: None,
            changes: Some(self.changes),
            instructions: InstructionText {
                text: self.text,
                ..whole
            },
        }
    }
}

impl NoticeChanges {
    fn names_of(&mut self, kind: ChangeKind) -> &mut Vec<String> {
        match kind {
            ChangeKind::Added => &mut self.added,
            ChangeKind::Changed => &mut self.changed,
            ChangeKind::Removed => &mut self.removed,
        }
    }
}

impl<'a> ChangedSkill<'a> {
    /// Returns the change of a skill of the latest text, or `None` if nothing changed.
    fn find(before: Option<&SharedSkill>, skill: &'a SharedSkill) -> Option<Self> {
        let Some(before) = before else {
            return Some(Self {
                kind: ChangeKind::Added,
                skill,
                with_description: true,
                rank: 0,
            });
        };

        let before = described_parts(before);
        let now = described_parts(skill);
        (before != now).then_some(Self {
            kind: ChangeKind::Changed,
            skill,
            with_description: before[..2] != now[..2],
            rank: 0,
        })
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
            ChangedSkill::find(before, skill)
        })
        .collect();

    let removed = known
        .iter()
        .filter(|skill| known_by_key.contains_key(&SkillKey::of_skill(skill)));
    changes.extend(removed.map(|skill| ChangedSkill {
        kind: ChangeKind::Removed,
        skill,
        with_description: false,
        rank: 0,
    }));

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

/// Lines that fit without descriptions, and the bytes that are left.
struct ChosenLines {
    named: Vec<NoticeLine>,
    room: usize,
}

fn choose_lines(
    changed: &[ChangedSkill<'_>],
    room: usize,
    short_names: &ShortNames,
) -> ChosenLines {
    let mut chosen = ChosenLines {
        named: Vec::new(),
        room,
    };
    let mut has_heading = [false; 3];
    // Each named line takes some bytes, so the rest of many changes is not even formatted.
    let shortest = "- a\n".len();

    for change in changed {
        if chosen.room < shortest {
            break;
        }
        let line = NoticeLine::new(change, short_names);
        let heading_seen = &mut has_heading[change.kind as usize];
        let heading = if *heading_seen {
            0
        } else {
            change.kind.heading().len()
        };

        let bytes = heading + line.base_len();
        if line.base_len() <= MAX_LINE_BYTES && bytes <= chosen.room {
            *heading_seen = true;
            chosen.room -= bytes;
            chosen.named.push(line);
        }
    }
    chosen
}

/// Returns the length to which all descriptions must be truncated to fit into the room.
fn fair_description_len(lines: &[NoticeLine], room: usize) -> usize {
    let mut lengths: Vec<_> = lines
        .iter()
        .filter(|line| !line.description.is_empty())
        .map(|line| line.description.len() + ": ".len())
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
