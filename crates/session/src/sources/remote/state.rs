//! Latest state of a remote server.

use super::RemoteSkill;
use super::limits::MAX_UNLISTED_SKILLS;
use super::list::{ListedSkills, RemoteSkills, is_same_skills};
use crate::sources::SkillListing;
use std::sync::Arc;

/// Latest state of a server.
#[derive(Debug, Clone)]
pub struct RemoteState<L> {
    pub listing: Arc<SkillListing>,
    pub skills: Arc<RemoteSkills>,
    /// Skills that the server serves and does not list, the latest last.
    unlisted: Arc<Vec<Arc<RemoteSkill>>>,
    /// Link to the server, or the reason why the server is unavailable, which is the end of a sentence.
    pub link: Result<L, String>,
    /// Whether there was a list or an error.
    pub has_result: bool,
}

impl<L: Clone> RemoteState<L> {
    pub fn without_listing(reason: &str) -> Self {
        Self {
            listing: Arc::default(),
            skills: Arc::default(),
            unlisted: Arc::default(),
            link: Err(reason.to_owned()),
            has_result: false,
        }
    }

    /// Stores a list of the server; `None` if the latest list is valid. Returns whether the snapshot
    /// changed.
    pub fn store_list(&mut self, listed: Option<ListedSkills>, link: &L) -> bool {
        let mut is_changed = self.link.is_err();
        if let Some(ListedSkills { listing, skills }) = listed
            && (*self.listing != listing || !is_same_skills(&self.skills, &skills))
        {
            self.listing = Arc::new(listing);
            self.skills = Arc::new(skills);
            is_changed = true;
        }
        self.link = Ok(link.clone());
        self.has_result = true;
        is_changed
    }

    /// Stores the reason why the server is unavailable. The skills stay, so that no other source takes their
    /// names. Returns whether the snapshot changed.
    pub fn store_failure(&mut self, reason: String) -> bool {
        let is_changed = !self.has_result || self.link.as_ref().err() != Some(&reason);
        self.link = Err(reason);
        self.has_result = true;
        is_changed
    }

    /// Returns the skill of a package, listed or not.
    pub fn find(&self, package: &str) -> Option<&Arc<RemoteSkill>> {
        self.skills.get(package).or_else(|| {
            self.unlisted
                .iter()
                .find(|known| known.skill.package == package)
        })
    }

    /// Stores what the server says now about a skill; `None` if the server does not serve the skill. Returns
    /// whether the snapshot changed.
    pub fn replace_skill(&mut self, package: &str, skill: Option<RemoteSkill>) -> bool {
        match (self.find(package), &skill) {
            (Some(known), Some(skill)) if known.is_same(skill) => {
                known.confirm();
                return false;
            }
            (None, None) => return false,
            _ => {}
        }

        let skill = skill.map(Arc::new);
        if !self.skills.contains_key(package) {
            let unlisted = Arc::make_mut(&mut self.unlisted);
            unlisted.retain(|known| known.skill.package != package);
            unlisted.extend(skill);
            unlisted.drain(..unlisted.len().saturating_sub(MAX_UNLISTED_SKILLS));
            return false;
        }

        let listed = &mut Arc::make_mut(&mut self.listing).skills;
        let skills = Arc::make_mut(&mut self.skills);
        listed.retain(|skill| skill.package != package);
        skills.remove(package);
        if let Some(skill) = skill {
            let position = listed.partition_point(|other| {
                (&other.name, &other.package) < (&skill.skill.name, &skill.skill.package)
            });
            listed.insert(position, skill.skill.clone());
            skills.insert(package.to_owned(), skill);
        }
        true
    }
}
