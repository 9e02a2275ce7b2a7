//! List of a server's skills, fetched page by page, or from the manifests of its resources. Pages, bytes
//! and skills are limited.

use super::connection::request_reason;
use super::declared_skill::{read_listed_skill, read_manifest_skill};
use super::limits::{
    MAX_CONCURRENT_MANIFESTS, MAX_LISTING_BYTES, MAX_PAGES, MAX_SKILLS, PAGE_TIMEOUT,
};
use super::manifest::{ManifestError, ManifestSkill, find_manifest_skills, read_manifest};
use super::messages::ReceivedMessages;
use crate::SourceKind;
use crate::sources::remote::{
    ListedSkills, RemoteSkill, RemoteSkills, SkillListBuilder, SkillOrigin,
};
use caproot_core::json::{MAX_TREE_MEMORY, estimate_tree_memory};
use futures_util::stream::{self, StreamExt as _};
use rmcp::RoleClient;
use rmcp::model::PaginatedRequestParams;
use rmcp::service::Peer;
use serde_json::{Map, Value};
use tokio::time::timeout;

/// Returns the origin of the skills of a server.
pub fn skill_origin(peer: &Peer<RoleClient>) -> SkillOrigin {
    let is_declared = peer
        .peer_info()
        .is_some_and(|info| info.capabilities.supports_skills());
    if is_declared {
        SkillOrigin::Extension
    } else {
        SkillOrigin::Manifest
    }
}

/// Fetches the list. An unchanged skill of `before` is reused. `messages` has the malformed entries of the
/// connection.
pub async fn list_skills(
    server: &str,
    peer: &Peer<RoleClient>,
    messages: &ReceivedMessages,
    before: &RemoteSkills,
) -> Result<ListedSkills, String> {
    if skill_origin(peer) == SkillOrigin::Extension {
        list_pages(server, peer, messages, before).await
    } else {
        list_manifests(server, peer, before).await
    }
}

/// Reads the manifests of the skills in the list of resources.
async fn list_manifests(
    server: &str,
    peer: &Peer<RoleClient>,
    before: &RemoteSkills,
) -> Result<ListedSkills, String> {
    let found = find_manifest_skills(peer).await?;
    let has_no_list = found.skills.is_empty() && found.cut_reason.is_none();

    let mut builder = SkillListBuilder::new(before);
    let reads = found
        .skills
        .into_iter()
        .map(|skill| read_skill(server, peer, skill));
    let mut reads = stream::iter(reads).buffered(MAX_CONCURRENT_MANIFESTS);
    while let Some(read) = reads.next().await {
        builder.add_skill(&read.directory, read.skill);
    }

    // The skills of a lost server keep their names.
    if peer.is_transport_closed() {
        return Err("it ended the connection".to_owned());
    }
    let phrase = SourceKind::Mcp.describe(server);
    let mut listed = builder.finish(&phrase, found.cut_reason.as_deref());
    if has_no_list {
        let problem = "it declares no skills extension, and has no manifests of skills";
        let warnings = &mut listed.listing.warnings;
        warnings.push(format!("{phrase} has no skills: {problem}"));
    }
    Ok(listed)
}

/// Skill of a manifest, or the reason for its rejection.
struct ReadSkill {
    /// URI of the directory.
    directory: String,
    skill: Result<RemoteSkill, String>,
}

async fn read_skill(server: &str, peer: &Peer<RoleClient>, listed: ManifestSkill) -> ReadSkill {
    let directory = listed.directory.clone();
    let skill = read_manifest(peer, &directory)
        .await
        .map_err(ManifestError::into_reason)
        .and_then(|files| read_manifest_skill(server, listed, files));
    ReadSkill { directory, skill }
}

async fn list_pages(
    server: &str,
    peer: &Peer<RoleClient>,
    messages: &ReceivedMessages,
    before: &RemoteSkills,
) -> Result<ListedSkills, String> {
    messages.take_omitted();
    let mut pages = ListPages {
        bytes: 0,
        memory: 0,
        builder: SkillListBuilder::new(before),
    };
    let phrase = SourceKind::Mcp.describe(server);
    let mut cursor = None;
    for _ in 0..MAX_PAGES {
        let params = PaginatedRequestParams::default().with_cursor(cursor);
        let page = timeout(PAGE_TIMEOUT, peer.list_skills(Some(params)))
            .await
            .map_err(|_| "it does not list its skills in time".to_owned())?
            .map_err(|error| {
                let reason = request_reason(&error);
                format!("it does not list its skills: {reason}")
            })?;

        for entry in messages.take_omitted() {
            pages.builder.record_invalid(&entry.name, &entry.reason);
        }
        if let Some(reason) = pages.add_page(server, page.skills) {
            return Ok(pages.builder.finish(&phrase, Some(&reason)));
        }
        cursor = page.next_cursor.filter(|next| !next.is_empty());
        if cursor.is_none() {
            return Ok(pages.builder.finish(&phrase, None));
        }
    }

    let reason = format!("it has over {MAX_PAGES} pages");
    Ok(pages.builder.finish(&phrase, Some(&reason)))
}

/// Pages of a list within their limits.
struct ListPages<'a> {
    bytes: usize,
    /// Estimated memory of the trees in the entries.
    memory: usize,
    builder: SkillListBuilder<'a>,
}

impl ListPages<'_> {
    /// Adds a page. Returns the reason if a limit ends the list.
    fn add_page(&mut self, server: &str, skills: Vec<rmcp::model::Skill>) -> Option<String> {
        for skill in skills {
            self.bytes += serde_json::to_vec(&skill).map_or(usize::MAX, |json| json.len());
            if self.bytes > MAX_LISTING_BYTES {
                return Some(format!("it is over {MAX_LISTING_BYTES} bytes"));
            }
            if let Some(reason) = self.take_memory(&skill.frontmatter.extra) {
                return Some(reason);
            }
            if self.builder.skill_count() == MAX_SKILLS {
                return Some(format!("it has over {MAX_SKILLS} skills"));
            }
            let uri = skill.uri.clone();
            self.builder
                .add_skill(&uri, read_listed_skill(server, skill));
        }
        None
    }

    /// Takes the memory of the fields of an entry that are kept as a tree. Returns the reason if the limit
    /// ends the list.
    fn take_memory(&mut self, fields: &Map<String, Value>) -> Option<String> {
        let text = serde_json::to_vec(fields);
        self.memory += text.map_or(0, |text| estimate_tree_memory(&text));
        let is_over = self.memory > MAX_TREE_MEMORY;
        is_over.then(|| "its entries have too many values".to_owned())
    }
}
