//! Files of the repository that hold the output of the code: generated pages, and tables of errors.

use std::path::Path;
use std::{env, fs};

use crate::harness::diff::diff;

/// Compares a file with generated text, and panics with the difference. With the environment
/// variable `CAPROOT_BLESS`, writes the file instead.
pub(crate) fn check_file(path: &str, generated: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if env::var_os("CAPROOT_BLESS").is_some() {
        fs::create_dir_all(file.parent().expect("a directory")).expect("its directory");
        fs::write(&file, generated).expect("the file is written");
        return;
    }
    let committed = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        committed == generated,
        "{path} is stale; run this test with CAPROOT_BLESS=1 to rewrite it, and review the \
         difference: - file, + code\n{}",
        diff(&committed, generated),
    );
}

/// Checks a table of inputs and outputs. Empty lines separate the cases. The lines of a case that
/// begin with `->` are the output for the lines before. A block of comments is no case.
pub(crate) fn check_cases(path: &str, output_of: impl Fn(&str) -> String) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let table = fs::read_to_string(&file).expect("the file of the table");
    let blocks = table.trim_end().split("\n\n").map(|block| {
        let input: Vec<_> = block
            .lines()
            .filter(|line| !line.starts_with("->"))
            .collect();
        let mut input = input.join("\n");
        if !input.lines().all(|line| line.starts_with('#')) {
            let output = output_of(&input);
            assert!(!output.is_empty(), "a case without output: {input}");
            for line in output.lines() {
                input.push_str(format!("\n-> {line}").trim_end());
            }
        }
        input
    });
    check_file(path, &(blocks.collect::<Vec<_>>().join("\n\n") + "\n"));
}
