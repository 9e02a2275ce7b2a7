//! Index of a server that does not declare the skills extension: the resource `skill://index.json`
//! of earlier drafts of the extension. An index has names, descriptions and URIs, seldom digests,
//! and never the files of a skill.

use super::fetch::read_contents;
use super::limits::{MAX_LISTING_BYTES, PAGE_TIMEOUT};
use crate::session::ToolErrorCode;
use caproot_core::text::quote_value;
use rmcp::RoleClient;
use rmcp::service::Peer;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::time::timeout;

/// URI of the index.
pub const INDEX_URI: &str = "skill://index.json";

#[derive(Deserialize)]
struct SkillIndex {
    skills: Vec<Value>,
}

/// Entry of an index. Unknown fields are ignored.
#[derive(Debug, Deserialize)]
pub struct IndexEntry {
    /// `skill-md` or absent for a skill; other types are not supported.
    #[serde(default)]
    pub r#type: Option<String>,
    #[serde(alias = "uri")]
    pub url: String,
    /// `sha256:` and the SHA-256 of the SKILL.md.
    #[serde(default)]
    pub digest: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    frontmatter: Option<IndexFrontmatter>,
}

/// Fields of a skill's frontmatter.
#[derive(Debug, Clone, Deserialize)]
pub struct IndexFrontmatter {
    pub name: String,
    pub description: String,
    /// All other fields.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Entry that cannot be read.
#[derive(Debug)]
pub struct InvalidIndexEntry {
    pub url: String,
    pub reason: String,
}

impl IndexEntry {
    /// Parses an entry.
    pub fn parse(entry: Value) -> Result<Self, InvalidIndexEntry> {
        let url = entry["url"]
            .as_str()
            .or(entry["uri"].as_str())
            .unwrap_or_default()
            .to_owned();
        serde_json::from_value(entry).map_err(|error| InvalidIndexEntry {
            url,
            reason: error.to_string(),
        })
    }

    /// Returns the frontmatter of a skill, or the reason for its rejection.
    pub fn frontmatter(&self) -> Result<IndexFrontmatter, String> {
        if let Some(kind) = self.r#type.as_deref().filter(|kind| *kind != "skill-md") {
            return Err(format!("its type {} is not supported", quote_value(kind)));
        }
        if let Some(frontmatter) = &self.frontmatter {
            return Ok(frontmatter.clone());
        }

        Ok(IndexFrontmatter {
            name: self.name.clone().ok_or("it has no name")?,
            description: self.description.clone().unwrap_or_default(),
            extra: Map::new(),
        })
    }
}

/// Reads the entries of the index. Returns `None` if the server has no index.
pub async fn read_index(peer: &Peer<RoleClient>) -> Result<Option<Vec<Value>>, String> {
    let info = peer.peer_info();
    if info.is_none_or(|info| info.capabilities.resources.is_none()) {
        return Ok(None);
    }

    let read = read_contents(peer, INDEX_URI, MAX_LISTING_BYTES as u64);
    let bytes = match timeout(PAGE_TIMEOUT, read).await {
        Err(_) => return Err(format!("it does not return {INDEX_URI} in time")),
        Ok(Err(error)) if error.code() == ToolErrorCode::ResourceNotFound => return Ok(None),
        Ok(Err(error)) => return Err(format!("{INDEX_URI} cannot be read: {}", error.sentence())),
        Ok(Ok(bytes)) => bytes,
    };

    let index: SkillIndex = serde_json::from_slice(&bytes)
        .map_err(|error| format!("{INDEX_URI} is not an index of skills: {error}"))?;
    Ok(Some(index.skills))
}
