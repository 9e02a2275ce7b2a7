//! Skills of a server without the skills extension, as `FastMCP` serves them: the
//! resource `…/SKILL.md`, next to it the resource `…/_manifest` with the size and the SHA-256 of each
//! file, and a template for the other files (<https://gofastmcp.com/servers/skills>). A resource
//! without a manifest is no skill.

use super::address::{file_uri, is_file_uri, skill_dir};
use super::fetch::{MISSING_FILE_CODES, read_contents};
use super::limits::{
    MAX_LISTING_BYTES, MAX_MANIFEST_BYTES, MAX_MANIFESTS, MAX_PAGES, PAGE_TIMEOUT,
};
use crate::ToolError;
use caproot_core::json::parse_message;
use rmcp::RoleClient;
use rmcp::model::{PaginatedRequestParams, Resource, SkillResource};
use rmcp::service::{Peer, ServiceError};
use serde::Deserialize;
use std::collections::{BTreeMap, HashSet};
use tokio::time::timeout;

/// End of the URI of a manifest.
const MANIFEST_SUFFIX: &str = "/_manifest";

/// Skill with a manifest that is not read yet.
#[derive(Debug)]
pub struct ManifestSkill {
    /// URI of the directory.
    pub directory: String,
    /// Description in the list of resources.
    pub description: String,
}

/// Skills with a manifest in the list of resources.
#[derive(Debug, Default)]
pub struct ManifestSkills {
    pub skills: Vec<ManifestSkill>,
    /// Reason if a limit ended the list.
    pub cut_reason: Option<String>,
}

/// Text of a manifest. Unknown fields are ignored.
#[derive(Deserialize)]
struct ManifestText {
    files: Vec<ManifestFile>,
}

#[derive(Deserialize)]
struct ManifestFile {
    /// Path relative to the skill.
    path: String,
    size: u64,
    /// `sha256:` and the SHA-256.
    hash: String,
}

/// Resources of a list that can belong to skills.
#[derive(Default)]
struct ListedResources {
    bytes: usize,
    /// Descriptions of the SKILL.md files, by directory.
    descriptions: BTreeMap<String, String>,
    /// Directories with a manifest.
    manifests: HashSet<String>,
}

/// Finds the skills with a manifest in the list of resources.
pub async fn find_manifest_skills(peer: &Peer<RoleClient>) -> Result<ManifestSkills, String> {
    let info = peer.peer_info();
    if info.is_none_or(|info| info.capabilities.resources.is_none()) {
        return Ok(ManifestSkills::default());
    }

    let mut resources = ListedResources::default();
    let mut cut_reason = Some(format!("its list of resources has over {MAX_PAGES} pages"));
    let mut cursor = None;
    for _ in 0..MAX_PAGES {
        let params = PaginatedRequestParams::default().with_cursor(cursor);
        let page = match timeout(PAGE_TIMEOUT, peer.list_resources(Some(params)))
            .await
            .map_err(|_| "it does not list its resources in time".to_owned())?
        {
            Ok(page) => page,
            Err(ServiceError::McpError(error)) if MISSING_FILE_CODES.contains(&error.code) => {
                return Ok(ManifestSkills::default());
            }
            Err(error) => return Err(format!("it does not list its resources: {error}")),
        };

        let reason = resources.add_page(page.resources);
        cursor = page.next_cursor.filter(|next| !next.is_empty());
        if reason.is_some() || cursor.is_none() {
            cut_reason = reason;
            break;
        }
    }
    Ok(resources.pair(cut_reason))
}

impl ListedResources {
    /// Adds a page. Returns the reason if a limit ends the list.
    fn add_page(&mut self, page: Vec<Resource>) -> Option<String> {
        for resource in page {
            let description = resource.description.unwrap_or_default();
            self.bytes += resource.uri.len() + description.len();
            if self.bytes > MAX_LISTING_BYTES {
                return Some(format!(
                    "its list of resources is over {MAX_LISTING_BYTES} bytes"
                ));
            }

            if let Some(directory) = skill_dir(&resource.uri) {
                self.descriptions.insert(directory.to_owned(), description);
            } else if let Some(directory) = resource.uri.strip_suffix(MANIFEST_SUFFIX)
                && is_file_uri(&resource.uri)
            {
                self.manifests.insert(directory.to_owned());
            }
        }
        None
    }

    /// Returns the directories with a SKILL.md and a manifest.
    fn pair(self, cut_reason: Option<String>) -> ManifestSkills {
        let mut skills: Vec<_> = self
            .descriptions
            .into_iter()
            .filter(|(directory, _)| self.manifests.contains(directory))
            .map(|(directory, description)| ManifestSkill {
                directory,
                description,
            })
            .collect();

        let is_over = skills.len() > MAX_MANIFESTS;
        skills.truncate(MAX_MANIFESTS);
        ManifestSkills {
            skills,
            cut_reason: cut_reason
                .or_else(|| is_over.then(|| format!("it has over {MAX_MANIFESTS} skills"))),
        }
    }
}

/// Reads the manifest of a skill. Returns the files, or the reason for the rejection of the skill.
pub async fn read_manifest(
    peer: &Peer<RoleClient>,
    directory: &str,
) -> Result<Vec<SkillResource>, ManifestError> {
    let uri = format!("{directory}{MANIFEST_SUFFIX}");
    let bytes = timeout(PAGE_TIMEOUT, read_contents(peer, &uri, MAX_MANIFEST_BYTES))
        .await
        .map_err(|_| ManifestError::Invalid("its manifest does not arrive in time".to_owned()))?
        .map_err(ManifestError::Unreadable)?;

    let text: ManifestText = parse_message(&bytes)
        .await
        .map_err(|error| ManifestError::Invalid(format!("its manifest is invalid: {error}")))?;
    Ok(text
        .files
        .into_iter()
        .map(|file| SkillResource::new(file_uri(directory, &file.path), file.hash, file.size))
        .collect())
}

/// Reason for no files of a manifest; the end of a sentence about the skill.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The server does not return the manifest.
    #[error("its manifest cannot be read: {}", .0.sentence())]
    Unreadable(ToolError),
    #[error("{0}")]
    Invalid(String),
}
