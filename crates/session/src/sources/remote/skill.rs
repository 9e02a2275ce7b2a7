//! Skill of a remote server, with the declared digests and sizes of its files.

use super::frontmatter::find_difference;
use super::limits::MAX_DESCRIPTION_CHARS;
use super::not_verified_error;
use crate::{ToolError, ToolErrorCode};
use caproot_core::proto::caproot::v1::{Authority, NotOffered, Skill};
use caproot_core::sync::Mutex;
use caproot_core::text::{exceeds_chars, parse_flag, single_line, truncate_chars};
use caproot_core::wire::ContentDigest;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;

/// Name of the file that each skill has.
pub const MAIN_FILE: &str = "SKILL.md";
/// Characters of a name; a skill with a longer name is rejected.
const MAX_NAME_CHARS: usize = 64;

/// Skill that a server declares.
#[derive(Debug)]
pub struct RemoteSkill {
    pub skill: Arc<Skill>,
    pub declared: SkillDeclaration,
    /// Error of a failed verification. Once set, no file of the skill is read.
    rejection: OnceLock<ToolError>,
    /// Time of the server's latest statement with these declarations.
    confirmed_at: Mutex<Instant>,
}

/// Origin of the declarations of a skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkillOrigin {
    /// `skills/list` or `skills/get` of an MCP server.
    Extension,
    /// Resource `_manifest` of an MCP server.
    Manifest,
    /// Index of a site.
    Index,
}

/// Declared files by handle.
pub type DeclaredFiles = BTreeMap<String, DeclaredFile>;

/// Digest of a file, and the size if the list has the size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeclaredFile {
    pub digest: ContentDigest,
    pub size: Option<u64>,
}

/// File that an MCP server declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpSkillFile {
    /// Handle of the file.
    pub resource: String,
    /// `sha256:` and the SHA-256 of the file.
    pub digest: String,
    /// Size of the file in bytes.
    pub size: u64,
}

/// Declarations of a skill.
#[derive(Debug, PartialEq)]
pub struct SkillDeclaration {
    pub origin: SkillOrigin,
    /// URI or URL of the SKILL.md.
    pub location: String,
    /// Frontmatter in the list, with the name and the description.
    pub frontmatter: Map<String, Value>,
    /// `None` if the server declares no files.
    pub files: Option<DeclaredFiles>,
}

impl RemoteSkill {
    /// Returns the skill of a declaration, or the reason for its rejection.
    pub fn new(
        authority: Authority,
        package: String,
        declared: SkillDeclaration,
    ) -> Result<Self, String> {
        let frontmatter = &declared.frontmatter;
        let name = single_line(text_field(frontmatter, "name"));
        if name.is_empty() || exceeds_chars(&name, MAX_NAME_CHARS) {
            return Err("its name is empty or too long".to_owned());
        }
        let main_resource = format!("{package}/{MAIN_FILE}");
        let main = match &declared.files {
            None => None,
            Some(files) => Some(
                files
                    .get(&main_resource)
                    .ok_or("its SKILL.md is not declared")?,
            ),
        };

        let description = single_line(text_field(frontmatter, "description"));
        let mut skill = Skill {
            authority: Some(authority),
            package,
            name,
            description: truncate_chars(&description, MAX_DESCRIPTION_CHARS).to_owned(),
            digest: main.map_or_else(String::new, |main| main.digest.to_string()),
            size_bytes: main.and_then(|main| main.size).unwrap_or_default(),
            user_invocable: permits(frontmatter, "user-invocable", true),
            main_resource,
            ..Skill::default()
        };

        // As in the daemon, a value that is neither true nor false restricts who may choose the skill.
        skill.set_not_offered(
            if !permits(frontmatter, "disable-model-invocation", false) {
                NotOffered::PeopleOnly
            } else if !permits(frontmatter, "default-enabled", true) {
                NotOffered::SwitchedOff
            } else {
                NotOffered::Unspecified
            },
        );

        Ok(Self {
            skill: Arc::new(skill),
            declared,
            rejection: OnceLock::new(),
            confirmed_at: Mutex::new(Instant::now()),
        })
    }

    /// Returns the description as the server declares it.
    pub fn declared_description(&self) -> &str {
        text_field(&self.declared.frontmatter, "description")
    }

    /// Returns the declared files, SKILL.md first.
    pub fn declared_files(&self) -> Vec<McpSkillFile> {
        let mut files: Vec<_> = self
            .declared
            .files
            .iter()
            .flatten()
            .map(|(resource, file)| McpSkillFile {
                resource: resource.clone(),
                digest: file.digest.to_string(),
                size: file.size.unwrap_or_default(),
            })
            .collect();
        files.sort_by_key(|file| file.resource != self.skill.main_resource);
        files
    }

    /// Returns the handle of a file as the server spells it; the SKILL.md for an empty handle. The server
    /// chooses which characters its URIs encode, so the same path can have another spelling. A file that is
    /// not declared keeps its handle.
    pub fn declared_spelling(&self, handle: &str) -> String {
        if handle.is_empty() {
            return self.skill.main_resource.clone();
        }
        let decoded = |text: &str| percent_decode_str(text).collect::<Vec<u8>>();
        let wanted = decoded(handle);
        self.declared
            .files
            .iter()
            .flat_map(BTreeMap::keys)
            .find(|spelled| decoded(spelled) == wanted)
            .map_or(handle, String::as_str)
            .to_owned()
    }

    /// Returns the declaration of a file below the package; `None` if the server declares no files.
    pub fn find_file(&self, resource: &str) -> Result<Option<DeclaredFile>, ToolError> {
        let Some(files) = &self.declared.files else {
            return Ok(None);
        };
        files.get(resource).copied().map(Some).ok_or_else(|| {
            ToolError::from_code(
                ToolErrorCode::ResourceNotFound,
                "the skill has no such file",
            )
        })
    }

    /// Records that the server declares the same now.
    pub fn confirm(&self) {
        *self.confirmed_at.lock() = Instant::now();
    }

    /// Returns the age of the server's latest statement.
    pub fn age(&self) -> Duration {
        self.confirmed_at.lock().elapsed()
    }

    /// Fails if a verification of the SKILL.md failed.
    pub fn check_rejection(&self) -> Result<(), ToolError> {
        self.rejection.get().cloned().map_or(Ok(()), Err)
    }

    /// Checks a file with this digest against the list. If a SKILL.md fails the check, no file of the skill
    /// is used any more.
    pub fn verify_file(
        &self,
        resource: &str,
        bytes: &[u8],
        digest: ContentDigest,
    ) -> Result<(), ToolError> {
        self.check_content(resource, bytes, digest)
            .inspect_err(|error| {
                if resource == self.skill.main_resource {
                    // The first error stays.
                    let _ = self.rejection.set(error.clone());
                }
            })
    }

    /// Checks the size and the digest of a file, and the frontmatter of a SKILL.md, against the list.
    fn check_content(
        &self,
        resource: &str,
        bytes: &[u8],
        digest: ContentDigest,
    ) -> Result<(), ToolError> {
        if let Some(declared) = self.find_file(resource)? {
            let size = bytes.len() as u64;
            if let Some(listed) = declared.size.filter(|listed| *listed != size) {
                return Err(not_verified_error(&format!(
                    "the file has {size} bytes; the list declares {listed}"
                )));
            }
            if declared.digest != digest {
                return Err(not_verified_error(
                    "the digest of the file differs from the list",
                ));
            }
        }
        if resource != self.skill.main_resource {
            return Ok(());
        }

        let text = str::from_utf8(bytes)
            .map_err(|error| not_verified_error(&format!("the SKILL.md is not text: {error}")))?;

        // A manifest and an index have some of the fields.
        let SkillDeclaration {
            origin,
            frontmatter,
            ..
        } = &self.declared;
        let has_all_fields = *origin == SkillOrigin::Extension;
        let Some(difference) = find_difference(text, frontmatter, has_all_fields) else {
            return Ok(());
        };
        let list = match origin {
            SkillOrigin::Extension | SkillOrigin::Manifest => "list",
            SkillOrigin::Index => "index",
        };
        Err(not_verified_error(&format!(
            "the SKILL.md differs from the {list}: {difference}"
        )))
    }

    /// Returns whether the list has the same values.
    pub fn is_same(&self, other: &Self) -> bool {
        self.skill == other.skill && self.declared == other.declared
    }
}

fn text_field<'a>(frontmatter: &'a Map<String, Value>, key: &str) -> &'a str {
    frontmatter
        .get(key)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Whether a field is absent or has the value that permits.
fn permits(frontmatter: &Map<String, Value>, key: &str, permitting: bool) -> bool {
    match frontmatter.get(key) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => parse_flag(text) == Some(permitting),
        Some(value) => parse_flag(&value.to_string()) == Some(permitting),
    }
}
