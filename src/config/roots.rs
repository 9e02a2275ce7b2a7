//! Reads `roots` of a config file, and paths of directories.

use super::address;
use super::keys::{self, ConfigKey, KeyDefault, KeyReload, KeyValue};
use crate::model::{PublishedRoot, RootScope};
use caproot_core::document::{DocumentField, DocumentReader};
use caproot_core::wire::RootId;
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Effect of a reload that changes `roots` or `allow`.
pub const RELOAD: &str = "applied; a new directory outside the sandbox needs a restart";

const SCOPES: [&str; 4] = ["repo", "user", "system", "admin"];

/// Keys of one root.
pub const KEYS: [ConfigKey; 4] = [
    ConfigKey::new(
        "roots[].id",
        KeyValue::Text("text of 1 to 256 bytes"),
        KeyDefault::Required { example: "team" },
        "Unique id of the root.",
    )
    .with_reload(KeyReload::Section),
    ConfigKey::new(
        "roots[].path",
        KeyValue::Text("directory"),
        KeyDefault::Required {
            example: "/srv/skills",
        },
        "Directory of the root. You may create the directory later.",
    )
    .with_reload(KeyReload::Section),
    ConfigKey::new(
        "roots[].scope",
        KeyValue::Choice(&SCOPES),
        KeyDefault::Value(|| "user".to_owned()),
        "Scope of the skills. Roots are listed in this order.",
    )
    .with_reload(KeyReload::Section),
    ConfigKey::new(
        "roots[].follow_links",
        KeyValue::Boolean,
        KeyDefault::Effect {
            effect: "`true`; `false` in scope `system`",
            example: "true",
        },
        "Whether links below the root are followed. Must be false in scope `system`.",
    )
    .with_reload(KeyReload::Section),
];

/// Reads the roots.
pub fn read(
    item: &DocumentField<'_>,
    base: Option<&Path>,
    reader: &mut DocumentReader<'_>,
) -> Vec<PublishedRoot> {
    let mut lines: HashMap<RootId, u32> = HashMap::new();
    let mut roots = Vec::new();
    for entry in reader.list(item) {
        let Some(section) = reader.section(&entry, keys::names(&KEYS)) else {
            continue;
        };
        let id = reader.required(&section, "id");
        let path = reader.required(&section, "path");
        let scope = section.get("scope").map(|item| reader.parsed(&item, scope));
        let scope = scope.unwrap_or(Some(RootScope::User));
        let path = path.and_then(|item| reader.parsed(&item, |text| parse_directory(text, base)));
        let follow = section
            .get("follow_links")
            .map(|item| (reader.boolean(&item), item));
        if let (Some((Some(true), item)), Some(RootScope::System)) = (&follow, scope) {
            reader.report_error(item, "links are not followed in scope system");
        }
        let follow_links = follow.and_then(|(given, _)| given);
        let Some(id) = id else { continue };
        let line = id.line();
        let taken = |id: RootId| match lines.get(&id) {
            Some(line) => Err(format!(
                "the root in line {line} has the same id; ids must be unique"
            )),
            None => Ok(id),
        };
        let parsed = reader.parsed(&id, |text| {
            RootId::new(text).map_err(str::to_owned).and_then(taken)
        });
        let (Some(id), Some(path), Some(scope)) = (parsed, path, scope) else {
            continue;
        };
        lines.insert(id.clone(), line);
        roots.push(PublishedRoot {
            id,
            path: path.as_os_str().as_bytes().into(),
            scope,
            follow_links: follow_links.unwrap_or(scope != RootScope::System),
            is_optional: false,
        });
    }
    roots
}

fn scope(text: &str) -> Result<RootScope, &'static str> {
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
    let dir = address::absolute_path(text.as_ref(), base)?;
    if dir.exists() && !dir.is_dir() {
        return Err("is not a directory".to_owned());
    }
    Ok(dir)
}
