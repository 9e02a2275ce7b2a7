//! Explanations of diagnostic codes: lookup and Markdown layout.

pub use super::explanations::explanation_of;

use super::explanations::severity_exceptions;
use crate::model::{DiagnosticCode, Severity};
use caproot_core::text::{similar, wrap_words};
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

/// Finds a code by its name: in any letter case, with `-` instead of `_`, with or without the
/// prefix of the proto enum. The error is the most similar name, if there is a similar name.
pub fn find_code(text: &str) -> Result<DiagnosticCode, Option<&'static str>> {
    let name = text.trim().to_uppercase().replace('-', "_");
    let name = name.strip_prefix("DIAGNOSTIC_CODE_").unwrap_or(&name);
    let found = DiagnosticCode::ALL
        .into_iter()
        .find(|code| code.name() == name);
    let names = DiagnosticCode::ALL.into_iter().map(DiagnosticCode::name);
    found.ok_or_else(|| similar::most_similar(name, names))
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
    use super::{explanation_markdown, explanation_of, find_code};
    use crate::model::DiagnosticCode;

    #[test]
    fn codes_are_found_in_any_spelling() {
        for text in [
            "YAML_SYNTAX",
            "yaml_syntax",
            "Yaml-Syntax ",
            "DIAGNOSTIC_CODE_YAML_SYNTAX",
        ] {
            assert_eq!(find_code(text), Ok(DiagnosticCode::YamlSyntax), "{text}");
        }
        for (slip, meant) in [
            ("YAML_SYNTEX", Some("YAML_SYNTAX")),
            ("missing-descripton", Some("MISSING_DESCRIPTION")),
            ("NOT_UTF-8", Some("NOT_UTF8")),
            ("E0308", None),
            ("", None),
        ] {
            assert_eq!(find_code(slip), Err(meant), "{slip}");
        }
    }

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
