//! What was found in SARIF 2.1.0, which systems for continuous integration show beside the code.
//! Source: OASIS, Static Analysis Results Interchange Format, version 2.1.0.

use super::explain::{markdown, of as explain};
use super::{Checked, Finding};
use crate::domain::shown::shown;
use crate::domain::{Code, Severity};
use serde_json::{Value, json};
use std::path::Path;

const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// One run. Places below `current_dir` are relative to it. `unchecked` are directories that could not
/// be searched, and why.
#[must_use]
pub fn document(
    all: &[Checked],
    unchecked: &[(String, String)],
    current_dir: Option<&Path>,
) -> Value {
    let failures = unchecked.iter().map(|(path, message)| {
        json!({
            "level": "error",
            "message": { "text": shown(&format!("{path}: {message}")) },
        })
    });
    let results = all.iter().flat_map(|c| &c.findings).map(|f| result(f, current_dir));
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": env!("CARGO_PKG_NAME"),
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": Code::ALL.map(rule),
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

fn rule(code: Code) -> Value {
    let all = explain(code);
    json!({
        "id": code.name(),
        "shortDescription": { "text": all.summary },
        "fullDescription": { "text": all.cause },
        "help": { "text": all.cure, "markdown": markdown(code) },
        "defaultConfiguration": { "level": level(all.usual) },
    })
}

fn result(finding: &Finding, current_dir: Option<&Path>) -> Value {
    let problem = &finding.problem;
    let mut place = json!({
        "artifactLocation": { "uri": finding.place.uri(current_dir) },
    });
    if problem.line > 0 {
        let mut region = json!({ "startLine": problem.line });
        if problem.column > 0 {
            region["startColumn"] = problem.column.into();
        }
        place["region"] = region;
    }
    let text = format!("{}\nHelp: {}.", shown(&problem.message), shown(&finding.help));
    json!({
        "ruleId": finding.code().name(),
        "ruleIndex": Code::ALL.iter().position(|code| *code == finding.code()),
        "level": level(finding.severity()),
        "message": { "text": text },
        "locations": [{ "physicalLocation": place }],
    })
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}
