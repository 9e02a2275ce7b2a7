//! Skill of an MCP server's list, with the declared digests and sizes of its files. An entry with
//! inconsistent declarations is rejected.

use super::address::{directory_name, is_in_dir, skill_dir, to_handle};
use super::limits::{MAX_SKILL_BYTES, MAX_SKILL_FILES};
use super::manifest::ManifestSkill;
use crate::session::{SourceKind, ToolError};
use caproot_core::proto::caproot::v1::{Authority, NotOffered, Skill};
use caproot_core::sync::Mutex;
use caproot_core::text::{exceeds_chars, parse_flag, single_line, truncate_chars};
use caproot_core::wire::is_digest;
use percent_encoding::percent_decode_str;
use rmcp::model::{Skill as Listed, SkillResource, SkillResources};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;

/// Limits in characters: an entry with a longer name is rejected, a longer description is
/// truncated.
const MAX_NAME_CHARS: usize = 64;
const MAX_DESCRIPTION_CHARS: usize = 1_024;

/// Entry of a server's list.
#[derive(Debug)]
pub struct RemoteSkill {
    pub skill: Arc<Skill>,
    /// Origin of the declarations.
    pub origin: EntryOrigin,
    /// URI of the SKILL.md.
    pub uri: String,
    pub directory: String,
    /// Frontmatter in the list.
    pub frontmatter: Map<String, Value>,
    /// Whether the list has all fields of the frontmatter. A manifest has some of them.
    pub has_all_fields: bool,
    /// Declared files by URI; `None` if the server declares no files.
    files: Option<HashMap<String, SkillResource>>,
    /// Error of a failed verification. Once set, no file of the skill is read.
    rejection: OnceLock<ToolError>,
    /// Time of the server's latest statement with these declarations.
    confirmed_at: Mutex<Instant>,
}

/// Origin of the declarations of a skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryOrigin {
    /// `skills/list` or `skills/get`.
    Extension,
    /// Resource `_manifest` of the skill.
    Manifest,
}

/// File that a server declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpSkillFile {
    /// Handle of the file.
    pub resource: String,
    /// `sha256:` and the SHA-256 of the file.
    pub digest: String,
    /// Size of the file in bytes.
    pub size: u64,
}

/// Digest of a file, and the size if a list declares the file.
#[derive(Debug, Clone, Copy)]
pub struct DeclaredFile<'a> {
    pub digest: &'a str,
    pub size: Option<u64>,
}

/// Declaration of one file.
pub enum ExpectedFile<'a> {
    /// The server declares the file.
    Declared(DeclaredFile<'a>),
    /// The server declares no files.
    Undeclared,
    /// The skill does not have the file.
    Missing,
}

impl RemoteSkill {
    /// Returns the entry, or the reason for its rejection.
    pub fn from_listed(server: &str, listed: Listed) -> Result<Self, String> {
        let Listed {
            uri,
            frontmatter,
            resources,
            ..
        } = listed;
        let directory = checked_skill_dir(&uri)?;
        let files = match resources {
            SkillResources::Files(files) => Some(check_declared_files(&uri, &directory, files)?),
            SkillResources::Dynamic => None,
            _ => return Err("its files are declared in an unknown way".to_owned()),
        };

        // The standard requires this name, so that a URI tells the name of its skill.
        if directory_name(&directory) != frontmatter.name {
            return Err("its URI does not end in its name".to_owned());
        }
        let mut skill = new_skill(server, &uri, &frontmatter.name, &frontmatter.description)?;
        if let Some(main) = files.as_ref().and_then(|files| files.get(&uri)) {
            skill.digest.clone_from(&main.digest);
            skill.size_bytes = main.size;
        }

        let mut fields = frontmatter.extra;
        restrict_invocation(&mut skill, &fields);
        insert_text(&mut fields, "name", frontmatter.name);
        insert_text(&mut fields, "description", frontmatter.description);
        Ok(Self {
            skill: Arc::new(skill),
            origin: EntryOrigin::Extension,
            uri,
            directory,
            frontmatter: fields,
            has_all_fields: true,
            files,
            rejection: OnceLock::new(),
            confirmed_at: Mutex::new(Instant::now()),
        })
    }

    /// Returns the skill of a manifest with these files, or the reason for its rejection.
    pub fn from_manifest(
        server: &str,
        listed: ManifestSkill,
        files: Vec<SkillResource>,
    ) -> Result<Self, String> {
        let ManifestSkill {
            directory,
            description,
        } = listed;
        let uri = format!("{directory}/SKILL.md");
        let files = check_declared_files(&uri, &directory, files)?;

        let name = directory_name(&directory);
        let mut skill = new_skill(server, &uri, &name, &description)?;
        restrict_invocation(&mut skill, &Map::new());
        if let Some(main) = files.get(&uri) {
            skill.digest.clone_from(&main.digest);
            skill.size_bytes = main.size;
        }

        let mut fields = Map::new();
        insert_text(&mut fields, "name", name);
        insert_text(&mut fields, "description", description);
        Ok(Self {
            skill: Arc::new(skill),
            origin: EntryOrigin::Manifest,
            uri,
            directory,
            frontmatter: fields,
            has_all_fields: false,
            files: Some(files),
            rejection: OnceLock::new(),
            confirmed_at: Mutex::new(Instant::now()),
        })
    }

    /// Returns the handle of the SKILL.md.
    pub fn main_resource(&self) -> String {
        self.skill.main_resource.clone()
    }

    /// Returns the declared files, SKILL.md first.
    pub fn files(&self, server: &str) -> Vec<McpSkillFile> {
        let mut files: Vec<_> = self.files.iter().flat_map(HashMap::values).collect();
        files.sort_by_key(|file| (file.uri != self.uri, &file.uri));

        files
            .into_iter()
            .map(|file| McpSkillFile {
                resource: to_handle(server, &file.uri),
                digest: file.digest.clone(),
                size: file.size,
            })
            .collect()
    }

    /// Returns the handle of a file as the server spells it. The server chooses which characters its
    /// URIs encode, so the same path can have another spelling. A file that is not declared keeps its
    /// handle.
    pub fn declared_spelling(&self, server: &str, handle: &str) -> String {
        let files = self.files.iter().flat_map(HashMap::keys);
        let mut declared = files.map(|uri| to_handle(server, uri));
        let decoded = |text: &str| percent_decode_str(text).collect::<Vec<u8>>();
        let wanted = decoded(handle);
        declared
            .find(|spelled| decoded(spelled) == wanted)
            .unwrap_or_else(|| handle.to_owned())
    }

    /// Returns whether the server declares no files.
    pub fn is_dynamic(&self) -> bool {
        self.files.is_none()
    }

    /// Returns the declaration of a file.
    pub fn expected_file(&self, uri: &str) -> ExpectedFile<'_> {
        match &self.files {
            Some(files) => files.get(uri).map_or(ExpectedFile::Missing, |file| {
                ExpectedFile::Declared(DeclaredFile {
                    digest: &file.digest,
                    size: Some(file.size),
                })
            }),
            None if is_in_dir(uri, &self.directory) => ExpectedFile::Undeclared,
            None => ExpectedFile::Missing,
        }
    }

    /// Records that the server declares the same now.
    pub fn confirm(&self) {
        *self.confirmed_at.lock() = Instant::now();
    }

    /// Returns the age of the server's latest statement.
    pub fn age(&self) -> Duration {
        self.confirmed_at.lock().elapsed()
    }

    /// Returns the skill as its manifest's server lists it.
    pub fn to_manifest_skill(&self) -> ManifestSkill {
        let description = self.frontmatter.get("description").and_then(Value::as_str);
        ManifestSkill {
            directory: self.directory.clone(),
            description: description.unwrap_or_default().to_owned(),
        }
    }

    /// Records the error of a failed verification, if the file is the SKILL.md.
    pub fn mark_main_rejected(&self, uri: &str, error: &ToolError) {
        if self.uri == uri {
            // The first error stays.
            let _ = self.rejection.set(error.clone());
        }
    }

    pub fn rejection(&self) -> Option<ToolError> {
        self.rejection.get().cloned()
    }

    /// Returns whether the list has the same values.
    pub fn is_same(&self, other: &Self) -> bool {
        self.origin == other.origin
            && self.skill == other.skill
            && self.uri == other.uri
            && self.frontmatter == other.frontmatter
            && self.has_all_fields == other.has_all_fields
            && self.files == other.files
    }
}

/// Returns the directory of a SKILL.md, if its URI has a single spelling.
fn checked_skill_dir(uri: &str) -> Result<String, String> {
    let directory = skill_dir(uri).ok_or("its URI is not a SKILL.md in its only spelling")?;
    Ok(directory.to_owned())
}

fn insert_text(fields: &mut Map<String, Value>, key: &str, text: String) {
    fields.insert(key.to_owned(), Value::String(text));
}

/// Restricts a skill whose frontmatter says who may choose the skill. As in the daemon, a value that is
/// neither true nor false restricts.
fn restrict_invocation(skill: &mut Skill, frontmatter: &Map<String, Value>) {
    let not_offered = if !permits(frontmatter, "disable-model-invocation", false) {
        NotOffered::PeopleOnly
    } else if !permits(frontmatter, "default-enabled", true) {
        NotOffered::SwitchedOff
    } else {
        NotOffered::Unspecified
    };
    skill.set_not_offered(not_offered);
    skill.user_invocable = permits(frontmatter, "user-invocable", true);
}

/// Whether a field is absent or has the value that permits.
fn permits(frontmatter: &Map<String, Value>, key: &str, permitting: bool) -> bool {
    match frontmatter.get(key) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => parse_flag(text) == Some(permitting),
        Some(value) => parse_flag(&value.to_string()) == Some(permitting),
    }
}

/// Returns a skill without a digest, or the reason if its name is invalid.
fn new_skill(server: &str, uri: &str, name: &str, description: &str) -> Result<Skill, String> {
    let name = single_line(name);
    if name.is_empty() || exceeds_chars(&name, MAX_NAME_CHARS) {
        return Err("its name is empty or too long".to_owned());
    }

    let directory = skill_dir(uri).unwrap_or(uri);
    let description = single_line(description);
    Ok(Skill {
        authority: Some(Authority {
            kind: SourceKind::Mcp.name().to_owned(),
            id: server.to_owned(),
        }),
        package: to_handle(server, directory),
        main_resource: to_handle(server, uri),
        name,
        description: truncate_chars(&description, MAX_DESCRIPTION_CHARS).to_owned(),
        ..Skill::default()
    })
}

/// Returns the declared files by URI. Each file must be in the directory of the skill and be
/// declared once, and SKILL.md must be declared.
fn check_declared_files(
    main: &str,
    directory: &str,
    files: Vec<SkillResource>,
) -> Result<HashMap<String, SkillResource>, String> {
    if files.len() > MAX_SKILL_FILES {
        return Err(format!("it has over {MAX_SKILL_FILES} files"));
    }
    let total = files
        .iter()
        .fold(0_u64, |total, file| total.saturating_add(file.size));
    if total > MAX_SKILL_BYTES {
        return Err(format!("its files are over {MAX_SKILL_BYTES} bytes"));
    }

    let mut by_uri = HashMap::new();
    for file in files {
        if !is_in_dir(&file.uri, directory) {
            return Err("a file is not in its directory".to_owned());
        }
        if !is_digest(&file.digest) {
            return Err("a file has no SHA-256".to_owned());
        }
        if by_uri.insert(file.uri.clone(), file).is_some() {
            return Err("a file is declared twice".to_owned());
        }
    }

    if by_uri.contains_key(main) {
        Ok(by_uri)
    } else {
        Err("its SKILL.md is not declared".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::{DeclaredFile, ExpectedFile, Listed, RemoteSkill, SkillResource, SkillResources};
    use rmcp::model::SkillFrontmatter;
    use serde_json::json;

    fn entry(uri: &str, files: Vec<SkillResource>) -> Result<RemoteSkill, String> {
        let frontmatter = SkillFrontmatter::new("a", "Does\n a.");
        RemoteSkill::from_listed(
            "s",
            Listed::new(uri, frontmatter, SkillResources::Files(files)),
        )
    }

    #[test]
    fn the_frontmatter_restricts_who_may_choose_a_skill() {
        let uri = "skill://a/SKILL.md";
        for (extra, expected) in [
            (json!({}), (true, true)),
            (
                json!({"disable-model-invocation": false, "user-invocable": true}),
                (true, true),
            ),
            (json!({"disable-model-invocation": null}), (true, true)),
            (json!({"disable-model-invocation": true}), (false, true)),
            (json!({"disable-model-invocation": "no"}), (true, true)),
            (json!({"disable-model-invocation": "maybe"}), (false, true)),
            (json!({"user-invocable": false}), (true, false)),
            (json!({"user-invocable": 1}), (true, true)),
            (json!({"user-invocable": "maybe"}), (true, false)),
        ] {
            let mut frontmatter = SkillFrontmatter::new("a", "Does a.");
            frontmatter.extra = extra.as_object().expect("an object").clone();
            let files = vec![SkillResource::from_bytes(uri, b"x")];
            let listed = Listed::new(uri, frontmatter, SkillResources::Files(files));
            let listed = RemoteSkill::from_listed("s", listed).expect("an entry");

            let flags = (listed.skill.is_offered(), listed.skill.user_invocable);
            assert_eq!(flags, expected, "{extra}");
        }
    }

    #[test]
    fn inconsistent_entries_are_rejected() {
        let main = || SkillResource::from_bytes("skill://a/SKILL.md", b"x");
        let file = |uri: &str| SkillResource::from_bytes(uri, b"y");
        let good = entry("skill://a/SKILL.md", vec![main(), file("skill://a/b/c")]);
        let good = good.expect("an entry");
        assert_eq!(good.skill.package, "mcp+skill://s/a");
        assert_eq!(good.skill.main_resource, "mcp+skill://s/a/SKILL.md");
        assert_eq!(good.skill.description, "Does a.");
        assert!(matches!(
            good.expected_file("skill://a/b/c"),
            ExpectedFile::Declared(DeclaredFile { size: Some(1), .. })
        ));
        assert!(matches!(
            good.expected_file("skill://a/b"),
            ExpectedFile::Missing
        ));
        for (uri, files) in [
            ("file:///a/SKILL.md", vec![main()]),
            ("https://a/b/SKILL.md", vec![main()]),
            ("github://o/a/SKILL.md", vec![main()]),
            ("skill://a/README.md", vec![main()]),
            ("skill://a/SKILL.md", vec![]),
            ("skill://a/SKILL.md", vec![main(), main()]),
            (
                "skill://a/SKILL.md",
                vec![main(), file("file:///etc/passwd")],
            ),
            ("skill://a/SKILL.md", vec![main(), file("skill://b/x")]),
            ("skill://a/SKILL.md", vec![main(), file("skill://a/../b/x")]),
            (
                "skill://a/SKILL.md",
                vec![main(), SkillResource::new("skill://a/x", "md5:1", 1)],
            ),
            (
                "skill://a/SKILL.md",
                vec![
                    main(),
                    SkillResource::new("skill://a/x", main().digest, u64::MAX),
                ],
            ),
            (
                "skill://a/SKILL.md",
                (0..600)
                    .map(|n| file(&format!("skill://a/{n}")))
                    .chain([main()])
                    .collect(),
            ),
        ] {
            assert!(entry(uri, files).is_err(), "{uri}");
        }
    }
}
