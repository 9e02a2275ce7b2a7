//! Current statements of a server about one skill: before a read if the latest statement is too old,
//! and for a skill that no list has.

use super::fetch::{MISSING_FILE_CODES, invalid_response, tool_error};
use super::listing::{ListedSkills, RemoteSkills, list_skills};
use super::manifest::{ManifestError, read_manifest};
use super::messages::ReceivedMessages;
use super::remote_skill::{EntryOrigin, RemoteSkill};
use crate::session::{ToolError, ToolErrorCode};
use rmcp::RoleClient;
use rmcp::model::{ErrorCode, GetSkillRequestParams};
use rmcp::service::{Peer, ServiceError};

/// Statement of a server about a skill.
pub enum SkillStatement {
    /// The server serves the skill with these declarations.
    Served(Box<RemoteSkill>),
    /// The server does not serve the skill.
    Gone,
    /// New list, from a server that makes no statements about single skills.
    Listed(ListedSkills),
}

/// Requests the current statement about a known skill.
pub async fn request_statement(
    server: &str,
    peer: &Peer<RoleClient>,
    known: &RemoteSkill,
    before: &RemoteSkills,
) -> Result<SkillStatement, ToolError> {
    match known.origin {
        EntryOrigin::Extension => {
            if let Some(statement) = get_skill(server, peer, &known.uri).await? {
                return Ok(statement);
            }
            relist(server, peer, before).await
        }
        EntryOrigin::Manifest => get_manifest(server, peer, known).await,
    }
}

/// Requests the skill of a SKILL.md with `skills/get`. Returns `None` if the server has no such
/// method, as in drafts of the extension.
pub async fn get_skill(
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
    let skill = RemoteSkill::from_listed(server, result.skill)
        .map_err(|reason| invalid_response(&format!("the skill is not valid: {reason}")))?;
    Ok(Some(SkillStatement::Served(Box::new(skill))))
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
    let files = match read_manifest(peer, &known.directory).await {
        Ok(files) => files,
        Err(ManifestError::Unreadable(error))
            if error.code() == ToolErrorCode::ResourceNotFound =>
        {
            return Ok(SkillStatement::Gone);
        }
        Err(ManifestError::Unreadable(error)) => return Err(error),
        Err(ManifestError::Invalid(reason)) => return Err(invalid_response(&reason)),
    };

    let skill = RemoteSkill::from_manifest(server, known.to_manifest_skill(), files)
        .map_err(|reason| invalid_response(&format!("the skill is not valid: {reason}")))?;
    Ok(SkillStatement::Served(Box::new(skill)))
}
