//! Current statements of a server about one skill: before a read if the latest statement is too old,
//! and for a skill that no list has.

use super::address::handle_to_uri;
use super::connection::ServerLink;
use super::declared_skill::{directory_uri, read_listed_skill, read_manifest_skill};
use super::fetch::{MISSING_FILE_CODES, invalid_response, tool_error};
use super::listing::{list_skills, skill_origin};
use super::manifest::{ManifestError, ManifestSkill, read_manifest};
use crate::sources::remote::{MAIN_FILE, RemoteSkill, RemoteSkills, SkillOrigin, SkillStatement};
use crate::{ToolError, ToolErrorCode};
use rmcp::model::{ErrorCode, GetSkillRequestParams};
use rmcp::service::ServiceError;
use std::sync::Arc;

/// Requests the current statement about a skill, which may be known. Returns `None` if the list is the only
/// statement.
pub async fn request_statement(
    link: &ServerLink,
    package: &str,
    known: Option<&RemoteSkill>,
    before: &RemoteSkills,
) -> Result<Option<SkillStatement>, ToolError> {
    let Some(known) = known else {
        // A host must be able to use a skill that no list has by its URI, because a list may be partial.
        return match handle_to_uri(&format!("{package}/{MAIN_FILE}")) {
            Some(uri) if skill_origin(&link.peer) == SkillOrigin::Extension => {
                get_skill(link, &uri).await
            }
            _ => Ok(None),
        };
    };

    if known.declared.origin == SkillOrigin::Manifest {
        return get_manifest(link, known).await.map(Some);
    }
    if let Some(statement) = get_skill(link, &known.declared.location).await? {
        return Ok(Some(statement));
    }

    // The malformed entries of this list are not reported.
    let link = ServerLink {
        messages: Arc::default(),
        ..link.clone()
    };
    match list_skills(&link, before).await {
        Ok(listed) => Ok(Some(SkillStatement::Listed(listed))),
        Err(reason) => Err(ToolError::from_code(
            ToolErrorCode::SourceUnavailable,
            &format!("the MCP server {reason}"),
        )),
    }
}

/// Requests the skill of a SKILL.md with `skills/get`. Returns `None` if the server has no such
/// method, as in drafts of the extension.
async fn get_skill(link: &ServerLink, uri: &str) -> Result<Option<SkillStatement>, ToolError> {
    let result = match link.peer.get_skill(GetSkillRequestParams::new(uri)).await {
        Ok(result) => result,
        Err(ServiceError::McpError(error)) if error.code == ErrorCode::METHOD_NOT_FOUND => {
            return Ok(None);
        }
        Err(ServiceError::McpError(error)) if MISSING_FILE_CODES.contains(&error.code) => {
            return Ok(Some(SkillStatement::Gone));
        }
        Err(error) => return Err(tool_error(&error)),
    };

    if result.skill.uri != uri {
        return Err(invalid_response("it returns another skill"));
    }
    served_skill(read_listed_skill(&link.server, result.skill)).map(Some)
}

fn served_skill(skill: Result<RemoteSkill, String>) -> Result<SkillStatement, ToolError> {
    match skill {
        Ok(skill) => Ok(SkillStatement::Served(Box::new(skill))),
        Err(reason) => Err(invalid_response(&format!(
            "the skill is not valid: {reason}"
        ))),
    }
}

async fn get_manifest(link: &ServerLink, known: &RemoteSkill) -> Result<SkillStatement, ToolError> {
    let listed = ManifestSkill {
        directory: directory_uri(known).to_owned(),
        description: known.declared_description().to_owned(),
    };
    match read_manifest(&link.peer, &listed.directory).await {
        Ok(files) => served_skill(read_manifest_skill(&link.server, &listed, files)),
        Err(ManifestError::Unreadable(error))
            if error.code() == ToolErrorCode::ResourceNotFound =>
        {
            Ok(SkillStatement::Gone)
        }
        Err(ManifestError::Unreadable(error)) => Err(error),
        Err(ManifestError::Invalid(reason)) => Err(invalid_response(&reason)),
    }
}
