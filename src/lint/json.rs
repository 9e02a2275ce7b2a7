//! Check results as one JSON object.

use super::{CheckFinding, CheckResult, CheckSummary, CheckedSkill};
use crate::lint::fix::FileFix;
use serde_json::{Value, json};

/// Returns `skills`, `diagnostics`, `fixes` (the changed files, with `--fix`), `unchecked`
/// (directories that could not be checked, with the reason) and `summary`. Line or column 0 means
/// that there is no line or column.
#[must_use]
pub fn check_json(all: &[CheckResult], fixes: &[FileFix], unchecked: &[(String, String)]) -> Value {
    let summary = CheckSummary::from_results(all);
    json!({
        "skills": all.iter().flat_map(|c| &c.skills).map(skill_json).collect::<Vec<_>>(),
        "diagnostics": all.iter().flat_map(|c| &c.findings).map(finding_json).collect::<Vec<_>>(),
        "fixes": fixes
            .iter()
            .map(|fix| json!({ "path": fix.path.to_string_lossy(), "diff": fix.diff }))
            .collect::<Vec<_>>(),
        "unchecked": unchecked
            .iter()
            .map(|(path, message)| json!({ "path": path, "message": message }))
            .collect::<Vec<_>>(),
        "summary": {
            "skills": summary.skills,
            "errors": summary.errors,
            "warnings": summary.warnings,
            "notes": summary.notes,
            "files": summary.files,
            "droppedDiagnostics": summary.dropped,
        },
    })
}

fn skill_json(listed: &CheckedSkill) -> Value {
    let skill = &listed.skill;
    json!({
        "name": skill.name(),
        "bareName": skill.frontmatter.name(),
        "plugin": skill.plugin.as_deref(),
        "description": skill.frontmatter.description(),
        "path": listed.path.to_string_lossy(),
    })
}

fn finding_json(finding: &CheckFinding) -> Value {
    json!({
        "code": finding.problem.code.name(),
        "severity": finding.problem.severity.name(),
        "path": finding.path.to_string_lossy(),
        "line": finding.problem.line,
        "column": finding.problem.column,
        "message": finding.problem.message,
        "help": finding.help,
    })
}
