//! Index of a site, as the Agent Skills discovery format has it
//! (<https://schemas.agentskills.io/discovery/0.2.0/schema.json>): each entry has the `url` and the
//! `digest` of a SKILL.md. Archives are refused.

use super::limits::MAX_SKILLS;
use crate::SourceKind;
use crate::sources::authority_of;
use crate::sources::remote::{
    DeclaredFile, ListedSkills, MAIN_FILE, RemoteSkill, RemoteSkills, SkillDeclaration,
    SkillListBuilder, SkillOrigin,
};
use caproot_core::json::ListEntries;
use caproot_core::text::{SentenceResult as _, quote_value};
use caproot_core::wire::ContentDigest;
use reqwest::Url;
use serde::Deserialize;
use serde_json::Map;

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

/// Location of a site.
#[derive(Debug, Clone)]
pub struct SiteLocation {
    /// Host, and the port if it is not the default port. The id of the authority.
    pub id: String,
    /// URL of the index.
    pub index: Url,
}

/// Returns the skill of an entry, or the reason for its rejection.
fn read_entry(site: &SiteLocation, entry: SiteEntry) -> Result<RemoteSkill, String> {
    if !is_skill_name(&entry.name) {
        return Err("its name is not 1 to 64 of a-z, 0-9 and single hyphens".to_owned());
    }
    if let Some(kind) = entry.r#type.as_deref().filter(|kind| *kind != "skill-md") {
        return Err(format!("its type {} is not supported", quote_value(kind)));
    }

    let main = DeclaredFile {
        digest: ContentDigest::parse(&entry.digest).ok_or("its digest is not a SHA-256")?,
        size: None,
    };
    let package = format!("site://{}/{}", site.id, entry.name);

    let declared = SkillDeclaration {
        origin: SkillOrigin::Index,
        location: main_file_url(site, &entry.url)?.into(),
        frontmatter: Map::from_iter([
            ("name".to_owned(), entry.name.into()),
            ("description".to_owned(), entry.description.into()),
        ]),
        files: Some([(format!("{package}/{MAIN_FILE}"), main)].into()),
    };
    RemoteSkill::new(authority_of(SourceKind::Site, &site.id), package, declared)
}

/// Returns whether the Agent Skills format allows a name.
fn is_skill_name(name: &str) -> bool {
    let has_stray_hyphen = name.starts_with('-') || name.ends_with('-') || name.contains("--");
    (1..=64).contains(&name.len())
        && !has_stray_hyphen
        && name
            .bytes()
            .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}

/// Returns the URL of a SKILL.md, which must be of the same site.
fn main_file_url(site: &SiteLocation, url: &str) -> Result<Url, String> {
    let url = site.index.join(url).context("its URL is invalid")?;
    if url.origin() != site.index.origin() || !url.username().is_empty() || url.password().is_some()
    {
        return Err("its URL is of another host".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() || !url.path().ends_with("/SKILL.md") {
        return Err("its URL is not a SKILL.md".to_owned());
    }
    Ok(url)
}

/// Parses an index. An unchanged skill of `before` is reused.
pub fn parse_index(
    site: &SiteLocation,
    bytes: &[u8],
    before: &RemoteSkills,
) -> Result<ListedSkills, String> {
    let list = ListEntries::split(bytes, &["skills"], MAX_SKILLS)
        .context("its index is not an index of skills")?;

    let mut builder = SkillListBuilder::new(before);
    for entry in list.entries {
        let skill = entry
            .parse::<SiteEntry>()
            .map_err(|error| error.to_string())
            .and_then(|entry| read_entry(site, entry));
        builder.add_skill(&entry.text_field("name"), skill);
    }
    let cut_reason = list
        .is_cut
        .then(|| format!("it has over {MAX_SKILLS} skills"));
    Ok(builder.finish(&SourceKind::Site.describe(&site.id), cut_reason.as_deref()))
}
