//! Skill of a session, its authority, and the view of the skills in a mirror.

use caproot_core::proto::caproot::v1::{Skill, SkillView};
use serde::Serialize;
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

/// Returns whether a skill is hidden from models.
pub fn is_hidden(skill: &SharedSkill) -> bool {
    !skill.model_invocable
}

/// Returns the detail of the mirrored skills. Only the full view has plugins.
pub fn mirrored_view(has_plugins: bool) -> SkillView {
    if has_plugins {
        SkillView::Full
    } else {
        SkillView::Basic
    }
}
