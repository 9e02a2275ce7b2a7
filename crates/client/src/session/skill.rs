//! Skill of a session, and its authority.

use caproot_core::proto::caproot::v1::Skill;
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

/// Returns whether only a user may invoke a skill, by its name.
pub fn is_hidden(skill: &SharedSkill) -> bool {
    skill
        .policy
        .as_ref()
        .is_some_and(|policy| policy.allow_implicit_invocation == Some(false))
}
