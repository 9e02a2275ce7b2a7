//! The answers of a program without links.

use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::cli::file_check::FileCheckArgs;
use std::path::Path;

/// Reports that the program has no links.
///
/// # Errors
///
/// Always.
pub fn check_link_file(_: &FileCheckArgs) -> Result<u8, CommandFailure> {
    Err(no_link())
}

/// Reports that the program has no links.
///
/// # Errors
///
/// Always.
pub async fn run_link(_: &Path) -> Result<u8, CommandFailure> {
    Err(no_link())
}

fn no_link() -> CommandFailure {
    let hint = "use the caproot of a package, or build it with: cargo build --features link";
    CommandFailure::new(exit::USAGE, "this caproot was built without links").with_hint(hint)
}
