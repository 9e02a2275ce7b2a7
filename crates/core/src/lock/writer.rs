//! Text of a lock: indented, one value a line, so that two changes of different entries merge.

use super::{
    ApprovedFiles, ApprovedPlugin, ApprovedSkill, FORMAT_VERSION, Lock, LockError, TextList,
};
use crate::text::escape_json;
use crate::wire::ContentDigest;
use crate::wire::handle::encode_path;
use serde::ser::{Serialize, SerializeMap as _, Serializer};

/// Content of the file.
#[derive(serde::Serialize)]
struct LockContent<'a> {
    version: u64,
    skills: Vec<SkillEntryText<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    plugins: Vec<PluginEntryText<'a>>,
}

/// Skill of the file. A key with its default is omitted.
#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct SkillEntryText<'a> {
    name: &'a str,
    description: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    short_description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_invocable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_invocable: Option<bool>,
    #[serde(skip_serializing_if = "TextList::is_empty")]
    products: &'a TextList,
    content_digest: ContentDigest,
    files: &'a ApprovedFiles,
}

/// Plugin of the file. A key with its default is omitted.
#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct PluginEntryText<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    version: &'a str,
    content_digest: ContentDigest,
    declaration_digest: ContentDigest,
    files: &'a ApprovedFiles,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    withheld: Vec<String>,
}

/// Returns the text of a lock. Misleading characters are escaped, so that a reviewer sees them.
pub fn lock_text(lock: &Lock) -> Result<String, LockError> {
    let content = LockContent {
        version: FORMAT_VERSION,
        skills: lock.skills.iter().map(SkillEntryText::new).collect(),
        plugins: lock.plugins.iter().map(PluginEntryText::new).collect(),
    };
    let json = serde_json::to_string_pretty(&content)
        .map_err(|error| LockError::whole(error.to_string()))?;
    Ok(escape_json(&json) + "\n")
}

impl<'a> SkillEntryText<'a> {
    fn new(skill: &'a ApprovedSkill) -> Self {
        let description = &skill.description;
        Self {
            name: &skill.name,
            description: &description.description,
            short_description: &description.short_description,
            model_invocable: (!description.model_invocable).then_some(false),
            user_invocable: (!description.user_invocable).then_some(false),
            products: &description.products,
            content_digest: skill.content_digest,
            files: &skill.files,
        }
    }
}

impl<'a> PluginEntryText<'a> {
    fn new(plugin: &'a ApprovedPlugin) -> Self {
        Self {
            name: &plugin.name,
            version: &plugin.version,
            content_digest: plugin.content_digest,
            declaration_digest: plugin.declaration_digest,
            files: &plugin.files,
            withheld: plugin.withheld.iter().map(encode_path).collect(),
        }
    }
}

impl Serialize for ApprovedFiles {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        for (path, file) in self.iter() {
            map.serialize_entry(&encode_path(path), file)?;
        }
        map.end()
    }
}

impl Serialize for TextList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}
