//! Differences between a lock and the current skills, as text and as JSON.

use crate::cli::ask::report::count_with_noun;
use crate::cli::copy::lock::current_skills::RejectedSkill;
use caproot_core::lock::{
    ApprovedSkill, FileChange, FileDifference, LockDifference, SkillChange, SkillDifference,
};
use caproot_core::text::escape_text;
use caproot_core::wire::handle::encode_path;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Width of the kind of a difference, and of the indentation of its files.
const KIND_WIDTH: usize = 9;
/// Widest column of names that is aligned.
const MAX_NAME_WIDTH: usize = 48;

/// Returns the lines of the entries of a new lock.
pub fn entry_lines(skills: &[ApprovedSkill]) -> Vec<String> {
    let names: Vec<_> = skills
        .iter()
        .map(|skill| escape_text(&skill.name))
        .collect();
    let width = name_width(&names);
    let lines = skills.iter().zip(&names).map(|(skill, name)| {
        let files = count_with_noun(skill.files.len(), "file");
        let bytes = group_digits(skill.files.total_bytes());
        format!("+ {name:width$}  {files}, {bytes} bytes")
    });
    lines.collect()
}

/// Returns the lines of the differences.
pub fn difference_lines(difference: &LockDifference) -> Vec<String> {
    let mut lines = Vec::new();
    for SkillDifference { name, change } in &difference.skills {
        let kind = kind_name(change);
        lines.push(format!("{kind:KIND_WIDTH$}{}", escape_text(name)));
        if let SkillChange::Changed { files, description } = change {
            lines.extend(file_lines(files));
            let keys = description.iter();
            lines.extend(keys.map(|key| format!("{:KIND_WIDTH$}~ {key} in the lock", "")));
        }
        if let SkillChange::Twin { packages } = change {
            let packages = packages.iter();
            lines.extend(
                packages.map(|handle| format!("{:KIND_WIDTH$}{}", "", escape_text(handle))),
            );
        }
    }
    lines
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

fn kind_name(change: &SkillChange) -> &'static str {
    match change {
        SkillChange::Changed { .. } => "changed",
        SkillChange::New => "new",
        SkillChange::Gone => "gone",
        SkillChange::Twin { .. } => "twin",
    }
}

/// Returns the line of a skill that cannot be approved.
pub fn rejection_line(skill: &RejectedSkill) -> String {
    let RejectedSkill { name, reason } = skill;
    format!(
        "caproot: {} cannot be approved: {}",
        escape_text(name),
        escape_text(reason)
    )
}

pub fn difference_json(difference: &LockDifference) -> Value {
    let skills = difference.skills.iter().map(|skill| {
        let mut entry = json!({ "name": skill.name, "kind": kind_name(&skill.change) });
        if let SkillChange::Changed { files, description } = &skill.change {
            entry["files"] = files.iter().map(file_json).collect();
            entry["description"] = json!(description);
        }
        if let SkillChange::Twin { packages } = &skill.change {
            entry["packages"] = json!(packages);
        }
        entry
    });
    skills.collect()
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

pub fn rejections_json(rejected: &[RejectedSkill]) -> Value {
    rejected
        .iter()
        .map(|skill| json!({ "name": skill.name, "reason": skill.reason }))
        .collect()
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
