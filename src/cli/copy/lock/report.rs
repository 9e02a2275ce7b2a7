//! Differences between a lock and the current skills and plugins, as text and as JSON.

use crate::cli::ask::report::count_with_noun;
use crate::cli::copy::lock::current_packages::RejectedPackage;
use caproot_core::lock::{
    ApprovedFiles, EntryChange, EntryDifference, EntryKind, FileChange, FileDifference, Lock,
    LockDifference, VersionChange,
};
use caproot_core::text::escape_text;
use caproot_core::wire::handle::encode_path;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Width of the kind of a difference, and of the indentation of its files.
const KIND_WIDTH: usize = 9;
/// Widest column of names that is aligned.
const MAX_NAME_WIDTH: usize = 48;

/// Returns the lines of the entries of a new lock.
pub fn entry_lines(lock: &Lock) -> Vec<String> {
    let skills = lock.skills().iter();
    let skills = skills.map(|skill| (EntryKind::Skill, &*skill.name, &skill.files));
    let plugins = lock.plugins().iter();
    let plugins = plugins.map(|plugin| (EntryKind::Plugin, &*plugin.name, &plugin.files));
    let entries: Vec<(_, _, &ApprovedFiles)> = skills.chain(plugins).collect();

    let names: Vec<_> = entries
        .iter()
        .map(|(kind, name, _)| entry_label(*kind, name))
        .collect();
    let width = name_width(&names);
    let lines = entries.iter().zip(&names).map(|((_, _, files), name)| {
        let count = count_with_noun(files.len(), "file");
        let bytes = group_digits(files.total_bytes());
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
    let width = name_width(&names);
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
        FileChange::Removed(file) => return format!("{} bytes", group_digits(file.bytes)),
        FileChange::Added(file) => {
            let mode = if file.executable { ", executable" } else { "" };
            return format!("{} bytes{mode}", group_digits(file.bytes));
        }
        FileChange::Changed { approved, current } => (approved, current),
    };

    let mut text = if approved.bytes == current.bytes {
        format!("{} bytes", group_digits(current.bytes))
    } else {
        let before = group_digits(approved.bytes);
        format!("{before} -> {} bytes", group_digits(current.bytes))
    };
    if approved.bytes == current.bytes && approved.digest != current.digest {
        text.push_str(", other content");
    }
    match (approved.executable, current.executable) {
        (false, true) => text.push_str(", now executable"),
        (true, false) => text.push_str(", no longer executable"),
        _ => {}
    }
    text
}

/// Counts the differences by kind, such as `1 changed, 2 new`.
pub fn count_differences(difference: &LockDifference) -> String {
    let mut text = String::new();
    for kind in ["changed", "new", "gone", "twin"] {
        let count = difference.names(|change| kind_name(change) == kind).count();
        if count > 0 {
            let comma = if text.is_empty() { "" } else { ", " };
            // A write to a `String` does not fail.
            let _ = write!(text, "{comma}{count} {kind}");
        }
    }
    text
}

fn kind_name(change: &EntryChange) -> &'static str {
    match change {
        EntryChange::Changed { .. } => "changed",
        EntryChange::New => "new",
        EntryChange::Gone => "gone",
        EntryChange::Twin { .. } => "twin",
    }
}

/// Returns the line of a skill or plugin that cannot be approved.
pub fn rejection_line(package: &RejectedPackage) -> String {
    format!(
        "caproot: {} cannot be approved: {}",
        entry_label(package.kind, &package.name),
        escape_text(&package.reason)
    )
}

pub fn difference_json(difference: &LockDifference) -> Value {
    let entries = difference.entries.iter().map(|entry| {
        let mut value = json!({ "name": entry.name, "kind": kind_name(&entry.change) });
        if entry.kind == EntryKind::Plugin {
            value["type"] = entry.kind.noun().into();
        }
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

pub fn rejections_json(rejected: &[RejectedPackage]) -> Value {
    let rejected = rejected.iter().map(|package| {
        let mut value = json!({ "name": package.name, "reason": package.reason });
        if package.kind == EntryKind::Plugin {
            value["type"] = package.kind.noun().into();
        }
        value
    });
    rejected.collect()
}

fn name_width(names: &[String]) -> usize {
    let widest = names.iter().map(|name| name.chars().count()).max();
    widest.unwrap_or_default().min(MAX_NAME_WIDTH)
}

/// Formats a number with a comma before each third digit.
fn group_digits(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::group_digits;

    #[test]
    fn numbers_have_a_comma_before_each_third_digit() {
        let grouped = [0, 12, 999, 1_418, 1_000_000].map(group_digits);
        assert_eq!(grouped, ["0", "12", "999", "1,418", "1,000,000"]);
    }
}
