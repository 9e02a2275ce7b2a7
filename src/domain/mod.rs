//! The rules, as functions of plain data. Knows no tokio, tonic, notify, clock or file system.

pub mod catalog;
mod diagnostic;
mod digest;
pub mod handle;
pub mod limits;
pub mod listing;
mod path;
pub mod permit;
mod root;
pub mod search;
pub mod skill;
mod spot;
pub mod token;

pub use catalog::Catalog;
pub use diagnostic::{Code, Diagnostic, Problem, Severity};
pub use digest::{Digest, Version};
pub use handle::Handle;
pub use limits::Limits;
pub use path::RelPath;
pub use root::{Published, Reason, RootId, RootPath, Scope, Selected};
pub use skill::Skill;
pub use spot::Spot;

/// The file that makes a directory a skill.
#[must_use]
pub fn main_file() -> RelPath {
    RelPath::new(b"SKILL.md").expect("one segment")
}
