//! `agents/openai.yaml`, beside a SKILL.md: how a skill presents itself, what it needs, who may use
//! it. Read field by field, so that a bad field costs that field alone, except for the policy: what
//! cannot be read of that closes. Leaves whether an icon exists to others.

mod fields;
mod icon;

use super::limits::MAX_MANIFEST_BYTES;
use super::{Code, Problem, Value, position, yaml};

use fields::Fields;
pub use icon::icon;

/// What a sidecar says. Untrusted. The bounds of each text are those of the proto's messages.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sidecar {
    /// How the skill presents itself; `None` if it does not say.
    pub interface: Option<Interface>,
    /// The tools it needs, at most 256.
    pub dependencies: Box<[ToolDependency]>,
    /// Who may use it.
    pub policy: Policy,
    /// What it asks for; `None` if nothing.
    pub permissions: Option<Permissions>,
}

/// When a model may use a skill, and in which products.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// `None`: the author did not say.
    pub allow_implicit_invocation: Option<bool>,
    /// As written, known or not, at most 256 of 64 characters; empty means all.
    pub products: Box<[Box<str>]>,
}

/// How a skill presents itself to people. A text that is there is not empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(missing_docs)] // the proto's `SkillInterface` says what each means
pub struct Interface {
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
pub struct Permissions {
    /// Whether it asks for the network; `None` if it does not say.
    pub network: Option<bool>,
    /// Paths to read, as written, at most 256 of 1,024 characters.
    pub read: Box<[Box<str>]>,
    /// Paths to write, as written, at most 256 of 1,024 characters.
    pub write: Box<[Box<str>]>,
    /// A mapping as written, at most 64 KiB and 30 levels deep on the wire.
    pub macos: Option<Value>,
}

impl Sidecar {
    /// What counts for a sidecar that is there and cannot be read.
    #[must_use]
    pub fn closed() -> Self {
        let policy = Policy { allow_implicit_invocation: Some(false), ..Policy::default() };
        Self { policy, ..Self::default() }
    }
}

/// Reads a sidecar: all its bytes, or `MAX_MANIFEST_BYTES` + 1 of them. Nothing in it is nothing said.
#[must_use]
pub fn read(bytes: &[u8]) -> (Sidecar, Vec<Problem>) {
    match document(bytes) {
        Ok((yaml, value)) => {
            let mut fields = Fields::new(yaml);
            let sidecar = fields.sidecar(&value);
            (sidecar, fields.into_problems())
        }
        Err(problem) => (Sidecar::closed(), vec![problem]),
    }
}

fn document(bytes: &[u8]) -> Result<(&str, Value), Problem> {
    const CLOSED: &str = "the skill is used only when a person names it";
    if bytes.len() > MAX_MANIFEST_BYTES {
        let why = format!("the file is over {MAX_MANIFEST_BYTES} bytes; {CLOSED}");
        return Err(Problem::error(Code::FieldTooLong, why));
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let yaml = std::str::from_utf8(bytes).map_err(|error| {
        let (line, column) = position::of_byte(bytes, error.valid_up_to());
        let why = format!("the file is not UTF-8; {CLOSED}");
        Problem::error(Code::NotUtf8, why).at(line, column)
    })?;
    match yaml::parse(yaml) {
        Ok(value @ (Value::Map(_) | Value::Null)) => Ok((yaml, value)),
        Ok(other) => {
            let why = format!("the file is {}, and must be a mapping; {CLOSED}", other.kind());
            Err(Problem::error(Code::YamlSyntax, why).at(1, 1))
        }
        Err(error) => {
            let why = format!("{CLOSED}: {}", error.message);
            Err(Problem::error(Code::YamlSyntax, why).at(error.line, error.column))
        }
    }
}

#[cfg(test)]
mod tests;
