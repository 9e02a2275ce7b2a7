//! Change notices: a short text for a model that has an older instruction text. A session keeps the
//! skills of its last texts, and a notice names the skills that came, changed or went since one of them.

#[cfg(test)]
mod tests;
mod writer;

pub use writer::MAX_NOTICE_BYTES;

use super::instructions::{InstructionText, TextPlace};
use super::short_names::ShortNames;
use crate::skills::skill::SharedSkill;
use crate::skills::tool_names::ToolNames;
use caproot_core::wire::cursor::{Cursor, CursorKind, CursorReader, CursorWriter};
use serde::Serialize;
use std::collections::VecDeque;
use std::hash::{BuildHasher as _, Hash as _, Hasher as _, RandomState};
use writer::{SkillKey, described_parts, write_notice};

/// Texts whose skills a session keeps.
const MAX_KEPT_TEXTS: usize = 8;

/// Instruction text for a model that may have an older one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstructionUpdate {
    /// Whole text, notice, or empty text, with the counts and warnings of the whole text.
    #[serde(flatten)]
    pub instructions: InstructionText,
    /// Id of the text that the model has after this update, for the next request. Only the same
    /// session knows the id.
    pub id: String,
    /// Form of the update.
    pub kind: UpdateKind,
    /// Reason of a whole text although the request had an id, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Names in a notice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<NoticeChanges>,
}

/// Form of an [`InstructionUpdate`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum UpdateKind {
    /// The text is whole and replaces the text before.
    Whole,
    /// The text is a notice of at most 1,024 bytes and follows the text before.
    Notice,
    /// The model has the text, and nothing is sent.
    Unchanged,
}

/// Skills that a notice names, in its order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NoticeChanges {
    /// Names of skills that came.
    pub added: Vec<String>,
    /// Names of skills whose description or SKILL.md changed.
    pub changed: Vec<String>,
    /// Names of skills that went.
    pub removed: Vec<String>,
    /// Number of further changes, which the notice only counts.
    pub unnamed: usize,
}

/// Texts that a session returned last.
#[derive(Debug, Default)]
pub struct TextRegistry {
    /// Hasher with random keys: ids of other sessions match no text.
    hasher: RandomState,
    /// The latest text comes first.
    kept: VecDeque<KeptText>,
}

/// Skills of a text that a session returned.
#[derive(Debug)]
struct KeptText {
    hash: u64,
    budget: usize,
    /// Lines about equal skills of other environments.
    environments: String,
    skills: Vec<SharedSkill>,
}

/// Id of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TextId {
    session: u64,
    text: u64,
}

/// Request of an update.
#[derive(Debug, Clone, Copy)]
pub struct UpdateRequest<'a> {
    /// Id of the text that the model has.
    pub known: Option<&'a str>,
    /// Limit of the whole text in bytes.
    pub budget: usize,
    pub names: ToolNames,
    pub short_names: &'a ShortNames,
}

impl Cursor for TextId {
    const KIND: CursorKind = CursorKind::SessionText;

    fn write_fields(&self, fields: &mut CursorWriter) {
        fields.write_hash(self.session);
        fields.write_hash(self.text);
    }

    fn read_fields(fields: &mut CursorReader<'_>) -> Option<Self> {
        Some(Self {
            session: fields.read_hash()?,
            text: fields.read_hash()?,
        })
    }
}

impl InstructionUpdate {
    /// Returns the update of a closed session, which has no skills.
    pub(crate) fn closed(instructions: InstructionText) -> Self {
        Self {
            reason: Some("the session is closed".to_owned()),
            ..Self::whole(String::new(), instructions)
        }
    }

    fn whole(id: String, instructions: InstructionText) -> Self {
        Self {
            id,
            kind: UpdateKind::Whole,
            reason: None,
            changes: None,
            instructions,
        }
    }
}

impl TextRegistry {
    /// Returns the update from the text that the model has to the whole text of now, and keeps the
    /// skills of the latter.
    pub fn update(
        &mut self,
        request: UpdateRequest<'_>,
        whole: InstructionText,
    ) -> InstructionUpdate {
        let latest = KeptText::new(&self.hasher, request.budget, &whole);
        let id = TextId {
            session: self.session_hash(),
            text: latest.hash,
        };
        let mut update = InstructionUpdate::whole(id.encode(b""), whole);

        match request.known.map(|id| self.find(id, request.budget)) {
            None => {}
            Some(Err(reason)) => update.reason = Some(reason.to_owned()),
            Some(Ok(known)) if known.hash == latest.hash => {
                update.kind = UpdateKind::Unchanged;
                update.instructions.text.clear();
            }
            Some(Ok(known)) => write_notice(known, &latest, request, &mut update),
        }

        // Keeps the text in front of the texts before.
        self.kept.retain(|text| text.hash != latest.hash);
        self.kept.push_front(latest);
        self.kept.truncate(MAX_KEPT_TEXTS);
        update
    }

    fn session_hash(&self) -> u64 {
        self.hasher.hash_one("session")
    }

    /// Returns a kept text, or the reason why there is none.
    fn find(&self, known: &str, budget: usize) -> Result<&KeptText, &'static str> {
        let id = TextId::decode(known, b"").ok_or("no session returned such an id")?;
        if id.session != self.session_hash() {
            return Err("the id is of another session");
        }

        let text = self.kept.iter().find(|text| text.hash == id.text);
        let text =
            text.ok_or("the session keeps its last 8 texts, and the text of the id is older")?;
        if text.budget == budget {
            Ok(text)
        } else {
            Err("the text of the id has another budget")
        }
    }
}

impl KeptText {
    fn new(hasher: &RandomState, budget: usize, whole: &InstructionText) -> Self {
        let shown = whole.skills.iter();
        let shown =
            shown.filter(|placed| !matches!(placed.place, TextPlace::Hidden | TextPlace::Merged));
        let skills: Vec<_> = shown.map(|placed| placed.skill.clone()).collect();
        let environments = whole.environment_lines();

        let mut state = hasher.build_hasher();
        budget.hash(&mut state);
        environments.hash(&mut state);
        for skill in &skills {
            SkillKey::of_skill(skill).hash(&mut state);
            described_parts(skill).hash(&mut state);
        }
        Self {
            hash: state.finish(),
            budget,
            environments,
            skills,
        }
    }
}
