//! Index of a server that does not declare the skills extension: the resource `skill://index.json`
//! of earlier drafts of the extension. An index has names, descriptions and URIs, seldom digests,
//! and never the files of a skill.

use super::fetch::read_contents;
use super::limits::{MAX_LISTING_BYTES, PAGE_TIMEOUT};
use crate::session::ToolErrorCode;
use caproot_core::json::ListEntry;
use caproot_core::text::quote_value;
use rmcp::RoleClient;
use rmcp::service::Peer;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::time::timeout;

/// URI of the index.
pub const INDEX_URI: &str = "skill://index.json";

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
    pub fn parse(entry: ListEntry<'_>) -> Result<Self, InvalidIndexEntry> {
        entry.parse().map_err(|error| {
            let url = entry.text_field("url");
            InvalidIndexEntry {
                url: if url.is_empty() {
                    entry.text_field("uri")
                } else {
                    url
                },
                reason: error.to_string(),
            }
        })
    }

    /// Returns the fields of the frontmatter that are kept as a tree.
    pub fn extra_fields(&self) -> Option<&Map<String, Value>> {
        self.frontmatter.as_ref().map(|fields| &fields.extra)
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

/// Reads the text of the index. Returns `None` if the server has no index.
pub async fn read_index(peer: &Peer<RoleClient>) -> Result<Option<Vec<u8>>, String> {
    let info = peer.peer_info();
    if info.is_none_or(|info| info.capabilities.resources.is_none()) {
        return Ok(None);
    }

    let read = read_contents(peer, INDEX_URI, MAX_LISTING_BYTES as u64);
    match timeout(PAGE_TIMEOUT, read).await {
        Err(_) => Err(format!("it does not return {INDEX_URI} in time")),
        Ok(Err(error)) if error.code() == ToolErrorCode::ResourceNotFound => Ok(None),
        Ok(Err(error)) => Err(format!("{INDEX_URI} cannot be read: {}", error.sentence())),
        Ok(Ok(bytes)) => Ok(Some(bytes)),
    }
}
