//! Check findings as workflow commands of GitHub Actions, which become annotations of a change.
//! Source: GitHub, Workflow commands for GitHub Actions, and `command.ts` of the package
//! `@actions/core`.

use crate::daemon::model::Severity;
use crate::lint::CheckFinding;
use caproot_core::text::escape_text;
use std::fmt::Write as _;
use std::path::Path;

/// Returns the command for one finding, without a line break. A path below `current_dir` is
/// relative, because GitHub looks for files below the top of the repository.
#[must_use]
pub fn annotation_command(finding: &CheckFinding, current_dir: Option<&Path>) -> String {
    let problem = &finding.problem;
    let level = match problem.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "notice",
    };

    let file = escape_text(&finding.path.to_relative(current_dir));
    // These characters end the value of a property.
    let file = escape_message(&file)
        .replace(':', "%3A")
        .replace(',', "%2C");
    let mut properties = format!("file={file}");
    for (name, number) in [("line", problem.line), ("col", problem.column)] {
        if number > 0 {
            // Writing to a string cannot fail.
            let _ = write!(properties, ",{name}={number}");
        }
    }

    let message = format!(
        "{}\nhelp: {}",
        escape_text(&problem.message),
        escape_text(&finding.help)
    );
    let title = problem.code.name();
    format!(
        "::{level} {properties},title={title}::{}",
        escape_message(&message)
    )
}

/// Escapes the characters that end a message. The percent sign comes first.
fn escape_message(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

#[cfg(test)]
mod tests {
    use super::annotation_command;
    use crate::daemon::model::{DiagnosticCode, FileProblem};
    use crate::lint::{CheckFinding, DisplayPath};
    use caproot_core::wire::RelPath;
    use std::path::Path;

    fn finding(path: &[u8], problem: FileProblem) -> CheckFinding {
        let resource = RelPath::new(path).expect("a path");
        CheckFinding {
            path: DisplayPath::new(Path::new("/home/skills"), &resource),
            resource,
            problem,
            help: "fix, it: 50%".to_owned(),
            excerpt: None,
        }
    }

    #[test]
    fn commands_are_escaped() {
        let code = DiagnosticCode::YamlSyntax;
        for (path, problem, expected) in [
            (
                b"a/SKILL.md".as_slice(),
                FileProblem::error(code, "a: b, 100%").with_position(3, 14),
                "::error file=skills/a/SKILL.md,line=3,col=14,title=YAML_SYNTAX::\
                 a: b, 100%25%0Ahelp: fix, it: 50%25",
            ),
            (
                b"a,b:c%",
                FileProblem::warning(code, "a\nb").with_position(3, 0),
                "::warning file=skills/a%2Cb%3Ac%25,line=3,title=YAML_SYNTAX::\
                 a\\u{a}b%0Ahelp: fix, it: 50%25",
            ),
            (
                b"x\n::error::y",
                FileProblem::note(code, "m"),
                "::notice file=skills/x\\u{a}%3A%3Aerror%3A%3Ay,title=YAML_SYNTAX::\
                 m%0Ahelp: fix, it: 50%25",
            ),
        ] {
            let command = annotation_command(&finding(path, problem), Some(Path::new("/home")));
            assert_eq!(command, expected);
        }
    }
}
