//! What was found as one JSON object.

use super::{Checked, Finding, Listed, Summary};
use serde_json::{Value, json};

/// `skills`, `diagnostics`, `unchecked` (directories that could not be searched, and why) and
/// `summary`. A line or column of 0 is none.
#[must_use]
pub fn document(all: &[Checked], unchecked: &[(String, String)]) -> Value {
    let Summary { skills, errors, warnings, notes, files, dropped } = Summary::of(all);
    json!({
        "skills": all.iter().flat_map(|c| &c.skills).map(skill).collect::<Vec<_>>(),
        "diagnostics": all.iter().flat_map(|c| &c.findings).map(finding).collect::<Vec<_>>(),
        "unchecked": unchecked
            .iter()
            .map(|(path, message)| json!({ "path": path, "message": message }))
            .collect::<Vec<_>>(),
        "summary": {
            "skills": skills,
            "errors": errors,
            "warnings": warnings,
            "notes": notes,
            "files": files,
            "dropped": dropped,
        },
    })
}

fn skill(listed: &Listed) -> Value {
    let skill = &listed.skill;
    json!({
        "name": skill.name(),
        "bareName": skill.authored.name(),
        "plugin": skill.plugin.as_deref(),
        "description": skill.authored.description(),
        "path": listed.place.lossy(),
    })
}

fn finding(finding: &Finding) -> Value {
    json!({
        "code": finding.code().name(),
        "severity": finding.severity().name(),
        "path": finding.place.lossy(),
        "line": finding.problem.line,
        "column": finding.problem.column,
        "message": finding.problem.message,
        "help": finding.help,
    })
}
