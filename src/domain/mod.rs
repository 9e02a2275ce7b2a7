//! The rules, as functions of plain data. Knows no tokio, tonic, notify, clock or file system.

mod diagnostic;
pub mod limits;
mod path;

pub use diagnostic::{Code, Diagnostic, Problem, Severity};
pub use limits::Limits;
pub use path::RelPath;
