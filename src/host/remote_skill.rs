//! What is held of one skill that a server lists: where its files are, and what is promised of them.
//! An entry that promises nonsense is none. Leaves asking for it to `listing`, and holding a server to
//! it to `fetch`.

use super::address::{is_in_dir, skill_dir, to_handle};
use super::limits::{MAX_SKILL_BYTES, MAX_SKILL_FILES};
use crate::proto::caproot::v1::{Authority, Skill};
use crate::session::{SourceKind, ToolError};
use rmcp::model::{Skill as Listed, SkillResource, SkillResources};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// The most characters of a name, and of a description; longer ones are none, and cut.
const MAX_NAME_CHARS: usize = 64;
const MAX_DESCRIPTION_CHARS: usize = 1_024;

/// One skill.
#[derive(Debug)]
pub(super) struct RemoteSkill {
    pub(super) skill: Arc<Skill>,
    /// The URI of its SKILL.md.
    pub(super) uri: String,
    directory: String,
    /// What the server says its author wrote.
    pub(super) frontmatter: Map<String, Value>,
    /// Its files by URI; `None`: the server promises nothing of them.
    files: Option<HashMap<String, SkillResource>>,
    /// Why it is not what it is said to be, once that was seen; nothing of it is read any more.
    rejection: OnceLock<ToolError>,
}

/// A file that a server lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpSkillFile {
    /// Its handle.
    pub resource: String,
    /// `sha256:` and the hash of its bytes.
    pub digest: String,
    /// Its bytes.
    pub size: u64,
}

/// What a server promises of a file.
pub(super) enum ExpectedFile<'a> {
    /// Its digest and size.
    Declared(&'a SkillResource),
    /// Nothing.
    Undeclared,
    /// That there is none.
    Missing,
}

impl RemoteSkill {
    /// The entry, or what is wrong with it.
    pub(super) fn from_listed(server: &str, listed: Listed) -> Result<Self, String> {
        let Listed { uri, frontmatter, resources, .. } = listed;
        let directory = skill_dir(&uri).ok_or("its URI is none of a SKILL.md below skill://")?;
        let directory = directory.to_owned();
        let name = collapse_whitespace(&frontmatter.name);
        if name.is_empty() || name.chars().count() > MAX_NAME_CHARS {
            return Err("its name is empty or too long".to_owned());
        }
        let files = match resources {
            SkillResources::Files(files) => Some(check_declared_files(&uri, &directory, files)?),
            SkillResources::Dynamic => None,
            _ => return Err("its files are told in a way that is not known here".to_owned()),
        };
        let main = files.as_ref().and_then(|files| files.get(&uri));
        let description: String = collapse_whitespace(&frontmatter.description);
        let skill = Skill {
            authority: Some(Authority {
                kind: SourceKind::Mcp.name().to_owned(),
                id: server.to_owned(),
            }),
            package: to_handle(server, &directory),
            main_resource: to_handle(server, &uri),
            name,
            description: description.chars().take(MAX_DESCRIPTION_CHARS).collect(),
            digest: main.map(|main| main.digest.clone()).unwrap_or_default(),
            size_bytes: main.map_or(0, |main| main.size),
            ..Skill::default()
        };
        let mut fields = frontmatter.extra;
        fields.insert("name".to_owned(), Value::String(frontmatter.name));
        fields.insert("description".to_owned(), Value::String(frontmatter.description));
        let skill = Arc::new(skill);
        let rejected = OnceLock::new();
        Ok(Self { skill, uri, directory, frontmatter: fields, files, rejection: rejected })
    }

    /// The handle of its SKILL.md.
    pub(super) fn main_resource(&self) -> String {
        self.skill.main_resource.clone()
    }

    /// Its files, SKILL.md first.
    pub(super) fn files(&self, server: &str) -> Vec<McpSkillFile> {
        let mut files: Vec<_> = self.files.iter().flat_map(HashMap::values).collect();
        files.sort_by_key(|file| (file.uri != self.uri, &file.uri));
        let promised = |file: &SkillResource| McpSkillFile {
            resource: to_handle(server, &file.uri),
            digest: file.digest.clone(),
            size: file.size,
        };
        files.into_iter().map(promised).collect()
    }

    /// Whether nothing is promised of its files.
    pub(super) fn is_dynamic(&self) -> bool {
        self.files.is_none()
    }

    /// What is promised of the file at a URI.
    pub(super) fn expected_file(&self, uri: &str) -> ExpectedFile<'_> {
        match &self.files {
            Some(files) => files.get(uri).map_or(ExpectedFile::Missing, ExpectedFile::Declared),
            None if is_in_dir(uri, &self.directory) => ExpectedFile::Undeclared,
            None => ExpectedFile::Missing,
        }
    }

    /// That it is not what it is said to be.
    pub(super) fn mark_rejected(&self, refusal: &ToolError) {
        // The first reason stays.
        let _ = self.rejection.set(refusal.clone());
    }

    pub(super) fn rejection(&self) -> Option<ToolError> {
        self.rejection.get().cloned()
    }

    /// Whether the server says the same of it.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (&self.skill, &self.uri, &self.frontmatter, &self.files)
            == (&other.skill, &other.uri, &other.frontmatter, &other.files)
    }
}

/// The files by URI, if each is the skill's, once, and SKILL.md is one of them.
fn check_declared_files(
    main: &str,
    directory: &str,
    files: Vec<SkillResource>,
) -> Result<HashMap<String, SkillResource>, String> {
    if files.len() > MAX_SKILL_FILES {
        return Err(format!("it has over {MAX_SKILL_FILES} files"));
    }
    let total = files.iter().fold(0_u64, |total, file| total.saturating_add(file.size));
    if total > MAX_SKILL_BYTES {
        return Err(format!("its files are over {MAX_SKILL_BYTES} bytes"));
    }
    let mut by_uri = HashMap::new();
    for file in files {
        if !is_in_dir(&file.uri, directory) {
            return Err("a file of it is not in its directory".to_owned());
        }
        if !is_digest(&file.digest) {
            return Err("a file of it has no SHA-256".to_owned());
        }
        if by_uri.insert(file.uri.clone(), file).is_some() {
            return Err("a file of it is there twice".to_owned());
        }
    }
    if !by_uri.contains_key(main) {
        return Err("its SKILL.md is none of its files".to_owned());
    }
    Ok(by_uri)
}

fn is_digest(digest: &str) -> bool {
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    digest.strip_prefix("sha256:").is_some_and(|hash| hash.len() == 64 && hash.bytes().all(hex))
}

/// On one line.
fn collapse_whitespace(text: &str) -> String {
    let breaks = |c: char| c.is_whitespace() || c.is_control();
    text.split(breaks).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::{ExpectedFile, Listed, RemoteSkill, SkillResource, SkillResources};
    use rmcp::model::SkillFrontmatter;

    fn entry(uri: &str, files: Vec<SkillResource>) -> Result<RemoteSkill, String> {
        let frontmatter = SkillFrontmatter::new("a", "Does\n a.");
        RemoteSkill::from_listed("s", Listed::new(uri, frontmatter, SkillResources::Files(files)))
    }

    #[test]
    fn what_an_entry_may_promise() {
        let main = || SkillResource::from_bytes("skill://a/SKILL.md", b"x");
        let file = |uri: &str| SkillResource::from_bytes(uri, b"y");
        let good = entry("skill://a/SKILL.md", vec![main(), file("skill://a/b/c")]);
        let good = good.expect("an entry");
        assert_eq!(good.skill.package, "mcp+skill://s/a");
        assert_eq!(good.skill.main_resource, "mcp+skill://s/a/SKILL.md");
        assert_eq!(good.skill.description, "Does a.");
        assert!(matches!(good.expected_file("skill://a/b/c"), ExpectedFile::Declared(_)));
        assert!(matches!(good.expected_file("skill://a/b"), ExpectedFile::Missing));
        for (uri, files) in [
            ("file:///a/SKILL.md", vec![main()]),
            ("skill://a/README.md", vec![main()]),
            ("skill://a/SKILL.md", vec![]),
            ("skill://a/SKILL.md", vec![main(), main()]),
            ("skill://a/SKILL.md", vec![main(), file("file:///etc/passwd")]),
            ("skill://a/SKILL.md", vec![main(), file("skill://b/x")]),
            ("skill://a/SKILL.md", vec![main(), file("skill://a/../b/x")]),
            ("skill://a/SKILL.md", vec![main(), SkillResource::new("skill://a/x", "md5:1", 1)]),
            (
                "skill://a/SKILL.md",
                vec![main(), SkillResource::new("skill://a/x", main().digest, u64::MAX)],
            ),
            (
                "skill://a/SKILL.md",
                (0..600).map(|n| file(&format!("skill://a/{n}"))).chain([main()]).collect(),
            ),
        ] {
            assert!(entry(uri, files).is_err(), "{uri}");
        }
    }
}
