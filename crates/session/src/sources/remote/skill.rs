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
    pub origin: SkillOrigin,
    /// URI or URL of the SKILL.md.
    pub location: String,
    /// Frontmatter in the list.
    pub frontmatter: Map<String, Value>,
    pub files: Option<DeclaredFiles>,
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
pub struct SkillDeclaration {
    pub authority: Authority,
    pub package: String,
    pub origin: SkillOrigin,
    /// URI or URL of the SKILL.md.
    pub location: String,
    /// Frontmatter with the name and the description.
    pub frontmatter: Map<String, Value>,
    /// `None` if the server declares no files.
    pub files: Option<DeclaredFiles>,
}

impl RemoteSkill {
    /// Returns the skill of a declaration, or the reason for its rejection.
    pub fn new(declaration: SkillDeclaration) -> Result<Self, String> {
        let SkillDeclaration {
            authority,
            package,
            origin,
            location,
            frontmatter,
            files,
        } = declaration;

        let name = single_line(text_field(&frontmatter, "name"));
        if name.is_empty() || exceeds_chars(&name, MAX_NAME_CHARS) {
            return Err("its name is empty or too long".to_owned());
        }
        let main_resource = format!("{package}/{MAIN_FILE}");
        let main = files.as_ref().map(|files| files.get(&main_resource));
        if matches!(main, Some(None)) {
            return Err("its SKILL.md is not declared".to_owned());
        }

        let main = main.flatten();
        let description = single_line(text_field(&frontmatter, "description"));
        let mut skill = Skill {
            authority: Some(authority),
            package,
            name,
            description: truncate_chars(&description, MAX_DESCRIPTION_CHARS).to_owned(),
            digest: main.map_or_else(String::new, |main| main.digest.to_string()),
            size_bytes: main.and_then(|main| main.size).unwrap_or_default(),
            user_invocable: permits(&frontmatter, "user-invocable", true),
            main_resource,
            ..Skill::default()
        };
        skill.set_not_offered(find_restriction(&frontmatter));

        Ok(Self {
            skill: Arc::new(skill),
            origin,
            location,
            frontmatter,
            files,
            rejection: OnceLock::new(),
            confirmed_at: Mutex::new(Instant::now()),
        })
    }

    /// Returns the description as the server declares it.
    pub fn declared_description(&self) -> &str {
        text_field(&self.frontmatter, "description")
    }

    /// Returns the declared files, SKILL.md first.
    pub fn declared_files(&self) -> Vec<McpSkillFile> {
        let files = self.files.iter().flatten();
        let mut files: Vec<_> = files
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
        let mut declared = self.files.iter().flat_map(BTreeMap::keys);
        let spelled = declared.find(|spelled| decoded(spelled) == wanted);
        spelled.map_or(handle, String::as_str).to_owned()
    }

    /// Returns the declaration of a file below the package; `None` if the server declares no files.
    pub fn find_file(&self, resource: &str) -> Result<Option<DeclaredFile>, ToolError> {
        let Some(files) = &self.files else {
            return Ok(None);
        };
        files.get(resource).copied().map(Some).ok_or_else(|| {
            let message = "the skill has no such file";
            ToolError::from_code(ToolErrorCode::ResourceNotFound, message)
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
        let declared = self.find_file(resource)?;
        let is_main = resource == self.skill.main_resource;
        let checked = check_declaration(declared, bytes, digest).and_then(|()| {
            if is_main {
                self.check_frontmatter(bytes)
            } else {
                Ok(())
            }
        });

        checked.inspect_err(|error| {
            if is_main {
                // The first error stays.
                let _ = self.rejection.set(error.clone());
            }
        })
    }

    /// Checks that a SKILL.md is text with the frontmatter of the list.
    fn check_frontmatter(&self, bytes: &[u8]) -> Result<(), ToolError> {
        let text = str::from_utf8(bytes)
            .map_err(|error| not_verified_error(&format!("the SKILL.md is not text: {error}")))?;
        // A manifest and an index have some of the fields.
        let has_all_fields = self.origin == SkillOrigin::Extension;
        let Some(difference) = find_difference(text, &self.frontmatter, has_all_fields) else {
            return Ok(());
        };
        let list = match self.origin {
            SkillOrigin::Extension | SkillOrigin::Manifest => "list",
            SkillOrigin::Index => "index",
        };
        let reason = format!("the SKILL.md differs from the {list}: {difference}");
        Err(not_verified_error(&reason))
    }

    /// Returns whether the list has the same values.
    pub fn is_same(&self, other: &Self) -> bool {
        self.origin == other.origin
            && self.skill == other.skill
            && self.location == other.location
            && self.frontmatter == other.frontmatter
            && self.files == other.files
    }
}

fn text_field<'a>(frontmatter: &'a Map<String, Value>, key: &str) -> &'a str {
    let value = frontmatter.get(key);
    value.and_then(Value::as_str).unwrap_or_default()
}

/// Checks the size and the digest of a file against the list.
fn check_declaration(
    declared: Option<DeclaredFile>,
    bytes: &[u8],
    digest: ContentDigest,
) -> Result<(), ToolError> {
    let Some(declared) = declared else {
        return Ok(());
    };
    let size = bytes.len() as u64;
    if let Some(listed) = declared.size.filter(|listed| *listed != size) {
        let reason = format!("the file has {size} bytes; the list declares {listed}");
        return Err(not_verified_error(&reason));
    }
    if declared.digest != digest {
        let reason = "the digest of the file differs from the list";
        return Err(not_verified_error(reason));
    }
    Ok(())
}

/// Returns the restriction of a skill whose frontmatter says who may choose the skill. As in the daemon, a
/// value that is neither true nor false restricts.
fn find_restriction(frontmatter: &Map<String, Value>) -> NotOffered {
    if !permits(frontmatter, "disable-model-invocation", false) {
        NotOffered::PeopleOnly
    } else if !permits(frontmatter, "default-enabled", true) {
        NotOffered::SwitchedOff
    } else {
        NotOffered::Unspecified
    }
}

/// Whether a field is absent or has the value that permits.
fn permits(frontmatter: &Map<String, Value>, key: &str, permitting: bool) -> bool {
    match frontmatter.get(key) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => parse_flag(text) == Some(permitting),
        Some(value) => parse_flag(&value.to_string()) == Some(permitting),
    }
}
