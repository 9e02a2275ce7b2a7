//! Reads `roots` of a config file, and paths of directories.

use super::address;
use super::keys::{self, ConfigKey, KeyDefault, KeyReload, KeyValue, key_table};
use crate::model::{PublishedRoot, RootScope};
use caproot_core::document::{DocumentField, DocumentReader, DocumentSection};
use caproot_core::wire::RootId;
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Effect of a reload that changes `roots` or `allow`.
pub const RELOAD: &str = "applied; a new directory outside the sandbox needs a restart";

const SCOPES: [&str; 4] = ["repo", "user", "system", "admin"];

// Keys of one root.
key_table!(
    KEYS,
    ID = ConfigKey::new(
        "roots[].id",
        KeyValue::Text("text of 1 to 256 bytes"),
        KeyDefault::Required { example: "team" },
        "Unique id of the root.",
    )
    .with_reload(KeyReload::Section),
    PATH = ConfigKey::new(
        "roots[].path",
        KeyValue::Text("directory"),
        KeyDefault::Required {
            example: "/srv/skills",
        },
        "Directory of the root. You may create the directory later.",
    )
    .with_reload(KeyReload::Section),
    SCOPE = ConfigKey::new(
        "roots[].scope",
        KeyValue::Choice(&SCOPES),
        KeyDefault::Value(|| "user".to_owned()),
        "Scope of the skills. Roots are listed in this order.",
    )
    .with_reload(KeyReload::Section),
    FOLLOW_LINKS = ConfigKey::new(
        "roots[].follow_links",
        KeyValue::Boolean,
        KeyDefault::Effect {
            effect: "`true`; `false` in scope `system`",
            example: "true",
        },
        "Whether links below the root are followed. Must be false in scope `system`.",
    )
    .with_reload(KeyReload::Section),
);

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

        // All keys are read before an error of one skips the root, so that all errors are reported.
        let id_item = ID.required_field(&section, reader);
        let id = id_item
            .as_ref()
            .and_then(|item| read_id(item, &lines, reader));
        let path = PATH
            .required_field(&section, reader)
            .and_then(|item| reader.parsed(&item, |text| parse_directory(text, base)));
        let scope = SCOPE.field(&section).map_or(Some(RootScope::User), |item| {
            reader.parsed(&item, parse_scope)
        });
        let follow_links = read_follow_links(&section, scope, reader);

        let (Some(id_item), Some(id), Some(path), Some(scope)) = (id_item, id, path, scope) else {
            continue;
        };
        lines.insert(id.clone(), id_item.line());
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

/// Reads the id of a root. Reports an id that an earlier root has. `lines` are those of earlier ids.
fn read_id(
    item: &DocumentField<'_>,
    lines: &HashMap<RootId, u32>,
    reader: &mut DocumentReader<'_>,
) -> Option<RootId> {
    reader.parsed(item, |text| {
        let id = RootId::new(text)?;
        match lines.get(&id) {
            Some(line) => Err(format!(
                "the root in line {line} has the same id; ids must be unique"
            )),
            None => Ok(id),
        }
    })
}

fn read_follow_links(
    section: &DocumentSection<'_>,
    scope: Option<RootScope>,
    reader: &mut DocumentReader<'_>,
) -> Option<bool> {
    let item = FOLLOW_LINKS.field(section)?;
    let follow_links = reader.boolean(&item);
    if follow_links == Some(true) && scope == Some(RootScope::System) {
        reader.report_error(&item, "links are not followed in scope system");
    }
    follow_links
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
    let dir = address::absolute_path(text.as_ref(), base)?;
    if dir.exists() && !dir.is_dir() {
        return Err("is not a directory".to_owned());
    }
    Ok(dir)
}
