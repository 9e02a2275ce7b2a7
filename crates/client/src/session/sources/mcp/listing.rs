//! List of a server's skills, fetched page by page, or read from the server's index. Pages, bytes
//! and skills are limited. Invalid entries are omitted with a warning.

use super::index::{INDEX_URI, IndexEntry, read_index};
use super::limits::{MAX_LISTING_BYTES, MAX_PAGES, MAX_SKILLS, PAGE_TIMEOUT};
use super::remote_skill::RemoteSkill;
use crate::session::SourceKind;
use crate::session::sources::SkillListing;
use caproot_core::text::quote_value;
use rmcp::RoleClient;
use rmcp::model::PaginatedRequestParams;
use rmcp::service::Peer;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio::time::timeout;

/// Invalid entries that a warning names.
const MAX_REPORTED: usize = 4;

/// Skills of a server by package.
pub type RemoteSkills = HashMap<String, Arc<RemoteSkill>>;

/// Origin of the list of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkillOrigin {
    /// `skills/list`: the server declares the skills extension.
    Extension,
    /// The resource `skill://index.json`, if it exists.
    Index,
}

impl SkillOrigin {
    pub fn of_server(peer: &Peer<RoleClient>) -> Self {
        let is_declared = peer
            .peer_info()
            .is_some_and(|info| info.capabilities.supports_skills());
        if is_declared {
            Self::Extension
        } else {
            Self::Index
        }
    }
}

/// Fetches the list. An unchanged entry of `before` is reused.
pub async fn list_skills(
    server: &str,
    peer: &Peer<RoleClient>,
    before: &RemoteSkills,
) -> Result<(SkillListing, RemoteSkills), String> {
    match SkillOrigin::of_server(peer) {
        SkillOrigin::Extension => list_pages(server, peer, before).await,
        SkillOrigin::Index => list_index(server, peer, before).await,
    }
}

/// Reads the index of a server. A server without an index has no skills, and a warning says so.
async fn list_index(
    server: &str,
    peer: &Peer<RoleClient>,
    before: &RemoteSkills,
) -> Result<(SkillListing, RemoteSkills), String> {
    let mut builder = ListingBuilder::default();
    let Some(entries) = read_index(peer).await? else {
        let phrase = SourceKind::Mcp.describe(server);
        let warning = format!(
            "{phrase} has no skills: it declares no skills extension and has no {INDEX_URI}"
        );
        let listing = SkillListing {
            warnings: vec![warning],
            ..SkillListing::default()
        };
        return Ok((listing, RemoteSkills::new()));
    };
    let cut_reason =
        (entries.len() > MAX_SKILLS).then(|| format!("it has over {MAX_SKILLS} skills"));
    for entry in entries.into_iter().take(MAX_SKILLS) {
        match IndexEntry::parse(entry) {
            Ok(entry) => {
                let url = entry.url.clone();
                builder.add_entry(&url, RemoteSkill::from_index(server, entry), before);
            }
            Err((url, reason)) => builder.record_invalid(&url, &reason),
        }
    }
    Ok(builder.finish(server, cut_reason.as_deref()))
}

async fn list_pages(
    server: &str,
    peer: &Peer<RoleClient>,
    before: &RemoteSkills,
) -> Result<(SkillListing, RemoteSkills), String> {
    let mut builder = ListingBuilder::default();
    let (mut cursor, mut pages) = (None, 0);
    let cut_reason = loop {
        if pages == MAX_PAGES {
            break Some(format!("it has over {MAX_PAGES} pages"));
        }
        let params = PaginatedRequestParams::default().with_cursor(cursor.take());
        let page = timeout(PAGE_TIMEOUT, peer.list_skills(Some(params))).await;
        let page = page.map_err(|_| "it does not list its skills in time".to_owned())?;
        let page = page.map_err(|error| format!("it does not list its skills: {error}"))?;
        pages += 1;
        if let Some(reason) = builder.add_page(server, page.skills, before) {
            break Some(reason);
        }
        match page.next_cursor {
            Some(next) if !next.is_empty() => cursor = Some(next),
            _ => break None,
        }
    };
    Ok(builder.finish(server, cut_reason.as_deref()))
}

#[derive(Default)]
struct ListingBuilder {
    bytes: usize,
    /// Entries sorted by name and package.
    entries: BTreeMap<(String, String), Arc<RemoteSkill>>,
    by_package: RemoteSkills,
    invalid: Vec<String>,
    invalid_count: usize,
    dynamic_count: usize,
}

impl ListingBuilder {
    /// Adds a page. Returns the reason if a limit ends the list.
    fn add_page(
        &mut self,
        server: &str,
        skills: Vec<rmcp::model::Skill>,
        before: &RemoteSkills,
    ) -> Option<String> {
        for skill in skills {
            self.bytes += serde_json::to_vec(&skill).map_or(usize::MAX, |json| json.len());
            if self.bytes > MAX_LISTING_BYTES {
                return Some(format!("it is over {MAX_LISTING_BYTES} bytes"));
            }
            if self.by_package.len() == MAX_SKILLS {
                return Some(format!("it has over {MAX_SKILLS} skills"));
            }
            let uri = skill.uri.clone();
            self.add_entry(&uri, RemoteSkill::from_listed(server, skill), before);
        }
        None
    }

    /// Adds an entry, or records the reason for its rejection.
    fn add_entry(&mut self, uri: &str, entry: Result<RemoteSkill, String>, before: &RemoteSkills) {
        match entry {
            Ok(entry) if self.by_package.contains_key(&entry.skill.package) => {
                self.record_invalid(uri, "it is listed twice");
            }
            Ok(entry) => {
                self.dynamic_count += usize::from(entry.is_dynamic());
                let package = entry.skill.package.clone();
                let known = before
                    .get(&package)
                    .filter(|known| known.is_same(&entry))
                    .cloned();
                let entry = known.unwrap_or_else(|| Arc::new(entry));
                self.entries
                    .insert((entry.skill.name.clone(), package.clone()), entry.clone());
                self.by_package.insert(package, entry);
            }
            Err(reason) => self.record_invalid(uri, &reason),
        }
    }

    fn record_invalid(&mut self, uri: &str, reason: &str) {
        self.invalid_count += 1;
        if self.invalid.len() < MAX_REPORTED {
            self.invalid.push(format!("{}: {reason}", quote_value(uri)));
        }
    }

    fn finish(self, server: &str, cut_reason: Option<&str>) -> (SkillListing, RemoteSkills) {
        let phrase = SourceKind::Mcp.describe(server);
        let mut warnings = Vec::new();
        if let Some(reason) = cut_reason {
            warnings.push(format!("the list of {phrase} is truncated: {reason}"));
        }
        if self.invalid_count > 0 {
            let (count, named) = (self.invalid_count, self.invalid.join("; "));
            warnings.push(format!("{count} skills of {phrase} are omitted: {named}"));
        }
        if self.dynamic_count > 0 {
            let count = self.dynamic_count;
            warnings.push(format!(
                "{phrase} declares no digests for {count} of its skills"
            ));
        }
        let skills = self
            .entries
            .values()
            .map(|entry| entry.skill.clone())
            .collect();
        (
            SkillListing {
                skills,
                warnings,
                truncated: cut_reason.is_some(),
            },
            self.by_package,
        )
    }
}
