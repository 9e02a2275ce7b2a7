//! Commands for authors of skills and plugins, and the codes of problems.

pub mod check;
pub mod codes;
pub mod explain;
pub mod new;
