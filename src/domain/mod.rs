//! Types and rules of skills, plugins and roots, as pure functions of plain data. The module does
//! no I/O, reads no clock and uses no runtime.

mod access_scope;
pub mod callers;
pub mod catalog;
mod compact_frontmatter;
mod config_state;
mod diagnostic;
pub mod diff;
mod digest;
pub mod disabled_skills;
pub mod escape;
pub mod frontmatter;
pub mod handle;
mod hidden_text;
pub mod json;
pub mod limits;
pub mod listing;
pub mod manifest;
mod names;
pub mod package_walk;
mod path;
mod peer;
pub mod plugin;
mod position;
mod resolved_path;
pub mod resource_filter;
mod root;
mod sandbox;
pub mod search;
pub mod sidecar;
pub mod skill;
mod text;
pub mod token;
pub mod value;
pub mod yaml;
pub mod yaml_repair;

pub use access_scope::AccessScope;
pub use callers::{Caller, CallerPolicy};
pub use catalog::Catalog;
pub use compact_frontmatter::CompactFrontmatter;
pub use config_state::{ConfigState, RejectedReload};
pub use diagnostic::{Diagnostic, DiagnosticCode, FileProblem, Severity};
pub use digest::{ContentDigest, FileVersion};
pub use disabled_skills::{DisableRules, DisabledPackages};
pub use frontmatter::{ParsedSkillMd, SkillMdFrontmatter};
pub use handle::ResourceHandle;
pub use hidden_text::HiddenTextScanner;
pub use limits::Limits;
pub use manifest::PluginManifest;
pub use path::RelPath;
pub use peer::{PeerIdentity, QuotaKey};
pub use plugin::{Plugin, PluginMarketplace};
pub use resolved_path::ResolvedPath;
pub use resource_filter::ManifestFiles;
pub use root::{PublishedRoot, RootId, RootPath, RootReason, RootScope, SelectedRoot};
pub use sandbox::{LandlockMode, LandlockState, SandboxStatus};
pub use sidecar::{SkillInterface, SkillPermissions, SkillPolicy, SkillSidecar, ToolDependency};
pub use skill::Skill;
pub use value::DynamicValue;

/// Returns the name of the file that makes a directory a skill, `SKILL.md`.
#[must_use]
pub fn skill_file_name() -> RelPath {
    RelPath::root().join(b"SKILL.md").unwrap_or_default()
}
