//! Differences between a lock and the current skills and plugins, as text and as JSON.

use crate::cli::ask::report::count_with_noun;
use crate::cli::copy::lock::current_packages::CurrentPackage;
use caproot_core::lock::{
    EntryChange, EntryDifference, EntryKind, FileChange, FileDifference, Lock, LockDifference,
    VersionChange,
};
use caproot_core::text::escape_text;
use caproot_core::wire::handle::encode_path;
use indicatif::HumanCount;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Width of the kind of a difference, and of the indentation of its files.
const KIND_WIDTH: usize = 9;
/// Widest column of names that is aligned.
const MAX_NAME_WIDTH: usize = 48;

/// Returns the lines of the entries of a new lock.
pub fn entry_lines(lock: &Lock) -> Vec<String> {
    let skills = lock.skills().iter();
    let skills = skills.map(|skill| (entry_label(EntryKind::Skill, &skill.name), &skill.files));
    let plugins = lock.plugins().iter();
    let plugins = plugins.map(|entry| (entry_label(EntryKind::Plugin, &entry.name), &entry.files));
    let entries: Vec<_> = skills.chain(plugins).collect();

    let width = name_width(entries.iter().map(|(name, _)| name));
    let lines = entries.iter().map(|(name, files)| {
        let count = count_with_noun(files.len(), "file");
        let bytes = HumanCount(files.total_bytes());
        format!("+ {name:width$}  {count}, {bytes} bytes")
    });
    lines.collect()
}

/// Returns the name of a skill, or the name of a plugin after the word.
fn entry_label(kind: EntryKind, name: &str) -> String {
    match kind {
        EntryKind::Skill => escape_text(name),
        EntryKind::Plugin => format!("plugin {}", escape_text(name)),
    }
}

/// Counts the skills and plugins of a lock by their names.
pub fn count_names(lock: &Lock) -> String {
    let skills: BTreeSet<_> = lock.skills().iter().map(|skill| &skill.name).collect();
    let plugins: BTreeSet<_> = lock.plugins().iter().map(|plugin| &plugin.name).collect();
    let skills = count_with_noun(skills.len(), "skill");
    match plugins.len() {
        0 => skills,
        count => format!("{skills} and {}", count_with_noun(count, "plugin")),
    }
}

/// Returns the lines of the differences.
pub fn difference_lines(difference: &LockDifference) -> Vec<String> {
    let mut lines = Vec::new();
    let detail = |lines: &mut Vec<String>, text: &str| {
        lines.push(format!("{:KIND_WIDTH$}{text}", ""));
    };

    for EntryDifference { kind, name, change } in &difference.entries {
        let label = entry_label(*kind, name);
        lines.push(format!("{:KIND_WIDTH$}{label}", kind_name(change)));
        match change {
            EntryChange::Changed {
                files,
                keys,
                version,
            } => {
                if let Some(VersionChange { approved, current }) = version {
                    let (approved, current) = (shown_version(approved), shown_version(current));
                    detail(&mut lines, &format!("~ version  {approved} -> {current}"));
                }
                lines.extend(file_lines(files));
                for key in keys {
                    detail(&mut lines, &format!("~ {key} in the lock"));
                }
            }
            EntryChange::Twin { packages } => {
                for handle in packages {
                    detail(&mut lines, &escape_text(handle));
                }
            }
            EntryChange::New | EntryChange::Gone => {}
        }
    }
    lines
}

fn shown_version(version: &str) -> String {
    if version.is_empty() {
        "none".to_owned()
    } else {
        escape_text(version)
    }
}

fn file_lines(files: &[FileDifference]) -> Vec<String> {
    let names: Vec<_> = files
        .iter()
        .map(|file| escape_text(&encode_path(&file.path)))
        .collect();
    let width = name_width(names.iter());
    let lines = files.iter().zip(&names).map(|(file, name)| {
        let mark = match file.change {
            FileChange::Added(_) => '+',
            FileChange::Removed(_) => '-',
            FileChange::Changed { .. } => '~',
        };
        let text = change_text(&file.change);
        format!("{:KIND_WIDTH$}{mark} {name:width$}  {text}", "")
    });
    lines.collect()
}

fn change_text(change: &FileChange) -> String {
    let (approved, current) = match change {
        FileChange::Removed(file) => return format!("{} bytes", HumanCount(file.bytes)),
        FileChange::Added(file) => {
            let mode = if file.executable { ", executable" } else { "" };
            return format!("{} bytes{mode}", HumanCount(file.bytes));
        }
        FileChange::Changed { approved, current } => (approved, current),
    };

    let mut text = format!("{} bytes", HumanCount(current.bytes));
    if approved.bytes != current.bytes {
        text = format!("{} -> {text}", HumanCount(approved.bytes));
    } else if approved.digest != current.digest {
        text += ", other content";
    }
    match (approved.executable, current.executable) {
        (false, true) => text += ", now executable",
        (true, false) => text += ", no longer executable",
        _ => {}
    }
    text
}

/// Counts the differences by kind, such as `1 changed, 2 new`.
pub fn count_differences(difference: &LockDifference) -> String {
    let counts = ["changed", "new", "gone", "twin"]
        .into_iter()
        .filter_map(|kind| {
            let count = difference.names(|change| kind_name(change) == kind).count();
            (count > 0).then(|| format!("{count} {kind}"))
        });
    counts.collect::<Vec<_>>().join(", ")
}

fn kind_name(change: &EntryChange) -> &'static str {
    match change {
        EntryChange::Changed { .. } => "changed",
        EntryChange::New => "new",
        EntryChange::Gone => "gone",
        EntryChange::Twin { .. } => "twin",
    }
}

/// Returns the line of a skill or plugin, if it cannot be approved.
pub fn rejection_line(package: &CurrentPackage) -> Option<String> {
    let reason = package.content_digest.as_ref().err()?;
    Some(format!(
        "caproot: {} cannot be approved: {}",
        entry_label(package.kind, &package.name),
        escape_text(reason)
    ))
}

pub fn difference_json(difference: &LockDifference) -> Value {
    let entries = difference.entries.iter().map(|entry| {
        let value = json!({ "name": entry.name, "kind": kind_name(&entry.change) });
        let mut value = with_type(value, entry.kind);
        match &entry.change {
            EntryChange::Changed {
                files,
                keys,
                version,
            } => {
                value["files"] = files.iter().map(file_json).collect();
                value["keys"] = json!(keys);
                if let Some(VersionChange { approved, current }) = version {
                    value["version"] = json!({ "approved": approved, "current": current });
                }
            }
            EntryChange::Twin { packages } => value["packages"] = json!(packages),
            EntryChange::New | EntryChange::Gone => {}
        }
        value
    });
    entries.collect()
}

fn file_json(file: &FileDifference) -> Value {
    let name = encode_path(&file.path);
    match &file.change {
        FileChange::Added(current) => json!({ "name": name, "kind": "added", "current": current }),
        FileChange::Removed(approved) => {
            json!({ "name": name, "kind": "removed", "approved": approved })
        }
        FileChange::Changed { approved, current } => {
            json!({ "name": name, "kind": "changed", "approved": approved, "current": current })
        }
    }
}

pub fn rejections_json(packages: &[CurrentPackage]) -> Value {
    let rejected = packages.iter().filter_map(|package| {
        let reason = package.content_digest.as_ref().err()?;
        let value = json!({ "name": package.name, "reason": reason });
        Some(with_type(value, package.kind))
    });
    rejected.collect()
}

/// Adds the type of a plugin. Skills have none.
fn with_type(mut value: Value, kind: EntryKind) -> Value {
    if kind == EntryKind::Plugin {
        value["type"] = kind.noun().into();
    }
    value
}

fn name_width<'a>(names: impl Iterator<Item = &'a String>) -> usize {
    let widest = names.map(|name| name.chars().count()).max();
    widest.unwrap_or_default().min(MAX_NAME_WIDTH)
}
