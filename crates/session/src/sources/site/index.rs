//! Index of a site, as the Agent Skills discovery format has it
//! (<https://schemas.agentskills.io/discovery/0.2.0/schema.json>): each entry has the `url` and the
//! `digest` of a SKILL.md. Archives are refused.

use super::limits::MAX_SKILLS;
use crate::SourceKind;
use crate::sources::remote::{
    DeclaredFile, DeclaredFiles, ListedSkills, MAIN_FILE, RemoteSkill, RemoteSkills,
    SkillDeclaration, SkillListBuilder, SkillOrigin,
};
use caproot_core::json::ListEntries;
use caproot_core::proto::caproot::v1::Authority;
use caproot_core::text::{SentenceResult as _, quote_value};
use caproot_core::wire::ContentDigest;
use reqwest::Url;
use serde::Deserialize;
use serde_json::Value;

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
    let fields = [("name", entry.name), ("description", entry.description)];
    let fields = fields.map(|(key, text)| (key.to_owned(), Value::String(text)));
    RemoteSkill::new(SkillDeclaration {
        authority: Authority {
            kind: SourceKind::Site.name().to_owned(),
            id: site.id.clone(),
        },
        files: Some(DeclaredFiles::from([(
            format!("{package}/{MAIN_FILE}"),
            main,
        )])),
        package,
        origin: SkillOrigin::Index,
        location: main_file_url(site, &entry.url)?.into(),
        frontmatter: fields.into_iter().collect(),
    })
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
    let url = site.index.join(url).context("its URL is invalid")?;
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
    let phrase = SourceKind::Site.describe(&site.id);
    Ok(builder.finish(&phrase, cut_reason.as_deref()))
}
