//! Current statements of a server about one skill: before a read if the latest statement is too old,
//! and for a skill that no list has.

use super::address::handle_to_uri;
use super::declared_skill::{directory_uri, read_listed_skill, read_manifest_skill};
use super::fetch::{MISSING_FILE_CODES, invalid_response, tool_error};
use super::listing::{list_skills, skill_origin};
use super::manifest::{ManifestError, ManifestSkill, read_manifest};
use super::messages::ReceivedMessages;
use crate::sources::remote::{MAIN_FILE, RemoteSkill, RemoteSkills, SkillOrigin, SkillStatement};
use crate::{ToolError, ToolErrorCode};
use rmcp::RoleClient;
use rmcp::model::{ErrorCode, GetSkillRequestParams};
use rmcp::service::{Peer, ServiceError};

/// Requests the current statement about a known skill.
pub async fn request_known(
    server: &str,
    peer: &Peer<RoleClient>,
    known: &RemoteSkill,
    before: &RemoteSkills,
) -> Result<SkillStatement, ToolError> {
    if known.origin == SkillOrigin::Manifest {
        return get_manifest(server, peer, known).await;
    }
    match get_skill(server, peer, &known.location).await? {
        Some(statement) => Ok(statement),
        None => relist(server, peer, before).await,
    }
}

/// Requests a skill that no list has. A host must be able to use such a skill by its URI, because a list
/// may be partial.
pub async fn request_unlisted(
    server: &str,
    peer: &Peer<RoleClient>,
    package: &str,
) -> Result<Option<SkillStatement>, ToolError> {
    let is_declared = skill_origin(peer) == SkillOrigin::Extension;
    let uri = handle_to_uri(&format!("{package}/{MAIN_FILE}"));
    match uri.filter(|_| is_declared) {
        Some(uri) => get_skill(server, peer, &uri).await,
        None => Ok(None),
    }
}

/// Requests the skill of a SKILL.md with `skills/get`. Returns `None` if the server has no such
/// method, as in drafts of the extension.
async fn get_skill(
    server: &str,
    peer: &Peer<RoleClient>,
    uri: &str,
) -> Result<Option<SkillStatement>, ToolError> {
    let result = match peer.get_skill(GetSkillRequestParams::new(uri)).await {
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
    served_skill(read_listed_skill(server, result.skill)).map(Some)
}

fn served_skill(skill: Result<RemoteSkill, String>) -> Result<SkillStatement, ToolError> {
    let skill =
        skill.map_err(|reason| invalid_response(&format!("the skill is not valid: {reason}")))?;
    Ok(SkillStatement::Served(Box::new(skill)))
}

async fn relist(
    server: &str,
    peer: &Peer<RoleClient>,
    before: &RemoteSkills,
) -> Result<SkillStatement, ToolError> {
    let listed = list_skills(server, peer, &ReceivedMessages::default(), before).await;
    listed.map(SkillStatement::Listed).map_err(|reason| {
        let message = format!("the MCP server {reason}");
        ToolError::from_code(ToolErrorCode::SourceUnavailable, &message)
    })
}

async fn get_manifest(
    server: &str,
    peer: &Peer<RoleClient>,
    known: &RemoteSkill,
) -> Result<SkillStatement, ToolError> {
    let files = match read_manifest(peer, directory_uri(known)).await {
        Ok(files) => files,
        Err(ManifestError::Unreadable(error))
            if error.code() == ToolErrorCode::ResourceNotFound =>
        {
            return Ok(SkillStatement::Gone);
        }
        Err(ManifestError::Unreadable(error)) => return Err(error),
        Err(ManifestError::Invalid(reason)) => return Err(invalid_response(&reason)),
    };

    let listed = ManifestSkill {
        directory: directory_uri(known).to_owned(),
        description: known.declared_description().to_owned(),
    };
    served_skill(read_manifest_skill(server, listed, files))
}
