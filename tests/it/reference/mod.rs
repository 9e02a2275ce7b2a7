//! The pages of `docs/reference`: each is generated from the code and committed.

mod api;
mod commands;
mod config;
mod diagnostics;
mod environment;
mod errors;
mod exit_codes;
mod limits;
mod manual;
mod metrics;
mod protocol;
mod root_states;

use std::fs;
use std::path::PathBuf;

use crate::diff::diff;

/// Compares `docs/reference/NAME.md` with `generated`, and panics with the difference if the committed
/// page is stale. With the environment variable `CAPROOT_BLESS`, writes the page instead.
pub(crate) fn check_page(name: &str, generated: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("docs/reference/{name}.md"));
    if std::env::var_os("CAPROOT_BLESS").is_some() {
        fs::create_dir_all(path.parent().expect("a directory")).expect("docs/reference");
        fs::write(&path, generated).expect("the page is written");
        return;
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == generated,
        "docs/reference/{name}.md is stale; CAPROOT_BLESS=1 cargo test reference rewrites it\n{}",
        diff(&committed, generated),
    );
}
