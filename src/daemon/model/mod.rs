//! Types and rules of skills, plugins and roots, as pure functions of plain data. The module parses
//! no file formats, does no I/O, reads no clock and uses no runtime.

mod access_scope;
pub mod catalog;
mod compact_frontmatter;
mod config_state;
pub mod diagnostic;
pub mod diff;
pub mod disabled_skills;
mod file_version;
pub mod limits;
mod peer;
pub mod plugin;
pub mod requirements;
mod resolved_path;
pub mod resource_filter;
mod root;
mod sandbox;
pub mod sidecar;
pub mod skill;
pub mod token;
mod trust;
pub mod value;

pub use access_scope::AccessScope;
pub use catalog::Catalog;
pub use compact_frontmatter::{CompactFrontmatter, SkillMdFrontmatter};
pub use config_state::{ConfigState, RejectedReload};
pub use diagnostic::{BoundedDiagnostics, Diagnostic, DiagnosticCode, FileProblem, Severity};
pub use disabled_skills::{DisableRules, DisabledPackages};
pub use file_version::FileVersion;
pub use limits::Limits;
pub use peer::{PeerIdentity, QuotaKey};
pub use plugin::{Plugin, PluginManifest, PluginMarketplace};
pub use requirements::{ReadinessConfig, SkillRequirement, SkillRequirements};
pub use resolved_path::{DirIdentity, ResolvedPath};
pub use resource_filter::{HarmlessVersions, ManifestFiles};
pub use root::{PublishedRoot, RootPath, RootReason, RootScope, SelectedRoot};
pub use sandbox::{LandlockMode, LandlockState, SandboxStatus};
pub use sidecar::{SkillInterface, SkillPermissions, SkillSidecar, ToolDependency, sidecar_path};
pub use skill::Skill;
pub use trust::{
    LoadedLock, PackageTrust, RootTrust, StateCounts, TrustCounts, TrustMode, TrustPolicy,
};
pub use value::DynamicValue;

use caproot_core::wire::RelPath;

/// Returns the name of the file that makes a directory a skill, `SKILL.md`.
#[must_use]
pub fn skill_file_name() -> RelPath {
    RelPath::root().join(b"SKILL.md").unwrap_or_default()
}
