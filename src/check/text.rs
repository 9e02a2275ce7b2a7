//! What was found in the words and the layout of a compiler.

use super::CheckFinding;
use crate::domain::Severity;
use crate::domain::escape::escape_text;
use annotate_snippets::{AnnotationKind, Level, Origin, Padding, Renderer, Snippet};

/// Columns that a line which begins with its number may have; lines are cut before they come here.
const MAX_COLUMNS: usize = 400;

/// Whether the output understands colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ColorMode {
    Never,
    Always,
}

/// One finding, over several lines; the last is empty.
#[must_use]
pub fn render_finding(finding: &CheckFinding, colour: ColorMode) -> String {
    let problem = &finding.problem;
    let level = match problem.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Note => Level::NOTE,
    };
    let mut origin = Origin::path(finding.path.to_string());
    if problem.line > 0 {
        origin = origin.line(problem.line as usize);
        if problem.column > 0 {
            origin = origin.char_column(problem.column as usize);
        }
    }
    let mut group =
        level.primary_title(escape_text(&problem.message)).id(problem.code.name()).element(origin);
    if let Some(excerpt) = &finding.excerpt {
        group = group.element(
            Snippet::source(&*excerpt.text)
                .line_start(problem.line as usize)
                .annotation(AnnotationKind::Primary.span(excerpt.span.clone())),
        );
    } else {
        group = group.element(Padding);
    }
    let group = group.element(Level::HELP.message(escape_text(&finding.help)));
    let renderer = match colour {
        ColorMode::Never => Renderer::plain(),
        ColorMode::Always => Renderer::styled(),
    };
    let mut text = String::new();
    for (at, line) in renderer.term_width(MAX_COLUMNS).render(&[group]).lines().enumerate() {
        // A line counts in the file and not in the excerpt, so its place comes before the excerpt;
        // the library then leaves room for the name of a second file.
        if at == 3 && line.contains(":::") {
            continue;
        }
        // Aligned as if there were a line's number.
        if at > 0 && finding.excerpt.is_none() {
            text.push(' ');
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.push('\n');
    text
}
