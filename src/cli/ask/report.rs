//! Report of roots and diagnostics in the style of a compiler, with a summary.

use crate::cli::failure::ALLOW_HINT;
use caproot_core::proto::caproot::v1::{
    Diagnostic, DiagnosticCode, ListRootsResponse, ListSkillsResponse, ResolveRootsResponse,
    RootReason, RootState, RootStatus, Severity,
};
use caproot_core::text::{EscapedText, escape_text};
use std::fmt::Write as _;

/// Maximum number of problems that have a line each.
const MAX_PROBLEM_LINES: usize = 10;

/// Hint if the daemon publishes no root to this caller.
pub const NOTHING_PUBLISHED: &str = "hint: no root is published to you: list directories under \
     `roots` in the daemon's config file and reload it, start the daemon with --root DIR, or select a \
     directory here with --root DIR";

/// Returns the lines for roots that are not ready, for diagnostics from WARNING up, and for the
/// summary. Many diagnostics are one line for each code.
pub fn skills_report(list: &ListSkillsResponse) -> Vec<String> {
    let problems = list.diagnostics.iter().filter_map(diagnostic_line);
    if problems.count() <= MAX_PROBLEM_LINES {
        return full_skills_report(list);
    }
    let mut lines = skills_report_lines(list, code_lines(&list.diagnostics));
    lines.push("hint: `caproot list --problems` shows each problem".to_owned());
    lines
}

/// Returns the report with a line for each diagnostic from WARNING up.
pub fn full_skills_report(list: &ListSkillsResponse) -> Vec<String> {
    skills_report_lines(
        list,
        list.diagnostics
            .iter()
            .filter_map(diagnostic_line)
            .collect(),
    )
}

fn skills_report_lines(list: &ListSkillsResponse, problems: Vec<String>) -> Vec<String> {
    let what = format!("{} in ", count_with_noun(list.skills.len(), "skill"));
    let summary = summary_line(&what, &list.roots, &list.diagnostics, list.truncated);
    report_lines(&list.roots, problems, summary)
}

/// Returns a line for each code from WARNING up, in the order of the diagnostics.
fn code_lines(diagnostics: &[Diagnostic]) -> Vec<String> {
    let mut groups: Vec<(String, &Diagnostic, usize)> = Vec::new();
    for diagnostic in diagnostics {
        let Some(head) = diagnostic_head(diagnostic) else {
            continue;
        };
        match groups.iter_mut().find(|(known, ..)| *known == head) {
            Some((_, _, count)) => *count += 1,
            None => groups.push((head, diagnostic, 1)),
        }
    }

    let lines = groups.into_iter().map(|(head, first, count)| {
        let place = diagnostic_place(first);
        match count - 1 {
            0 => format!("{head} {place}"),
            more => format!("{head} {place} and {more} more"),
        }
    });
    lines.collect()
}

/// Returns the report of resolved roots.
pub fn resolve_report(answer: &ResolveRootsResponse) -> Vec<String> {
    let roots = answer.roots.iter().map(|root| RootStatus {
        id: root.id.clone(),
        state: root.state,
        reason: root.reason,
        message: root.message.clone(),
        counts: root.counts,
        ..RootStatus::default()
    });
    let roots: Vec<_> = roots.collect();
    let diagnostics: Vec<_> = answer
        .roots
        .iter()
        .flat_map(|root| &root.diagnostics)
        .cloned()
        .collect();
    let is_truncated = answer.roots.iter().any(|root| root.truncated);
    let problems = diagnostics.iter().filter_map(diagnostic_line).collect();
    report_lines(
        &roots,
        problems,
        summary_line("", &roots, &diagnostics, is_truncated),
    )
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
    let roots: Vec<_> = roots.collect();
    report_lines(
        &roots,
        Vec::new(),
        summary_line("published: ", &roots, &[], false),
    )
}

/// Returns the state of a root, with the reason if there is one.
pub fn root_state_text(state: RootState, reason: i32) -> String {
    let name = state.as_str_name().trim_start_matches("ROOT_STATE_");
    if state == RootState::Unavailable {
        format!("{name} {}", root_reason_name(reason))
    } else {
        name.to_owned()
    }
}

fn report_lines(roots: &[RootStatus], problems: Vec<String>, summary: String) -> Vec<String> {
    let mut lines: Vec<String> = roots.iter().filter_map(root_line).collect();
    lines.extend(problems);
    lines.push(summary);

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

/// Returns the name of the reason.
pub fn root_reason_name(reason: i32) -> String {
    enum_value_name(reason, RootReason::as_str_name, "ROOT_REASON_")
}

/// Returns the name of a value without the prefix of its enum, or its number if the daemon is newer than this
/// client.
pub fn enum_value_name<E: TryFrom<i32>>(
    value: i32,
    name: fn(&E) -> &'static str,
    prefix: &str,
) -> String {
    E::try_from(value).map_or_else(
        |_| value.to_string(),
        |known| name(&known).trim_start_matches(prefix).to_owned(),
    )
}

/// Formats a diagnostic from WARNING up as one line.
pub fn diagnostic_line(diagnostic: &Diagnostic) -> Option<String> {
    let head = diagnostic_head(diagnostic)?;
    let place = diagnostic_place(diagnostic);
    Some(with_message(format!("{head} {place}"), &diagnostic.message))
}

/// Returns the severity and the code of a diagnostic from WARNING up.
fn diagnostic_head(diagnostic: &Diagnostic) -> Option<String> {
    let severity = match diagnostic.severity() {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note | Severity::Unspecified => return None,
    };

    let code = enum_value_name(
        diagnostic.code,
        DiagnosticCode::as_str_name,
        "DIAGNOSTIC_CODE_",
    );
    Some(format!("{severity}[{code}]"))
}

/// Returns the file of a diagnostic with line and column, or its root.
fn diagnostic_place(diagnostic: &Diagnostic) -> String {
    let mut place = if diagnostic.resource.is_empty() {
        format!("root {}", EscapedText(&diagnostic.root_id))
    } else {
        EscapedText(&diagnostic.resource).to_string()
    };
    if diagnostic.line > 0 {
        let _ = write!(place, ":{}", diagnostic.line);
        if diagnostic.column > 0 {
            let _ = write!(place, ":{}", diagnostic.column);
        }
    }
    place
}

fn with_message(mut line: String, message: &str) -> String {
    if !message.is_empty() {
        let _ = write!(line, ": {}", EscapedText(message));
    }
    line
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

    let counts = roots.iter().filter_map(|root| root.counts);
    let total: u64 = counts.map(|counts| u64::from(counts.diagnostics)).sum();
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
pub fn withheld_lines<'a>(withheld: impl Iterator<Item = &'a str>) -> Vec<String> {
    let lines = withheld.map(|handle| {
        format!(
            "not served, because it may hold secrets, leads out of its plugin or cannot be read: {}",
            escape_text(handle)
        )
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::{full_skills_report, skills_report};
    use caproot_core::proto::caproot::v1::{
        Diagnostic, DiagnosticCode, ListSkillsResponse, RootCounts, RootReason, RootState,
        RootStatus, Severity, Skill,
    };

    #[test]
    fn many_problems_are_a_line_for_each_code() {
        let problem = |number: usize, code: DiagnosticCode| Diagnostic {
            code: code.into(),
            severity: Severity::Error.into(),
            resource: format!("skill://r/{number}/SKILL.md"),
            message: "No.".into(),
            ..Diagnostic::default()
        };
        let mut list = ListSkillsResponse {
            diagnostics: (0..10)
                .map(|number| problem(number, DiagnosticCode::YamlSyntax))
                .collect(),
            ..ListSkillsResponse::default()
        };
        assert_eq!(skills_report(&list), full_skills_report(&list));

        let other = problem(10, DiagnosticCode::NameInvalid);
        list.diagnostics.push(other);
        assert_eq!(
            skills_report(&list),
            [
                "error[YAML_SYNTAX] skill://r/0/SKILL.md and 9 more",
                "error[NAME_INVALID] skill://r/10/SKILL.md",
                "0 skills in 0 roots, 11 errors",
                "hint: `caproot list --problems` shows each problem",
            ]
        );
        assert_eq!(full_skills_report(&list).len(), 12);
    }

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
