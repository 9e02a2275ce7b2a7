//! Reads `disabled_skills` of a config file: rules with the id of a root and a glob, or with a
//! qualified name.

use super::keys::KeyDefault::Effect;
use super::keys::KeyValue::Text;
use super::keys::{self, ConfigKey, key_table};
use super::roots::KnownRoots;
use crate::daemon::model::disabled_skills::{DisableRules, parse_glob};
use caproot_core::document::{DocumentField, DocumentReader};
use caproot_core::wire::RelPath;
use globset::Glob;

// Keys of one rule.
key_table!(
    KEYS,
    ROOT = ConfigKey::new(
        "disabled_skills[].root",
        Text("id of a published root"),
        Effect {
            effect: "required with `path`",
            example: "team"
        },
        "Root of the skills.",
    ),
    PATH = ConfigKey::new(
        "disabled_skills[].path",
        Text("glob of at most 256 bytes"),
        Effect {
            effect: "required with `root`",
            example: "drafts/**"
        },
        "Glob for the directory of the skill, relative to the root. `*` does not match `/`, `**` does. \
         `.` is the root itself.",
    ),
    NAME = ConfigKey::new(
        "disabled_skills[].name",
        Text("qualified name of at most 128 characters"),
        Effect {
            effect: "required without `root` and `path`",
            example: "deploy-plugin:roll-back",
        },
        "Qualified name of a skill. The rule applies to every root.",
    ),
);

/// Most rules, and most bytes of a glob: both cost time in every scan.
const MAX_RULES: usize = 1_000;
const MAX_GLOB_BYTES: usize = 256;
/// Most characters of a qualified name.
const MAX_NAME_CHARS: usize = 128;

/// Reads the rules.
pub fn read(
    item: &DocumentField<'_>,
    known_roots: &KnownRoots<'_>,
    reader: &mut DocumentReader<'_>,
) -> DisableRules {
    let rules = reader.list(item);
    if rules.len() > MAX_RULES {
        reader.report_error(
            item,
            format!("more than {MAX_RULES} rules; combine rules by globs"),
        );
        return DisableRules::default();
    }

    let mut globs = Vec::new();
    let mut names: Vec<Box<str>> = Vec::new();
    for rule in rules {
        let Some(section) = reader.section(&rule, keys::names(&KEYS)) else {
            continue;
        };

        let name = NAME.field(&section);
        let has_place = ROOT.field(&section).is_some() || PATH.field(&section).is_some();
        if name.is_some() == has_place {
            reader.report_error(&rule, "set either `name`, or `root` and `path`");
            continue;
        }
        if let Some(name) = name {
            names.extend(reader.parsed(&name, qualified_name));
            continue;
        }

        // Both keys are read before an error skips the rule, so that all errors are reported.
        let root = ROOT.required(&section, reader, |text| known_roots.parse_id(text));
        let path = PATH.required(&section, reader, package_glob);
        globs.extend(root.zip(path));
    }

    DisableRules::new(globs, names).unwrap_or_else(|error| {
        reader.report_error(item, format!("compiling the globs failed: {error}"));
        DisableRules::default()
    })
}

fn qualified_name(text: &str) -> Result<Box<str>, &'static str> {
    if text.chars().count() > MAX_NAME_CHARS {
        return Err("longer than 128 characters, the limit of skill names");
    }
    plain_name(text)
}

/// Parses a name without white space around it and without control characters.
pub fn plain_name(text: &str) -> Result<Box<str>, &'static str> {
    if text.chars().any(char::is_control) || text.trim() != text {
        return Err("must not start or end with white space or contain a control character");
    }
    Ok(text.into())
}

fn package_glob(text: &str) -> Result<Glob, String> {
    if text.len() > MAX_GLOB_BYTES {
        return Err(format!("longer than {MAX_GLOB_BYTES} bytes"));
    }
    if text != "." && RelPath::new(text.as_bytes()).is_none() {
        return Err(
            "expected a path below the root, such as `drafts/*`, or `.` for the root".to_owned(),
        );
    }
    if text.ends_with("/SKILL.md") || text == "SKILL.md" {
        return Err("expected the directory of a skill, found a file".to_owned());
    }
    parse_glob(text).map_err(|error| format!("invalid glob: {}", error.kind()))
}
