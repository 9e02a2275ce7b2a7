//! The rules, as functions of plain data. Knows no tokio, tonic, notify, clock or file system.

pub mod callers;
pub mod catalog;
mod chunks;
mod config_state;
pub mod declaring;
mod diagnostic;
pub mod diff;
mod digest;
pub mod files;
pub mod frontmatter;
pub mod handle;
mod hidden_text;
pub mod json;
pub mod limits;
pub mod listing;
pub mod manifest;
mod names;
mod packed;
mod path;
mod peer;
pub mod permit;
pub mod plugin;
mod position;
mod reach;
pub mod repair;
mod root;
mod sandbox;
pub mod search;
pub mod shown;
pub mod sidecar;
pub mod skill;
mod spot;
pub mod switched_off;
mod text;
pub mod token;
pub mod value;
pub mod yaml;

pub use callers::{Caller, Callers};
pub use catalog::Catalog;
pub use config_state::{ConfigState, Refused};
pub use declaring::Declaring;
pub use diagnostic::{Code, Diagnostic, Problem, Severity};
pub use digest::{Digest, Version};
pub use frontmatter::{Authored, Reading};
pub use handle::Handle;
pub use hidden_text::HiddenScan;
pub use limits::Limits;
pub use manifest::Manifest;
pub use packed::Packed;
pub use path::RelPath;
pub use peer::{Account, Peer};
pub use plugin::{Marketplace, Plugin};
pub use reach::Reach;
pub use root::{Published, Reason, RootId, RootPath, Scope, Selected};
pub use sandbox::{Landlock, LandlockState, Sandbox};
pub use sidecar::{Interface, Permissions, Policy, Sidecar, ToolDependency};
pub use skill::Skill;
pub use spot::Spot;
pub use switched_off::{OffPackages, SwitchedOff};
pub use value::Value;

/// The file that makes a directory a skill.
#[must_use]
pub fn main_file() -> RelPath {
    RelPath::root().join(b"SKILL.md").unwrap_or_default()
}
