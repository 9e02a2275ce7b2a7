//! Reads `roots` of a config file, and paths of directories.

use super::address;
use super::flags::{is_default_root_id, root};
use super::keys::KeyDefault::{Effect, Value};
use super::keys::KeyValue::{Boolean, Choice, Text};
use super::keys::{self, ConfigKey, key_table};
use super::presets::{FoundRoots, RootPreset};
use crate::daemon::model::{PublishedRoot, RootScope};
use caproot_core::document::{DocumentField, DocumentReader, DocumentSection};
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::wire::RootId;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Effect of a reload that changes `roots` or `allow`.
pub const RELOAD: &str = "applied; a new directory outside the sandbox needs a restart";

const SCOPES: [&str; 4] = ["repo", "user", "system", "admin"];

// Keys of one root.
key_table!(
    KEYS,
    ID = ConfigKey::new(
        "roots[].id",
        Text("text of 1 to 256 bytes"),
        Effect {
            effect: "required without `preset`",
            example: "team"
        },
        "Unique id of the root.",
    ),
    PATH = ConfigKey::new(
        "roots[].path",
        Text("directory"),
        Effect {
            effect: "required without `preset`",
            example: "/srv/skills",
        },
        "Directory of the root. You may create the directory later.",
    ),
    SCOPE = ConfigKey::new(
        "roots[].scope",
        Choice(&SCOPES),
        Value(|| "user".to_owned()),
        "Scope of the skills. Roots are listed in this order.",
    ),
    FOLLOW_LINKS = ConfigKey::new(
        "roots[].follow_links",
        Boolean,
        Effect {
            effect: "`true`; `false` in scope `system`",
            example: "true",
        },
        "Whether links below the root are followed. Must be false in scope `system`.",
    ),
    PRESET = ConfigKey::new(
        "roots[].preset",
        Choice(&RootPreset::NAMES),
        Effect {
            effect: "required without `id` and `path`",
            example: "claude",
        },
        "Tool whose directories of skills are published: `.claude/skills`, for example, in the \
         working directory and in each directory above it, up to the root of the repository \
         (`claude-repo`, `claude-repo-2` and so on), and in the home directory (`claude`).",
    )
    .with_flag("--preset"),
);

/// Roots of the file, with its presets.
#[derive(Debug, Default)]
pub struct RootList {
    pub found: FoundRoots,
    pub presets: Vec<RootPreset>,
    /// Lines of the ids.
    lines: HashMap<RootId, u32>,
}

/// Roots that rules of a file may name.
pub struct KnownRoots<'a> {
    pub in_file: &'a [PublishedRoot],
    pub presets: &'a [RootPreset],
    pub by_flag: &'a [PublishedRoot],
    /// Whether the default roots are published, because the file names neither roots nor directories.
    pub has_defaults: bool,
}

impl KnownRoots<'_> {
    pub fn contains(&self, id: &RootId) -> bool {
        let mut named = self.in_file.iter().chain(self.by_flag);
        named.any(|root| root.id == *id)
            || self.presets.iter().any(|preset| preset.can_have_root(id))
            || self.has_defaults && is_default_root_id(id)
    }

    /// Parses the id of a published root.
    pub fn parse_id(&self, text: &str) -> Result<RootId, &'static str> {
        let id = RootId::new(text)?;
        if self.contains(&id) {
            Ok(id)
        } else {
            Err("no published root has this id")
        }
    }
}

/// Reads the roots.
pub fn read(
    item: &DocumentField<'_>,
    base: Option<&Path>,
    env: &ProcessEnv,
    reader: &mut DocumentReader<'_>,
) -> RootList {
    let mut list = RootList::default();
    for entry in reader.list(item) {
        let Some(section) = reader.section(&entry, keys::names(&KEYS)) else {
            continue;
        };

        if let Some(item) = PRESET.field(&section) {
            if [ID, PATH, SCOPE, FOLLOW_LINKS]
                .iter()
                .any(|key| key.field(&section).is_some())
            {
                reader.report_error(&entry, "set either `preset`, or `id` and `path`");
                continue;
            }
            let preset = reader.parsed(&item, |text| {
                let preset = RootPreset::parse(text)
                    .ok_or_else(|| format!("expected one of {}", RootPreset::NAMES.join(", ")))?;
                if list.presets.contains(&preset) {
                    return Err("duplicate preset".to_owned());
                }
                Ok(preset)
            });
            if let Some(preset) = preset {
                list.add_preset(preset, &item, env, reader);
            }
        } else {
            list.add_root(&section, base, reader);
        }
    }
    list
}

impl RootList {
    /// Reads a root with an id and a path.
    fn add_root(
        &mut self,
        section: &DocumentSection<'_>,
        base: Option<&Path>,
        reader: &mut DocumentReader<'_>,
    ) {
        // All keys are read before an error of one skips the root, so that all errors are reported.
        let id_item = ID.required_field(section, reader);
        let id = id_item.as_ref().and_then(|item| {
            reader.parsed(item, |text| {
                let id = RootId::new(text)?;
                check_unique(&id, &self.lines).map(|()| id)
            })
        });
        let path = PATH.required(section, reader, |text| parse_directory(text, base));
        let scope = SCOPE.field(section).map_or(Some(RootScope::User), |item| {
            reader.parsed(&item, parse_scope)
        });
        let follow_links = FOLLOW_LINKS.field(section).and_then(|item| {
            let follow_links = reader.boolean(&item)?;
            if follow_links && scope == Some(RootScope::System) {
                reader.report_error(&item, "links are not followed in scope system");
            }
            Some(follow_links)
        });

        let (Some(id_item), Some(id), Some(path), Some(scope)) = (id_item, id, path, scope) else {
            return;
        };
        self.lines.insert(id.clone(), id_item.line());
        let mut root = root(id, &path, scope);
        root.follow_links = follow_links.unwrap_or(root.follow_links);
        self.found.roots.push(root);
    }

    /// Adds the roots of a preset. Reports the ids that earlier roots have.
    fn add_preset(
        &mut self,
        preset: RootPreset,
        item: &DocumentField<'_>,
        env: &ProcessEnv,
        reader: &mut DocumentReader<'_>,
    ) {
        self.presets.push(preset);
        let found = preset.find_roots(env);
        self.found.warnings.extend(found.warnings);

        for root in found.roots {
            if let Err(reason) = check_unique(&root.id, &self.lines) {
                reader.report_error(item, format!("root {:?}: {reason}", root.id.as_str()));
                continue;
            }
            self.lines.insert(root.id.clone(), item.line());
            self.found.roots.push(root);
        }
    }
}

/// Checks that no earlier root has the id. `lines` are those of earlier ids.
fn check_unique(id: &RootId, lines: &HashMap<RootId, u32>) -> Result<(), String> {
    match lines.get(id) {
        Some(line) => Err(format!(
            "the root in line {line} has the same id; ids must be unique"
        )),
        None => Ok(()),
    }
}

fn parse_scope(text: &str) -> Result<RootScope, &'static str> {
    match text {
        "repo" => Ok(RootScope::Repo),
        "user" => Ok(RootScope::User),
        "system" => Ok(RootScope::System),
        "admin" => Ok(RootScope::Admin),
        _ => Err("expected repo, user, system or admin"),
    }
}

/// Parses the path of a directory. A missing directory is valid, because it may be created later.
pub fn parse_directory(text: &str, base: Option<&Path>) -> Result<PathBuf, String> {
    if text == "~" || text.starts_with("~/") {
        return Err("`~` is not expanded; write the full path".to_owned());
    }
    address::absolute_directory(text.as_ref(), base)
}
