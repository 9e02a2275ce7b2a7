//! Index of a site, as the Agent Skills discovery format has it
//! (<https://schemas.agentskills.io/discovery/0.2.0/schema.json>): each entry has the `url` and the
//! `digest` of a SKILL.md. Archives are refused.

use super::limits::{MAX_DESCRIPTION_CHARS, MAX_SKILLS};
use crate::session::SourceKind;
use crate::session::ToolError;
use crate::session::sources::SkillListing;
use caproot_core::json::ListEntries;
use caproot_core::proto::caproot::v1::{Authority, Skill};
use caproot_core::text::{quote_value, single_line, truncate_chars};
use caproot_core::wire::is_digest;
use reqwest::Url;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

/// Name of the file that each skill has.
pub const MAIN_FILE: &str = "SKILL.md";
/// Invalid entries that a warning names.
const MAX_REPORTED: usize = 4;

/// Entry of an index. Unknown fields are ignored.
#[derive(Deserialize)]
struct SiteEntry {
    name: String,
    #[serde(default)]
    description: String,
    r#type: Option<String>,
    url: String,
    digest: String,
}

/// Skill of a site.
#[derive(Debug)]
pub struct SiteSkill {
    pub skill: Arc<Skill>,
    /// Declared fields of the frontmatter.
    pub frontmatter: Map<String, Value>,
    /// Files by handle.
    pub files: BTreeMap<String, DeclaredSiteFile>,
    /// Error of a failed verification. Once set, no file of the skill is read.
    pub rejection: OnceLock<ToolError>,
}

/// File that a site declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredSiteFile {
    pub url: Url,
    /// `sha256:` and the SHA-256 of the file.
    pub digest: String,
}

/// Skills of a site by package.
pub type SiteSkills = HashMap<String, Arc<SiteSkill>>;

/// List of a site.
#[derive(Debug, Default)]
pub struct ListedSite {
    pub listing: SkillListing,
    pub skills: SiteSkills,
}

/// Location of a site.
#[derive(Debug, Clone)]
pub struct SiteLocation {
    /// Host, and the port if it is not the default port. The id of the authority.
    pub id: String,
    /// URL of the index.
    pub index: Url,
}

impl SiteSkill {
    fn is_same(&self, other: &Self) -> bool {
        self.skill == other.skill && self.files == other.files
    }

    /// Returns the skill of an entry, or the reason for its rejection.
    fn from_entry(site: &SiteLocation, entry: SiteEntry) -> Result<Self, String> {
        if !is_skill_name(&entry.name) {
            return Err("its name is not 1 to 64 of a-z, 0-9 and single hyphens".to_owned());
        }
        if let Some(kind) = entry.r#type.as_deref().filter(|kind| *kind != "skill-md") {
            return Err(format!("its type {} is not supported", quote_value(kind)));
        }

        if !is_digest(&entry.digest) {
            return Err("its digest is not a SHA-256".to_owned());
        }

        let package = format!("site://{}/{}", site.id, entry.name);
        let main_resource = format!("{package}/{MAIN_FILE}");
        let file = DeclaredSiteFile {
            url: main_file_url(site, &entry.url)?,
            digest: entry.digest.clone(),
        };

        let description = single_line(&entry.description);
        let skill = Skill {
            authority: Some(Authority {
                kind: SourceKind::Site.name().to_owned(),
                id: site.id.clone(),
            }),
            package,
            name: entry.name.clone(),
            description: truncate_chars(&description, MAX_DESCRIPTION_CHARS).to_owned(),
            digest: entry.digest,
            user_invocable: true,
            main_resource: main_resource.clone(),
            ..Skill::default()
        };
        let frontmatter = [("name", entry.name), ("description", entry.description)];
        let frontmatter = frontmatter.map(|(key, text)| (key.to_owned(), Value::String(text)));
        Ok(Self {
            skill: Arc::new(skill),
            frontmatter: frontmatter.into_iter().collect(),
            files: BTreeMap::from([(main_resource, file)]),
            rejection: OnceLock::new(),
        })
    }
}

/// Returns whether the Agent Skills format allows a name.
fn is_skill_name(name: &str) -> bool {
    let is_plain = name
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    let has_stray_hyphen = name.starts_with('-') || name.ends_with('-') || name.contains("--");
    is_plain && !has_stray_hyphen && (1..=64).contains(&name.len())
}

/// Returns the URL of a SKILL.md, which must be of the same site.
fn main_file_url(site: &SiteLocation, url: &str) -> Result<Url, String> {
    let url = site
        .index
        .join(url)
        .map_err(|error| format!("its URL is invalid: {error}"))?;
    let is_plain = url.query().is_none() && url.fragment().is_none();
    if url.origin() != site.index.origin() || !url.username().is_empty() || url.password().is_some()
    {
        return Err("its URL is of another host".to_owned());
    }
    if !is_plain || !url.path().ends_with("/SKILL.md") {
        return Err("its URL is not a SKILL.md".to_owned());
    }
    Ok(url)
}

/// Parses an index. An unchanged skill of `before` is reused. Invalid entries are omitted with a
/// warning.
pub fn parse_index(
    site: &SiteLocation,
    bytes: &[u8],
    before: &SiteSkills,
) -> Result<ListedSite, String> {
    let list = ListEntries::split(bytes, &["skills"], MAX_SKILLS)
        .map_err(|error| format!("its index is not an index of skills: {error}"))?;

    let mut builder = SiteListBuilder::default();
    for entry in list.entries {
        let label = entry.text_field("name");
        let skill = entry
            .parse::<SiteEntry>()
            .map_err(|error| error.to_string())
            .and_then(|entry| SiteSkill::from_entry(site, entry));
        match skill {
            Ok(skill) => builder.add_skill(&label, skill, before),
            Err(reason) => builder.record_invalid(&label, &reason),
        }
    }
    Ok(builder.finish(site, list.is_cut))
}

#[derive(Default)]
struct SiteListBuilder {
    /// Skills by name.
    skills: BTreeMap<String, Arc<SiteSkill>>,
    invalid: Vec<String>,
    invalid_count: usize,
}

impl SiteListBuilder {
    fn add_skill(&mut self, name: &str, skill: SiteSkill, before: &SiteSkills) {
        if self.skills.contains_key(name) {
            return self.record_invalid(name, "it is listed twice");
        }

        let skill = match before.get(&skill.skill.package) {
            Some(known) if known.is_same(&skill) => known.clone(),
            _ => Arc::new(skill),
        };
        self.skills.insert(name.to_owned(), skill);
    }

    fn record_invalid(&mut self, name: &str, reason: &str) {
        self.invalid_count += 1;
        if self.invalid.len() < MAX_REPORTED {
            self.invalid
                .push(format!("{}: {reason}", quote_value(name)));
        }
    }

    fn finish(self, site: &SiteLocation, is_cut: bool) -> ListedSite {
        let phrase = SourceKind::Site.describe(&site.id);
        let mut warnings = Vec::new();
        if is_cut {
            warnings.push(format!(
                "the list of {phrase} is truncated: it has over {MAX_SKILLS} skills"
            ));
        }
        if self.invalid_count > 0 {
            let named = self.invalid.join("; ");
            let count = self.invalid_count;
            warnings.push(format!("{count} skills of {phrase} are omitted: {named}"));
        }
        let skills = self.skills.into_values();
        let by_package: SiteSkills = skills
            .map(|skill| (skill.skill.package.clone(), skill))
            .collect();
        let mut listed: Vec<_> = by_package
            .values()
            .map(|skill| skill.skill.clone())
            .collect();
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        ListedSite {
            listing: SkillListing {
                skills: listed,
                warnings,
                truncated: is_cut,
                reserved_names: Vec::new(),
            },
            skills: by_package,
        }
    }
}
