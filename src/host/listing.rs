//! Asks a server for its whole list of skills, page by page, bounded in pages, bytes and skills. Reads no
//! file. What of a list cannot be used is left out, and said.

use super::entry::Entry;
use super::limits::{MAX_LISTING_BYTES, MAX_PAGES, MAX_SKILLS, PAGE_TIME};
use crate::session::SourceKind;
use crate::session::source::Listing;
use rmcp::RoleClient;
use rmcp::model::PaginatedRequestParams;
use rmcp::service::Peer;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio::time::timeout;

/// The most entries that are named with what is wrong with them.
const MAX_NAMED: usize = 4;

/// What a server lists, by package.
pub(super) type Entries = HashMap<String, Arc<Entry>>;

/// The list, and the entries behind it. Entries that the server says the same of stay those of `before`.
pub(super) async fn list(
    server: &str,
    peer: &Peer<RoleClient>,
    before: &Entries,
) -> Result<(Listing, Entries), String> {
    let mut list = List::default();
    let (mut cursor, mut pages) = (None, 0);
    let cut = loop {
        if pages == MAX_PAGES {
            break Some(format!("it has over {MAX_PAGES} pages"));
        }
        let params = PaginatedRequestParams::default().with_cursor(cursor.take());
        let page = timeout(PAGE_TIME, peer.list_skills(Some(params))).await;
        let page = page.map_err(|_| "it does not list its skills in time".to_owned())?;
        let page = page.map_err(|error| format!("it does not list its skills: {error}"))?;
        pages += 1;
        if let Some(why) = list.add(server, page.skills, before) {
            break Some(why);
        }
        match page.next_cursor {
            Some(next) if !next.is_empty() => cursor = Some(next),
            _ => break None,
        }
    };
    Ok(list.end(server, cut.as_deref()))
}

#[derive(Default)]
struct List {
    bytes: usize,
    /// By name, then by package.
    entries: BTreeMap<(String, String), Arc<Entry>>,
    by_package: Entries,
    bad: Vec<String>,
    bad_count: usize,
    dynamic: usize,
}

impl List {
    /// Adds a page; why no more is asked for, if there is a reason.
    fn add(
        &mut self,
        server: &str,
        skills: Vec<rmcp::model::Skill>,
        before: &Entries,
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
            match Entry::of(server, skill) {
                Ok(entry) if self.by_package.contains_key(&entry.skill.package) => {
                    self.bad(&uri, "it is there twice");
                }
                Ok(entry) => {
                    self.dynamic += usize::from(entry.is_dynamic());
                    let package = entry.skill.package.clone();
                    let known = before.get(&package).filter(|known| known.is_as(&entry)).cloned();
                    let entry = known.unwrap_or_else(|| Arc::new(entry));
                    self.entries.insert((entry.skill.name.clone(), package.clone()), entry.clone());
                    self.by_package.insert(package, entry);
                }
                Err(why) => self.bad(&uri, &why),
            }
        }
        None
    }

    fn bad(&mut self, uri: &str, why: &str) {
        self.bad_count += 1;
        if self.bad.len() < MAX_NAMED {
            let uri: String = uri.chars().take(80).collect();
            self.bad.push(format!("{uri:?}: {why}"));
        }
    }

    fn end(self, server: &str, cut: Option<&str>) -> (Listing, Entries) {
        let who = SourceKind::Mcp.phrase(server);
        let mut warnings = Vec::new();
        if let Some(why) = cut {
            warnings.push(format!("the list of {who} is cut: {why}"));
        }
        if self.bad_count > 0 {
            let (count, named) = (self.bad_count, self.bad.join("; "));
            warnings.push(format!("{count} skills of {who} are left out: {named}"));
        }
        if self.dynamic > 0 {
            let count = self.dynamic;
            warnings.push(format!("{who} vouches for no file of {count} of its skills"));
        }
        let skills = self.entries.values().map(|entry| entry.skill.clone()).collect();
        (Listing { skills, warnings, truncated: cut.is_some() }, self.by_package)
    }
}
