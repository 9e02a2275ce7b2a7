//! The `disabled_skills` of a config file: rules by a root's id and a glob, or by a qualified name.

use super::section::{ConfigReader, ConfigValue};
use crate::domain::disabled_skills::{DisableRules, parse_glob};
use crate::domain::{RelPath, RootId};
use globset::Glob;

/// Keys of one rule.
pub(super) const KEYS: [&str; 3] = ["root", "path", "name"];

/// The most rules, and bytes of a glob: each costs time in every search.
const MAX_RULES: usize = 1_000;
const MAX_GLOB_BYTES: usize = 256;
/// The most characters of a qualified name.
const MAX_NAME_CHARS: usize = 128;

/// Reads the rules. `known` are the roots that a rule may name.
pub(super) fn read(
    item: &ConfigValue<'_>,
    known: impl Fn(&RootId) -> bool,
    checker: &mut ConfigReader<'_>,
) -> DisableRules {
    let mut globs = Vec::new();
    let mut names: Vec<Box<str>> = Vec::new();
    let rules = checker.list(item);
    if rules.len() > MAX_RULES {
        checker.report_error(item, format!("has over {MAX_RULES} rules; join some by their globs"));
        return DisableRules::default();
    }
    for rule in rules {
        let Some(section) = checker.section(&rule, &KEYS) else { continue };
        let [root, path, name] = KEYS.map(|key| section.get(key));
        if name.is_some() == (root.is_some() || path.is_some()) {
            checker.report_error(&rule, "needs either `name`, or `root` and `path`");
            continue;
        }
        if let Some(name) = name {
            names.extend(checker.parsed(&name, qualified_name));
            continue;
        }
        let root = checker.required(&section, "root");
        let path = checker.required(&section, "path");
        let root = root.and_then(|item| checker.parsed(&item, |text| root_id(text, &known)));
        let path = path.and_then(|item| checker.parsed(&item, package_glob));
        globs.extend(root.zip(path));
    }
    DisableRules::new(globs, names).unwrap_or_else(|error| {
        checker.report_error(item, format!("cannot be compiled together: {error}"));
        DisableRules::default()
    })
}

fn qualified_name(text: &str) -> Result<Box<str>, &'static str> {
    if text.chars().count() > MAX_NAME_CHARS {
        return Err("is over 128 characters, and so is no skill's name");
    }
    if text.chars().any(char::is_control) || text.trim() != text {
        return Err("is no skill's name: white space around it, or a control character in it");
    }
    Ok(text.into())
}

fn root_id(text: &str, known: impl Fn(&RootId) -> bool) -> Result<RootId, &'static str> {
    let id = RootId::new(text)?;
    if known(&id) { Ok(id) } else { Err("is the id of no published root") }
}

fn package_glob(text: &str) -> Result<Glob, String> {
    if text.len() > MAX_GLOB_BYTES {
        return Err(format!("is over {MAX_GLOB_BYTES} bytes"));
    }
    if text != "." && RelPath::new(text.as_bytes()).is_none() {
        return Err("is no path below the root; write it like `drafts/*`, or `.` for the root \
                    itself"
            .to_owned());
    }
    if text.ends_with("/SKILL.md") || text == "SKILL.md" {
        return Err("names a file; name the skill's directory".to_owned());
    }
    parse_glob(text).map_err(|error| format!("is no glob: {}", error.kind()))
}
