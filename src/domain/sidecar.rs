//! `agents/openai.yaml`, beside a SKILL.md: how a skill presents itself, what it needs, who may use
//! it. Read field by field, so that a bad field costs that field alone, except for the policy: what
//! cannot be read of that closes. Leaves whether an icon exists to others.

mod fields;
mod icon;

use super::limits::MAX_MANIFEST_BYTES;
use super::{DiagnosticCode, DynamicValue, FileProblem, position, yaml};

pub use icon::resolve_icon;

/// What a sidecar says. Untrusted. The bounds of each text are those of the proto's messages.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SkillSidecar {
    /// How the skill presents itself; `None` if it does not say.
    pub interface: Option<SkillInterface>,
    /// The tools it needs, at most 256.
    pub dependencies: Box<[ToolDependency]>,
    /// Who may use it.
    pub policy: SkillPolicy,
    /// What it asks for; `None` if nothing.
    pub permissions: Option<SkillPermissions>,
}

/// When a model may use a skill, and in which products.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SkillPolicy {
    /// `None`: the author did not say.
    pub allow_implicit_invocation: Option<bool>,
    /// As written, known or not, at most 256 of 64 characters; empty means all.
    pub products: Box<[Box<str>]>,
}

/// How a skill presents itself to people. A text that is there is not empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(missing_docs)] // the proto's `SkillInterface` says what each means
pub struct SkillInterface {
    pub display_name: Option<Box<str>>,
    pub short_description: Option<Box<str>>,
    /// As written; [`icon`] says what it means.
    pub icon_small: Option<Box<str>>,
    /// As written; [`icon`] says what it means.
    pub icon_large: Option<Box<str>>,
    pub brand_color: Option<Box<str>>,
    pub default_prompt: Option<Box<str>>,
}

/// One tool that a skill needs. A text that is there is not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the proto's `ToolDependency` says what each means
pub struct ToolDependency {
    /// The author's `type`.
    pub kind: Box<str>,
    pub value: Box<str>,
    pub description: Option<Box<str>>,
    pub transport: Option<Box<str>>,
    pub command: Option<Box<str>>,
    pub url: Option<Box<str>>,
}

/// The permissions that a skill asks for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SkillPermissions {
    /// Whether it asks for the network; `None` if it does not say.
    pub network: Option<bool>,
    /// Paths to read, as written, at most 256 of 1,024 characters.
    pub file_system_read: Box<[Box<str>]>,
    /// Paths to write, as written, at most 256 of 1,024 characters.
    pub file_system_write: Box<[Box<str>]>,
    /// A mapping as written, at most 64 KiB and 30 levels deep on the wire.
    pub macos: Option<DynamicValue>,
}

impl SkillSidecar {
    /// What counts for a sidecar that is there and cannot be read.
    #[must_use]
    pub fn fail_closed() -> Self {
        let policy =
            SkillPolicy { allow_implicit_invocation: Some(false), ..SkillPolicy::default() };
        Self { policy, ..Self::default() }
    }
}

/// Reads a sidecar: all its bytes, or `MAX_MANIFEST_BYTES` + 1 of them. Nothing in it is nothing said.
#[must_use]
pub fn read(bytes: &[u8]) -> (SkillSidecar, Vec<FileProblem>) {
    match parse_mapping(bytes) {
        Ok((yaml, value)) => fields::read(yaml, &value),
        Err(problem) => (SkillSidecar::fail_closed(), vec![problem]),
    }
}

fn parse_mapping(bytes: &[u8]) -> Result<(&str, DynamicValue), FileProblem> {
    const CLOSED: &str = "the skill is used only when a person names it";
    if bytes.len() > MAX_MANIFEST_BYTES {
        let why = format!("the file is over {MAX_MANIFEST_BYTES} bytes; {CLOSED}");
        return Err(FileProblem::error(DiagnosticCode::FieldTooLong, why));
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let yaml = std::str::from_utf8(bytes).map_err(|error| {
        let (line, column) = position::position_of_byte(bytes, error.valid_up_to());
        let why = format!("the file is not UTF-8; {CLOSED}");
        FileProblem::error(DiagnosticCode::NotUtf8, why).with_position(line, column)
    })?;
    match yaml::parse(yaml) {
        Ok(value @ (DynamicValue::Map(_) | DynamicValue::Null)) => Ok((yaml, value)),
        Ok(other) => {
            let why = format!("the file is {}, and must be a mapping; {CLOSED}", other.kind());
            Err(FileProblem::error(DiagnosticCode::YamlSyntax, why).with_position(1, 1))
        }
        Err(error) => {
            let why = format!("{CLOSED}: {}", error.message);
            Err(FileProblem::error(DiagnosticCode::YamlSyntax, why)
                .with_position(error.line, error.column))
        }
    }
}

#[cfg(test)]
mod tests;
