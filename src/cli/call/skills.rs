//! Files of the skills of a session, by the names of skills.

use super::answer::{FileText, RequestError};
use super::request::FileRequest;
use caproot_client::session::{ListedSkill, Session, SkillAuthority};

/// Reader of the skills of a session.
pub struct SkillReader<'a> {
    pub session: &'a Session,
}

/// Skill with its authority.
struct NamedSkill {
    authority: SkillAuthority,
    package: String,
}

impl SkillReader<'_> {
    /// Returns all listed skills.
    pub fn list(&self) -> Result<Vec<ListedSkill>, RequestError> {
        let skills = self.session.listed_skills();
        skills.map_err(|error| RequestError::from_tool_error(&error))
    }

    /// Returns a whole file.
    pub async fn read(&self, request: &FileRequest) -> Result<FileText, RequestError> {
        let NamedSkill { authority, package } = self.find_skill(request)?;
        let text = self.session.read_file(&authority, &package, &request.path);
        match text.await {
            Ok(text) => Ok(FileText { text }),
            Err(error) => Err(RequestError::from_tool_error(&error)),
        }
    }

    /// Finds the skill of a request by its name or handle, unless the request has its authority.
    fn find_skill(&self, request: &FileRequest) -> Result<NamedSkill, RequestError> {
        if let Some(authority) = request.authority.clone() {
            return Ok(NamedSkill {
                authority,
                package: request.skill.clone(),
            });
        }

        let name = request.skill.strip_suffix("/SKILL.md");
        let name = name.unwrap_or(&request.skill);
        let mut found = self.list()?;
        found.retain(|skill| skill.name == name || skill.package == name);

        match found.as_slice() {
            [skill] => Ok(NamedSkill {
                authority: skill.authority.clone(),
                package: skill.package.clone(),
            }),
            [] => Err(refused(
                "PACKAGE_NOT_FOUND",
                format!("no listed skill has the name or handle {name:?}"),
                "List the skills again.",
            )),
            several => {
                let handles: Vec<_> = several.iter().map(|skill| skill.package.as_str()).collect();
                let message = format!("{name:?} is the name of {} skills", several.len());
                let next = format!("Pass one of {}.", handles.join(", "));
                Err(refused("AMBIGUOUS_NAME", message, &next))
            }
        }
    }
}

fn refused(code: &'static str, message: String, next: &str) -> RequestError {
    RequestError {
        next: Some(next.to_owned()),
        ..RequestError::new(code, message)
    }
}
