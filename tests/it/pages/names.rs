//! A type name is defined once in the sources of all packages, so that a name found by grep is the one that the reader meant.

use std::collections::{BTreeMap, BTreeSet};

use crate::pages::modules::{Source, sources};

/// Names that are defined more than once, each with its reason. The list may only shrink.
const DEFINED_TWICE: &[(&str, &str)] = &[(
    "SpanProvider",
    "the feature `otlp` chooses one of two files; never both are compiled",
)];

/// Returns the names of the types that a file defines at the start of a line or in a nested module.
/// Associated types are left out: they are indented and named by their trait.
fn defined_types(source: &Source) -> Vec<String> {
    let code = source.without_tests();
    code.lines()
        .filter_map(|line| defined_type(line.trim_end()))
        .collect()
}

fn defined_type(line: &str) -> Option<String> {
    let item = line.trim_start();
    let is_indented = item.len() < line.len();
    let item = match item.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => item,
    };
    let (keyword, rest) = item.split_once(' ')?;
    let defines = match keyword {
        "struct" | "enum" | "union" | "trait" => true,
        "type" => !is_indented,
        _ => false,
    };
    let end = rest
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(rest.len());
    (defines && rest.starts_with(|c: char| c.is_ascii_uppercase())).then(|| rest[..end].to_owned())
}

#[test]
fn each_type_name_is_defined_once() {
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources() {
        for name in defined_types(&source) {
            files
                .entry(name)
                .or_default()
                .push(source.path.display().to_string());
        }
    }
    let types: usize = files.values().map(Vec::len).sum();
    let listed: BTreeSet<_> = DEFINED_TWICE.iter().map(|(name, _)| *name).collect();
    let twice = files.iter().filter(|(_, files)| files.len() > 1);
    let twice: BTreeMap<_, _> = twice.map(|(name, files)| (name.as_str(), files)).collect();
    let mut wrong: Vec<String> = twice
        .iter()
        .filter(|(name, _)| !listed.contains(*name))
        .map(|(name, files)| format!("`{name}` is defined in {}", files.join(" and ")))
        .collect();
    wrong.extend(
        listed
            .iter()
            .filter(|name| !twice.contains_key(*name))
            .map(|name| format!("`{name}` is defined once now: remove it from DEFINED_TWICE")),
    );
    assert!(types > 500, "only {types} types found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn definitions_of_types_are_recognized() {
    let name = |line| defined_type(line).unwrap_or_default();
    assert_eq!(name("pub struct Catalog {"), "Catalog");
    assert_eq!(name("pub(crate) enum PollReason {"), "PollReason");
    assert_eq!(name("trait Source: Send {"), "Source");
    assert_eq!(
        name("pub(super) type RpcResult<T> = Result<T, Status>;"),
        "RpcResult"
    );
    assert_eq!(name("    type Item = u8;"), "");
    assert_eq!(name("pub fn structure(struct_name: &str) {"), "");
    assert_eq!(name("struct hidden;"), "");
}
