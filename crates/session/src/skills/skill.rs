//! Skill of a session, its authority, its place in texts, and the view of the skills in a mirror.

use caproot_core::proto::caproot::v1::{Skill, SkillView};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::Arc;

/// Skill that the views share.
pub type SharedSkill = Arc<Skill>;

/// Authority that lists a skill.
#[derive(Debug, Serialize)]
pub struct AuthorityRef<'a> {
    pub kind: &'a str,
    pub id: &'a str,
}

impl<'a> AuthorityRef<'a> {
    pub fn of_skill(skill: &'a SharedSkill) -> Self {
        let authority = skill.authority.as_ref();
        Self {
            kind: authority.map_or("", |authority| &authority.kind),
            id: authority.map_or("", |authority| &authority.id),
        }
    }
}

/// Authority of a skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SkillAuthority {
    /// `executor`, `local`, `mcp` or `site`.
    pub kind: String,
    /// Id of the selected root, of the directory, of the server or of the site.
    pub id: String,
}

impl SkillAuthority {
    pub(crate) fn of_skill(skill: &SharedSkill) -> Self {
        let AuthorityRef { kind, id } = AuthorityRef::of_skill(skill);
        Self {
            kind: kind.to_owned(),
            id: id.to_owned(),
        }
    }
}

/// Skills of a view that the texts for a model show in a special way, by their indexes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextEmphasis {
    /// Skills that are never cut while another skill is shown.
    pub pinned: HashSet<usize>,
    /// Skills without a description.
    pub name_only: HashSet<usize>,
}

/// Returns whether a skill is hidden from models.
pub fn is_hidden(skill: &SharedSkill) -> bool {
    !skill.is_offered()
}

/// Returns the detail of the mirrored skills. Only the full view has plugins.
pub fn mirrored_view(has_plugins: bool) -> SkillView {
    if has_plugins {
        SkillView::Full
    } else {
        SkillView::Basic
    }
}
