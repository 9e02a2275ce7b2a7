//! The rules, as functions of plain data. Knows no tokio, tonic, notify, clock or file system.

mod diagnostic;
pub mod frontmatter;
pub mod json;
pub mod limits;
pub mod manifest;
mod names;
mod path;
mod position;
pub mod repair;
pub mod sidecar;
mod text;
pub mod value;
pub mod yaml;

pub use diagnostic::{Code, Diagnostic, Problem, Severity};
pub use frontmatter::{Authored, Reading};
pub use limits::Limits;
pub use manifest::Manifest;
pub use path::RelPath;
pub use sidecar::{Interface, Permissions, Policy, Sidecar, ToolDependency};
pub use value::Value;
