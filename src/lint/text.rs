//! Check findings in the layout of a compiler.

use crate::daemon::model::Severity;
use crate::lint::CheckFinding;
use annotate_snippets::{AnnotationKind, Level, Origin, Padding, Renderer, Snippet};
use caproot_core::text::escape_text;

/// Maximum width of an output line including its line number. Excerpts are truncated before.
const MAX_COLUMNS: usize = 400;

/// Renders one finding over several lines, with an empty line at the end.
#[must_use]
pub fn render_finding(finding: &CheckFinding, is_colored: bool) -> String {
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

    let group = level
        .primary_title(escape_text(&problem.message))
        .id(problem.code.name())
        .element(origin);
    let group = match &finding.excerpt {
        Some(excerpt) => group.element(
            Snippet::source(&*excerpt.text)
                .line_start(problem.line as usize)
                .annotation(AnnotationKind::Primary.span(excerpt.span.clone())),
        ),
        None => group.element(Padding),
    };
    let group = group.element(Level::HELP.message(escape_text(&finding.help)));

    let renderer = if is_colored {
        Renderer::styled()
    } else {
        Renderer::plain()
    };
    align_lines(
        &renderer.term_width(MAX_COLUMNS).render(&[group]),
        finding.excerpt.is_some(),
    )
}

/// Corrects the lines of the library.
fn align_lines(rendered: &str, has_excerpt: bool) -> String {
    let mut text = String::new();
    for (at, line) in rendered.lines().enumerate() {
        // Line numbers count in the file, not in the excerpt, so the origin is given before the
        // excerpt. The library then adds an empty line for the name of a second file.
        if at == 3 && line.contains(":::") {
            continue;
        }

        // Aligned as if there were a line number.
        if at > 0 && !has_excerpt {
            text.push(' ');
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.push('\n');
    text
}
