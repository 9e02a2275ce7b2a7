//! Explanations of diagnostic codes in Markdown.

pub use super::explanations::explanation_of;

use super::explanations::severity_exceptions;
use crate::model::{DiagnosticCode, Severity};
use caproot_core::text::wrap_words;
use std::fmt::Write as _;

/// Line width of a paragraph.
const MAX_COLUMNS: usize = 80;

/// Explanation of one code, for the author of a skill.
#[derive(Debug, Clone, Copy)]
pub struct CodeExplanation {
    /// Usual severity. A single diagnostic may have another severity.
    pub default_severity: Severity,
    /// Summary in a few words.
    pub summary: &'static str,
    /// Cause and effect.
    pub cause: &'static str,
    /// Instructions to fix the problem.
    pub fix: &'static str,
    /// Next step, in a sentence without capital and full stop.
    pub help: &'static str,
    /// Example before and after the fix.
    pub example: CodeExample,
}

/// Example of a code, before and after the fix.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub enum CodeExample {
    /// Content of a file.
    File {
        path: &'static str,
        before: &'static str,
        after: &'static str,
    },
    /// Shell commands that cause the problem, and shell commands that fix it.
    Shell {
        before: &'static str,
        after: &'static str,
    },
    /// Shell commands for a problem that only a daemon reports, not `caproot check`.
    Daemon {
        before: &'static str,
        after: &'static str,
    },
}

/// Formats the whole explanation as Markdown.
#[must_use]
pub fn explanation_markdown(code: DiagnosticCode) -> String {
    let CodeExplanation {
        default_severity,
        summary,
        cause,
        fix,
        example,
        ..
    } = explanation_of(code);
    let severity = default_severity.name();
    let mut text = format!("# {} ({severity}): {summary}\n\n", code.name());

    for paragraph in [cause, fix] {
        text.push_str(&wrap_words("", paragraph, MAX_COLUMNS));
        text.push('\n');
    }
    if let Some(exceptions) = severity_exceptions(code) {
        let sentence = format!("The severity is {exceptions}.");
        text.push_str(&wrap_words("", &sentence, MAX_COLUMNS));
        text.push('\n');
    }

    let (location, language, before, after) = match example {
        CodeExample::File {
            path,
            before,
            after,
        } => (format!(", in `{path}`"), "", before, after),
        CodeExample::Shell { before, after } | CodeExample::Daemon { before, after } => {
            (String::new(), "sh", before, after)
        }
    };
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "Before{location}:\n\n```{language}\n{before}\n```\n\nAfter:\n\n```{language}\n{after}\n```\n"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::{explanation_markdown, explanation_of};
    use crate::model::DiagnosticCode;

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
            for text in [all.cause, all.fix] {
                assert!(text.ends_with('.'), "{text}");
            }
            let text = explanation_markdown(code);
            assert!(
                text.lines().all(|line| line.chars().count() <= 100),
                "{text}"
            );
        }
    }
}
