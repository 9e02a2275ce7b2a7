//! Content of a sidecar `agents/openai.yaml`: the presentation, dependencies, policy and permissions of
//! a skill.

mod icon;
mod permission_path;

use super::DynamicValue;
use caproot_core::wire::RelPath;

pub use icon::resolve_icon;
pub use permission_path::resolve_permission_path;

/// Returns the path of a sidecar below its package, `agents/openai.yaml`.
#[must_use]
pub fn sidecar_path() -> RelPath {
    RelPath::new(b"agents/openai.yaml").unwrap_or_default()
}

/// Content of a sidecar. Untrusted. The proto messages document the limits of each text.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SkillSidecar {
    /// Presentation of the skill.
    pub interface: Option<SkillInterface>,
    /// Required tools, at most 256.
    pub dependencies: Box<[ToolDependency]>,
    /// Whether a model may use the skill only if a person names the skill. True for a policy that
    /// cannot be read.
    pub forbids_model: bool,
    /// Products that may use the skill: at most 256 texts of 64 characters, not validated. Empty
    /// for all products.
    pub products: Box<[Box<str>]>,
    /// Requested permissions; `None` if the sidecar requests none.
    pub permissions: Option<SkillPermissions>,
}

/// Presentation of a skill in a user interface. Texts are not empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(missing_docs)] // documented by the proto message `SkillInterface`
pub struct SkillInterface {
    pub display_name: Option<Box<str>>,
    pub short_description: Option<Box<str>>,
    /// Path as written; [`resolve_icon`] resolves it.
    pub icon_small: Option<Box<str>>,
    /// Path as written; [`resolve_icon`] resolves it.
    pub icon_large: Option<Box<str>>,
    pub brand_color: Option<Box<str>>,
    pub default_prompt: Option<Box<str>>,
}

/// One tool that a skill requires. Texts are not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // documented by the proto message `ToolDependency`
pub struct ToolDependency {
    /// Value of the key `type`.
    pub kind: Box<str>,
    pub value: Box<str>,
    pub description: Option<Box<str>>,
    pub transport: Option<Box<str>>,
    pub command: Option<Box<str>>,
    pub url: Option<Box<str>>,
}

/// Permissions that a skill requests.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SkillPermissions {
    /// Whether the skill requests network access; `None` if not declared.
    pub network: Option<bool>,
    /// Paths to read, as written, at most 256 of 1,024 characters. [`resolve_permission_path`]
    /// resolves them.
    pub file_system_read: Box<[Box<str>]>,
    /// Paths to write, as written, at most 256 of 1,024 characters. [`resolve_permission_path`]
    /// resolves them.
    pub file_system_write: Box<[Box<str>]>,
    /// Mapping as written, at most 64 KiB and 30 levels deep on the wire.
    pub macos: Option<DynamicValue>,
}

impl SkillSidecar {
    /// Returns the sidecar that replaces an unreadable one: implicit invocation is disabled.
    #[must_use]
    pub fn fail_closed() -> Self {
        Self {
            forbids_model: true,
            ..Self::default()
        }
    }
}
