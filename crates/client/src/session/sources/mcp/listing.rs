//! List of a server's skills, fetched page by page, or from the manifests of its resources. Pages, bytes
//! and skills are limited. Invalid entries are omitted with a warning.

use super::connection::request_reason;
use super::limits::{
    MAX_CONCURRENT_MANIFESTS, MAX_LISTING_BYTES, MAX_PAGES, MAX_SKILLS, PAGE_TIMEOUT,
};
use super::manifest::{ManifestError, ManifestSkill, find_manifest_skills, read_manifest};
use super::messages::ReceivedMessages;
use super::remote_skill::RemoteSkill;
use crate::session::SourceKind;
use crate::session::sources::SkillListing;
use caproot_core::json::{MAX_TREE_MEMORY, estimate_tree_memory};
use caproot_core::text::quote_value;
use futures_util::stream::{self, StreamExt as _};
use rmcp::RoleClient;
use rmcp::model::PaginatedRequestParams;
use rmcp::service::Peer;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio::time::timeout;

/// Invalid entries that a warning names.
const MAX_REPORTED: usize = 4;

/// Skills of a server by package.
pub type RemoteSkills = HashMap<String, Arc<RemoteSkill>>;

/// List of a server, with the declarations of its skills.
#[derive(Debug, Default)]
pub struct ListedSkills {
    pub listing: SkillListing,
    pub entries: RemoteSkills,
}

/// Origin of the list of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkillOrigin {
    /// `skills/list`: the server declares the skills extension.
    Extension,
    /// Manifests among the resources.
    Manifests,
}

impl SkillOrigin {
    pub fn of_server(peer: &Peer<RoleClient>) -> Self {
        let is_declared = peer
            .peer_info()
            .is_some_and(|info| info.capabilities.supports_skills());
        if is_declared {
            Self::Extension
        } else {
            Self::Manifests
        }
    }
}

/// Fetches the list. An unchanged entry of `before` is reused. `messages` has the malformed entries of the
/// connection.
pub async fn list_skills(
    server: &str,
    peer: &Peer<RoleClient>,
    messages: &ReceivedMessages,
    before: &RemoteSkills,
) -> Result<ListedSkills, String> {
    match SkillOrigin::of_server(peer) {
        SkillOrigin::Extension => list_pages(server, peer, messages, before).await,
        SkillOrigin::Manifests => list_manifests(server, peer, before).await,
    }
}

/// Reads the manifests of the skills in the list of resources.
async fn list_manifests(
    server: &str,
    peer: &Peer<RoleClient>,
    before: &RemoteSkills,
) -> Result<ListedSkills, String> {
    let found = find_manifest_skills(peer).await?;
    let mut builder = ListingBuilder {
        has_no_list: found.skills.is_empty() && found.cut_reason.is_none(),
        ..ListingBuilder::default()
    };

    let reads = found
        .skills
        .into_iter()
        .map(|skill| read_manifest_skill(server, peer, skill));
    let mut reads = stream::iter(reads).buffered(MAX_CONCURRENT_MANIFESTS);
    while let Some(read) = reads.next().await {
        builder.add_entry(&read.uri, read.entry, before);
    }

    // The skills of a lost server keep their names.
    if peer.is_transport_closed() {
        return Err("it ended the connection".to_owned());
    }
    Ok(builder.finish(server, found.cut_reason.as_deref()))
}

/// Skill of a manifest, or the reason for its rejection.
struct ReadSkill {
    uri: String,
    entry: Result<RemoteSkill, String>,
}

async fn read_manifest_skill(
    server: &str,
    peer: &Peer<RoleClient>,
    skill: ManifestSkill,
) -> ReadSkill {
    let uri = skill.directory.clone();
    let entry = read_manifest(peer, &skill.directory)
        .await
        .map_err(ManifestError::into_reason)
        .and_then(|files| RemoteSkill::from_manifest(server, skill, files));
    ReadSkill { uri, entry }
}

async fn list_pages(
    server: &str,
    peer: &Peer<RoleClient>,
    messages: &ReceivedMessages,
    before: &RemoteSkills,
) -> Result<ListedSkills, String> {
    messages.take_omitted();
    let mut builder = ListingBuilder::default();
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
            builder.record_invalid(&entry.name, &entry.reason);
        }
        if let Some(reason) = builder.add_page(server, page.skills, before) {
            return Ok(builder.finish(server, Some(&reason)));
        }
        cursor = page.next_cursor.filter(|next| !next.is_empty());
        if cursor.is_none() {
            return Ok(builder.finish(server, None));
        }
    }

    let reason = format!("it has over {MAX_PAGES} pages");
    Ok(builder.finish(server, Some(&reason)))
}

#[derive(Default)]
struct ListingBuilder {
    bytes: usize,
    /// Estimated memory of the trees in the entries.
    memory: usize,
    /// Entries sorted by name and package.
    entries: BTreeMap<(String, String), Arc<RemoteSkill>>,
    by_package: RemoteSkills,
    invalid: Vec<String>,
    invalid_count: usize,
    dynamic_count: usize,
    /// Whether the server has neither the extension nor manifests.
    has_no_list: bool,
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
            if let Some(reason) = self.take_memory(&skill.frontmatter.extra) {
                return Some(reason);
            }
            if self.by_package.len() == MAX_SKILLS {
                return Some(format!("it has over {MAX_SKILLS} skills"));
            }
            let uri = skill.uri.clone();
            self.add_entry(&uri, RemoteSkill::from_listed(server, skill), before);
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

    /// Adds an entry, or records the reason for its rejection.
    fn add_entry(&mut self, uri: &str, entry: Result<RemoteSkill, String>, before: &RemoteSkills) {
        let entry = match entry {
            Ok(entry) if self.by_package.contains_key(&entry.skill.package) => {
                return self.record_invalid(uri, "it is listed twice");
            }
            Ok(entry) => entry,
            Err(reason) => return self.record_invalid(uri, &reason),
        };
        self.dynamic_count += usize::from(entry.is_dynamic());

        let package = entry.skill.package.clone();
        let entry = match before.get(&package) {
            Some(known) if known.is_same(&entry) => {
                known.confirm();
                known.clone()
            }
            _ => Arc::new(entry),
        };
        self.entries
            .insert((entry.skill.name.clone(), package.clone()), entry.clone());
        self.by_package.insert(package, entry);
    }

    fn record_invalid(&mut self, uri: &str, reason: &str) {
        self.invalid_count += 1;
        if self.invalid.len() < MAX_REPORTED {
            self.invalid.push(format!("{}: {reason}", quote_value(uri)));
        }
    }

    fn finish(self, server: &str, cut_reason: Option<&str>) -> ListedSkills {
        let listing = SkillListing {
            skills: self
                .entries
                .values()
                .map(|entry| entry.skill.clone())
                .collect(),
            warnings: self.describe_problems(server, cut_reason),
            truncated: cut_reason.is_some(),
            reserved_names: Vec::new(),
        };
        ListedSkills {
            listing,
            entries: self.by_package,
        }
    }

    fn describe_problems(&self, server: &str, cut_reason: Option<&str>) -> Vec<String> {
        let phrase = SourceKind::Mcp.describe(server);
        let mut warnings = Vec::new();
        if self.has_no_list {
            warnings.push(format!(
                "{phrase} has no skills: it declares no skills extension, and has no manifests of skills"
            ));
        }
        if let Some(reason) = cut_reason {
            warnings.push(format!("the list of {phrase} is truncated: {reason}"));
        }

        if self.invalid_count > 0 {
            let named = self.invalid.join("; ");
            warnings.push(format!(
                "{} skills of {phrase} are omitted: {named}",
                self.invalid_count
            ));
        }
        if self.dynamic_count > 0 {
            warnings.push(format!(
                "{phrase} declares no digests for {} of its skills",
                self.dynamic_count
            ));
        }
        warnings
    }
}

impl ListedSkills {
    /// Replaces the entry of a package; `None` removes it.
    pub fn replace(&mut self, package: &str, entry: Option<Arc<RemoteSkill>>) {
        self.listing.skills.retain(|skill| skill.package != package);
        self.entries.remove(package);

        if let Some(entry) = entry {
            let skills = &mut self.listing.skills;
            let position = skills.partition_point(|skill| {
                (&skill.name, &skill.package) < (&entry.skill.name, &entry.skill.package)
            });
            skills.insert(position, entry.skill.clone());
            self.entries.insert(package.to_owned(), entry);
        }
    }
}

/// Returns whether two lists have the same entries. An unchanged entry is the same `Arc`.
pub fn is_same_entries(before: &RemoteSkills, after: &RemoteSkills) -> bool {
    before.len() == after.len()
        && after.iter().all(|(package, entry)| {
            before
                .get(package)
                .is_some_and(|known| Arc::ptr_eq(known, entry))
        })
}
