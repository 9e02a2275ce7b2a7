//! Files of the skills of a session, by the names of skills.

use super::answer::{FileText, RequestError};
use super::request::FileRequest;
use caproot_session::{ListedSkill, Session};

/// Reader of the skills of a session.
pub struct SkillReader<'a> {
    pub session: &'a Session,
}

impl SkillReader<'_> {
    /// Returns all listed skills.
    pub fn list(&self) -> Result<Vec<ListedSkill>, RequestError> {
        Ok(self.session.listed_skills()?)
    }

    /// Returns a whole file.
    pub async fn read(&self, request: &FileRequest) -> Result<FileText, RequestError> {
        let FileRequest {
            skill,
            path,
            authority,
        } = request;
        let text = self.session.read_file(skill, authority.as_ref(), path);
        Ok(FileText { text: text.await? })
    }
}
