//! Commands and options as data: their groups and sections in the help, the manual pages and the
//! reference pages.
//!
//! Begin with `definition`, which reads them from the command line that the program parses.

pub(super) mod command_groups;
pub mod command_set;
pub mod definition;
pub mod environment;
pub(super) mod flag_rules;
#[cfg(target_os = "linux")]
pub(super) mod man;

#[cfg(target_os = "linux")]
pub use man::{ManualPage, manual_pages};
