//! Report of roots and diagnostics in the style of a compiler, with a summary.

use super::failure::ALLOW_HINT;
use caproot_core::proto::caproot::v1::{
    Diagnostic, DiagnosticCode, ListRootsResponse, ListSkillsResponse, ResolveRootsResponse,
    ResolvedRoot, RootReason, RootState, RootStatus, Severity,
};
use caproot_core::text::{EscapedText, escape_text};
use std::fmt::Write as _;

/// Hint if the daemon publishes no root to this caller.
pub const NOTHING_PUBLISHED: &str = "hint: no root is published to you: list directories under \
     `roots` in the daemon's config file and reload it, start the daemon with --root DIR, or select a \
     directory here with --root DIR";

/// Returns the lines for roots that are not ready, for diagnostics from WARNING up, and for the
/// summary.
pub fn skills_report(list: &ListSkillsResponse) -> Vec<String> {
    let what = format!("{} in ", count_with_noun(list.skills.len(), "skill"));
    report_lines(&what, &list.roots, &list.diagnostics, list.truncated)
}

/// Returns the report of resolved roots.
pub fn resolve_report(answer: &ResolveRootsResponse) -> Vec<String> {
    let roots: Vec<_> = answer.roots.iter().map(root_status).collect();
    let diagnostics: Vec<_> = answer
        .roots
        .iter()
        .flat_map(|root| root.diagnostics.clone())
        .collect();
    let is_truncated = roots.iter().any(|root| root.truncated);
    report_lines("", &roots, &diagnostics, is_truncated)
}

fn root_status(root: &ResolvedRoot) -> RootStatus {
    RootStatus {
        id: root.id.clone(),
        state: root.state,
        reason: root.reason,
        message: root.message.clone(),
        counts: root.counts,
        truncated: root.truncated,
        ..RootStatus::default()
    }
}

/// Returns the report of published roots.
pub fn roots_report(answer: &ListRootsResponse) -> Vec<String> {
    let roots = answer.roots.iter().map(|root| RootStatus {
        id: root.id.clone(),
        state: root.state,
        reason: root.reason,
        message: root.message.clone(),
        ..RootStatus::default()
    });
    report_lines("published: ", &roots.collect::<Vec<_>>(), &[], false)
}

/// Returns the state of a root, with the reason if there is one.
pub fn root_state_text(state: RootState, reason: i32) -> String {
    let name = strip_enum_prefix(state.as_str_name(), "ROOT_STATE_");
    if state == RootState::Unavailable {
        format!("{name} {}", root_reason_name(reason))
    } else {
        name.to_owned()
    }
}

fn report_lines(
    what: &str,
    roots: &[RootStatus],
    of: &[Diagnostic],
    truncated: bool,
) -> Vec<String> {
    let mut lines: Vec<String> = roots.iter().filter_map(root_line).collect();
    lines.extend(of.iter().filter_map(diagnostic_line));
    lines.push(summary_line(what, roots, of, truncated));

    let mut reasons = roots.iter().map(RootStatus::reason);
    if reasons.any(|reason| reason == RootReason::NotAllowed) {
        lines.push(format!("hint: {ALLOW_HINT}"));
    }
    lines
}

fn root_line(root: &RootStatus) -> Option<String> {
    let head = match root.state() {
        RootState::Ready => return None,
        RootState::Pending => "warning[PENDING]".to_owned(),
        RootState::Unavailable | RootState::Unspecified => {
            format!("error[{}]", root_reason_name(root.reason))
        }
    };
    Some(with_message(
        format!("{head} root {}", EscapedText(&root.id)),
        &root.message,
    ))
}

/// Returns the name of the reason, or its number if the daemon is newer than this client.
pub fn root_reason_name(reason: i32) -> String {
    RootReason::try_from(reason).map_or_else(
        |number| number.0.to_string(),
        |reason| strip_enum_prefix(reason.as_str_name(), "ROOT_REASON_").to_owned(),
    )
}

/// Formats a diagnostic from WARNING up as one line.
pub fn diagnostic_line(diagnostic: &Diagnostic) -> Option<String> {
    let severity = match diagnostic.severity() {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note | Severity::Unspecified => return None,
    };

    // A newer daemon may have codes that this client does not know.
    let code = DiagnosticCode::try_from(diagnostic.code).map_or_else(
        |number| number.0.to_string(),
        |code| strip_enum_prefix(code.as_str_name(), "DIAGNOSTIC_CODE_").to_owned(),
    );

    let mut line = format!("{severity}[{code}] ");
    if diagnostic.resource.is_empty() {
        let _ = write!(line, "root {}", EscapedText(&diagnostic.root_id));
    } else {
        let _ = write!(line, "{}", EscapedText(&diagnostic.resource));
    }

    if diagnostic.line > 0 {
        let _ = write!(line, ":{}", diagnostic.line);
        if diagnostic.column > 0 {
            let _ = write!(line, ":{}", diagnostic.column);
        }
    }
    Some(with_message(line, &diagnostic.message))
}

fn with_message(mut line: String, message: &str) -> String {
    if !message.is_empty() {
        let _ = write!(line, ": {}", EscapedText(message));
    }
    line
}

pub fn strip_enum_prefix<'a>(name: &'a str, prefix: &str) -> &'a str {
    name.strip_prefix(prefix).unwrap_or(name)
}

fn summary_line(what: &str, roots: &[RootStatus], of: &[Diagnostic], truncated: bool) -> String {
    let mut line = format!("{what}{}", count_with_noun(roots.len(), "root"));

    let unready = roots
        .iter()
        .filter(|root| root.state() != RootState::Ready)
        .count();
    if unready > 0 {
        let _ = write!(line, " ({unready} not ready)");
    }

    for (severity, name) in [(Severity::Error, "error"), (Severity::Warning, "warning")] {
        let count = of.iter().filter(|d| d.severity() == severity).count();
        if count > 0 {
            let _ = write!(line, ", {}", count_with_noun(count, name));
        }
    }

    let total: u64 = roots
        .iter()
        .filter_map(|root| root.counts)
        .map(|c| u64::from(c.diagnostics))
        .sum();
    let unsent = total.saturating_sub(of.len() as u64);
    if unsent > 0 {
        let _ = write!(line, ", {unsent} more not in the response");
    }

    if truncated {
        line.push_str("; the scan ended at a limit");
    }
    line
}

pub fn count_with_noun(count: usize, thing: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {thing}{plural}")
}

/// Returns a line for each file that the daemon does not serve.
pub fn withheld_lines(withheld: &[String]) -> Vec<String> {
    let lines = withheld.iter().map(|handle| {
        format!(
            "not served, because it may hold keys or passwords: {}",
            escape_text(handle)
        )
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::skills_report;
    use caproot_core::proto::caproot::v1::{
        Diagnostic, DiagnosticCode, ListSkillsResponse, RootCounts, RootReason, RootState,
        RootStatus, Severity, Skill,
    };

    #[test]
    fn report_looks_like_compiler_output() {
        let root = |id: &str, state: RootState, reason: RootReason| RootStatus {
            id: id.into(),
            state: state.into(),
            reason: reason.into(),
            ..RootStatus::default()
        };
        let diagnostic = |severity: Severity, resource: &str, line, column| Diagnostic {
            code: DiagnosticCode::YamlSyntax.into(),
            severity: severity.into(),
            root_id: "r".into(),
            resource: resource.into(),
            message: "a\u{202e}b".into(),
            line,
            column,
        };
        let list = ListSkillsResponse {
            skills: vec![Skill::default()],
            roots: vec![
                RootStatus {
                    counts: Some(RootCounts {
                        diagnostics: 9,
                        ..RootCounts::default()
                    }),
                    ..root("r", RootState::Ready, RootReason::Unspecified)
                },
                root("p", RootState::Pending, RootReason::Unspecified),
                RootStatus {
                    message: "Create it.".into(),
                    ..root("u\x1b", RootState::Unavailable, RootReason::NotFound)
                },
            ],
            diagnostics: vec![
                diagnostic(Severity::Error, "skill://r/a/SKILL.md", 3, 7),
                Diagnostic {
                    code: 999,
                    ..diagnostic(Severity::Warning, "", 0, 0)
                },
                diagnostic(Severity::Note, "", 0, 0),
            ],
            truncated: true,
            ..ListSkillsResponse::default()
        };
        assert_eq!(
            skills_report(&list),
            [
                "warning[PENDING] root p",
                r"error[NOT_FOUND] root u\u{1b}: Create it.",
                r"error[YAML_SYNTAX] skill://r/a/SKILL.md:3:7: a\u{202e}b",
                r"warning[999] root r: a\u{202e}b",
                "1 skill in 3 roots (2 not ready), 1 error, 1 warning, 6 more not in the response; \
                 the scan ended at a limit",
            ]
        );
    }
}
