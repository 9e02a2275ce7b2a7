//! Explanations of diagnostic codes. Their source is the reference page of the diagnostics.

use crate::daemon::model::{DiagnosticCode, Severity};
use std::collections::HashMap;
use std::sync::LazyLock;

const PAGE: &str = include_str!("../../docs/reference/diagnostics.md");

/// Explanations by the name of the code.
static EXPLANATIONS: LazyLock<HashMap<&str, CodeExplanation>> = LazyLock::new(|| {
    PAGE.split("\n## ")
        .skip(1)
        .filter_map(CodeExplanation::parse)
        .collect()
});

/// Explanation of a code that the page does not have. A test looks for such a code.
static NO_EXPLANATION: CodeExplanation = CodeExplanation {
    default_severity: Severity::Note,
    summary: "",
    cause: String::new(),
    fix: String::new(),
    help: "",
    body: "",
};

/// Explanation of one code, for the author of a skill.
#[derive(Debug)]
pub struct CodeExplanation {
    /// Usual severity. A single diagnostic may have another severity.
    pub default_severity: Severity,
    /// Summary in a few words.
    pub summary: &'static str,
    /// Cause and effect.
    pub cause: String,
    /// Instructions to fix the problem.
    pub fix: String,
    /// Next step, in a sentence without capital and full stop.
    pub help: &'static str,
    /// Cause, fix, exceptions of the severity, and an example before and after the fix, in Markdown.
    body: &'static str,
}

impl CodeExplanation {
    /// Parses a section of the page: the code, the severity with the summary, the body and the help.
    fn parse(section: &'static str) -> Option<(&'static str, Self)> {
        let (name, rest) = section.split_once("\n\n")?;
        let (head, rest) = rest.split_once("\n\n")?;
        let (severity, summary) = head.strip_prefix('`')?.split_once("`: ")?;
        let (body, help) = rest.split_once("\nIn short: ")?;

        let severities = [Severity::Error, Severity::Warning, Severity::Note];
        let mut paragraphs = body.split("\n\n").map(|text| text.replace('\n', " "));
        let explanation = Self {
            default_severity: severities.into_iter().find(|s| s.name() == severity)?,
            summary: summary.trim_end_matches('.'),
            cause: paragraphs.next()?,
            fix: paragraphs.next()?,
            help: help.trim_end().trim_end_matches('.'),
            body,
        };
        Some((name, explanation))
    }
}

/// Returns the explanation of a code.
#[must_use]
pub fn explanation_of(code: DiagnosticCode) -> &'static CodeExplanation {
    EXPLANATIONS.get(code.name()).unwrap_or(&NO_EXPLANATION)
}

/// Formats the whole explanation as Markdown.
#[must_use]
pub fn explanation_markdown(code: DiagnosticCode) -> String {
    let CodeExplanation {
        default_severity,
        summary,
        body,
        ..
    } = explanation_of(code);
    let severity = default_severity.name();
    format!("# {} ({severity}): {summary}\n\n{body}", code.name())
}

#[cfg(test)]
mod tests {
    use super::{explanation_markdown, explanation_of};
    use crate::daemon::model::DiagnosticCode;

    #[test]
    fn every_explanation_is_complete() {
        for code in DiagnosticCode::ALL {
            let all = explanation_of(code);
            for text in [all.summary, all.help] {
                assert!(
                    !text.is_empty() && !text.ends_with('.') && text.len() <= 110,
                    "{text}"
                );
            }
            for text in [&all.cause, &all.fix] {
                assert!(text.ends_with('.'), "{text}");
            }
            let text = explanation_markdown(code);
            assert!(
                text.ends_with("\n```\n") && text.lines().all(|line| line.chars().count() <= 100),
                "{text}"
            );
        }
    }
}
