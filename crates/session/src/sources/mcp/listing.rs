//! List of a server's skills, fetched page by page, or from the manifests of its resources. Pages, bytes
//! and skills are limited.

use super::connection::{ServerLink, request_reason};
use super::declared_skill::{read_listed_skill, read_manifest_skill};
use super::limits::{
    MAX_CONCURRENT_MANIFESTS, MAX_LISTING_BYTES, MAX_PAGES, MAX_SKILLS, PAGE_TIMEOUT,
};
use super::manifest::{find_manifest_skills, read_manifest};
use crate::SourceKind;
use crate::sources::remote::{ListedSkills, RemoteSkills, SkillListBuilder, SkillOrigin};
use caproot_core::json::{MAX_TREE_MEMORY, estimate_tree_memory};
use futures_util::stream::{self, StreamExt as _};
use rmcp::RoleClient;
use rmcp::model::PaginatedRequestParams;
use rmcp::service::Peer;
use tokio::time::timeout;

/// Returns the origin of the skills of a server.
pub fn skill_origin(peer: &Peer<RoleClient>) -> SkillOrigin {
    match peer.peer_info() {
        Some(info) if info.capabilities.supports_skills() => SkillOrigin::Extension,
        _ => SkillOrigin::Manifest,
    }
}

/// Fetches the list. An unchanged skill of `before` is reused. The messages of the link have the malformed
/// entries of the connection.
pub async fn list_skills(link: &ServerLink, before: &RemoteSkills) -> Result<ListedSkills, String> {
    if skill_origin(&link.peer) == SkillOrigin::Extension {
        list_pages(link, before).await
    } else {
        list_manifests(link, before).await
    }
}

/// Reads the manifests of the skills in the list of resources.
async fn list_manifests(link: &ServerLink, before: &RemoteSkills) -> Result<ListedSkills, String> {
    let found = find_manifest_skills(&link.peer).await?;

    let mut builder = SkillListBuilder::new(before);
    let reads: Vec<_> = found
        .skills
        .iter()
        .map(|listed| async move {
            let files = read_manifest(&link.peer, &listed.directory)
                .await
                .map_err(|error| error.to_string())?;
            read_manifest_skill(&link.server, listed, files)
        })
        .collect();
    let mut reads = stream::iter(reads).buffered(MAX_CONCURRENT_MANIFESTS);
    for listed in &found.skills {
        if let Some(skill) = reads.next().await {
            builder.add_skill(&listed.directory, skill);
        }
    }

    // The skills of a lost server keep their names.
    if link.peer.is_transport_closed() {
        return Err("it ended the connection".to_owned());
    }
    let phrase = SourceKind::Mcp.describe(&link.server);
    let mut listed = builder.finish(&phrase, found.cut_reason.as_deref());
    if found.skills.is_empty() && found.cut_reason.is_none() {
        listed.listing.warnings.push(format!(
            "{phrase} has no skills: it declares no skills extension, and has no manifests of skills"
        ));
    }
    Ok(listed)
}

async fn list_pages(link: &ServerLink, before: &RemoteSkills) -> Result<ListedSkills, String> {
    link.messages.take_omitted();
    let mut builder = SkillListBuilder::new(before);
    let mut bytes = 0;
    // Estimated memory of the fields of the entries that are kept as trees.
    let mut memory = 0;
    let mut cut_reason = Some(format!("it has over {MAX_PAGES} pages"));
    let mut cursor = None;
    'pages: for _ in 0..MAX_PAGES {
        let params = PaginatedRequestParams::default().with_cursor(cursor);
        let page = timeout(PAGE_TIMEOUT, link.peer.list_skills(Some(params)))
            .await
            .map_err(|_| "it does not list its skills in time".to_owned())?
            .map_err(|error| format!("it does not list its skills: {}", request_reason(&error)))?;

        for entry in link.messages.take_omitted() {
            builder.record_invalid(&entry.name, &entry.reason);
        }
        for skill in page.skills {
            bytes += serde_json::to_vec(&skill).map_or(usize::MAX, |json| json.len());
            memory += serde_json::to_vec(&skill.frontmatter.extra)
                .map_or(0, |fields| estimate_tree_memory(&fields));
            let reason = if bytes > MAX_LISTING_BYTES {
                format!("it is over {MAX_LISTING_BYTES} bytes")
            } else if memory > MAX_TREE_MEMORY {
                "its entries have too many values".to_owned()
            } else if builder.skill_count() == MAX_SKILLS {
                format!("it has over {MAX_SKILLS} skills")
            } else {
                let uri = skill.uri.clone();
                builder.add_skill(&uri, read_listed_skill(&link.server, skill));
                continue;
            };
            cut_reason = Some(reason);
            break 'pages;
        }

        cursor = page.next_cursor.filter(|next| !next.is_empty());
        if cursor.is_none() {
            cut_reason = None;
            break;
        }
    }

    let phrase = SourceKind::Mcp.describe(&link.server);
    Ok(builder.finish(&phrase, cut_reason.as_deref()))
}
