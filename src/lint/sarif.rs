//! Check results in SARIF 2.1.0, which CI systems show next to the code. Source: OASIS, Static
//! Analysis Results Interchange Format, version 2.1.0.

use super::{CheckFinding, CheckResult};
use crate::daemon::model::DiagnosticCode;
use crate::lint::explain::{explanation_markdown, explanation_of as explain};
use caproot_core::text::escape_text;
use serde_json::{Value, json};
use std::path::Path;

const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// Returns a log with one run. Paths below `current_dir` are relative. `unchecked` has the
/// directories that could not be checked, with the reason.
#[must_use]
pub fn sarif_log(
    all: &[CheckResult],
    unchecked: &[(String, String)],
    current_dir: Option<&Path>,
) -> Value {
    let failures = unchecked.iter().map(|(path, message)| {
        json!({
            "level": "error",
            "message": { "text": escape_text(&format!("{path}: {message}")) },
        })
    });

    let findings = || all.iter().flat_map(|result| &result.findings);
    let has_code = |code: &DiagnosticCode| findings().any(|finding| finding.problem.code == *code);
    let codes: Vec<_> = DiagnosticCode::ALL.into_iter().filter(has_code).collect();
    let results = findings().map(|finding| sarif_result(finding, &codes, current_dir));

    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": env!("CARGO_PKG_NAME"),
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": codes.iter().copied().map(sarif_rule).collect::<Vec<_>>(),
            } },
            "columnKind": "unicodeCodePoints",
            "invocations": [{
                "executionSuccessful": unchecked.is_empty(),
                "toolExecutionNotifications": failures.collect::<Vec<_>>(),
            }],
            "results": results.collect::<Vec<_>>(),
        }],
    })
}

fn sarif_rule(code: DiagnosticCode) -> Value {
    let all = explain(code);
    json!({
        "id": code.name(),
        "shortDescription": { "text": all.summary },
        "fullDescription": { "text": all.cause },
        "help": { "text": all.fix, "markdown": explanation_markdown(code) },
        "defaultConfiguration": { "level": all.default_severity.name().to_lowercase() },
    })
}

fn sarif_result(
    finding: &CheckFinding,
    codes: &[DiagnosticCode],
    current_dir: Option<&Path>,
) -> Value {
    let problem = &finding.problem;
    let mut location = json!({
        "artifactLocation": { "uri": finding.path.to_uri(current_dir) },
    });

    if problem.line > 0 {
        let mut region = json!({ "startLine": problem.line });
        if problem.column > 0 {
            region["startColumn"] = problem.column.into();
        }
        location["region"] = region;
    }

    let text = format!(
        "{}\nHelp: {}.",
        escape_text(&problem.message),
        escape_text(&finding.help)
    );
    json!({
        "ruleId": problem.code.name(),
        "ruleIndex": codes.iter().position(|code| *code == problem.code),
        "level": problem.severity.name().to_lowercase(),
        "message": { "text": text },
        "locations": [{ "physicalLocation": location }],
    })
}
