//! The tests that `docs/design/security.md` names for its promises exist.

use std::path::Path;

use crate::pages::modules::quoted_names;

const PAGE: &str = include_str!("../../../docs/design/security.md");

/// Returns whether a test exists: a module of `tests/it` or of the sources of a package, or a directory.
fn exists(name: &str) -> bool {
    let path = name.replace("::", "/");
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.join(&path).is_dir()
        || [
            "tests/it",
            "src",
            "src/daemon",
            "crates/core/src",
            "crates/client/src",
        ]
        .map(|dir| package.join(dir).join(&path))
        .iter()
        .any(|module| module.with_extension("rs").is_file() || module.join("mod.rs").is_file())
}

#[test]
fn each_promise_names_tests_that_exist() {
    let rows = PAGE
        .lines()
        .skip_while(|line| !line.starts_with("| promise | shown by |"));
    let rows: Vec<_> = rows
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .collect();
    assert!(rows.len() > 10, "the page has the table");
    for row in rows {
        let tests = quoted_names(row.split('|').nth(2).expect("two cells"));
        assert!(!tests.is_empty(), "a promise without a test: {row}");
        let missing: Vec<_> = tests.iter().filter(|name| !exists(name)).collect();
        assert!(missing.is_empty(), "no test {missing:?}: {row}");
    }
    assert!(!exists("nowhere::at_all"));
}
