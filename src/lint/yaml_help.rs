//! Help for frontmatter that cannot be read, by the shape of its source.

use crate::daemon::model::{DiagnosticCode, FileProblem};
use crate::daemon::parse::yaml_repair::outer_key;
use caproot_core::text::fences;
use std::path::Path;

/// Starts of the lines with which Git marks the two sides of a conflict.
const CONFLICT_MARKS: [&str; 2] = ["<<<<<<< ", ">>>>>>> "];
/// Maximum size of a file that holds only a path. No path of the system is longer.
const MAX_PATH_BYTES: usize = 4_096;

/// Returns the help for the problem, given the start of the file. Returns `None` if the general help
/// fits.
pub fn help_for_source(problem: &FileProblem, source: &[u8]) -> Option<&'static str> {
    if !matches!(
        problem.code,
        DiagnosticCode::NoFrontmatter | DiagnosticCode::YamlSyntax
    ) {
        return None;
    }
    let text = String::from_utf8_lossy(source);
    if has_conflict(&text) {
        return Some(
            "resolve the merge conflict: keep one side, and remove the lines that begin with `<<<<<<<`, \
             `=======` and `>>>>>>>`",
        );
    }

    if problem.code == DiagnosticCode::NoFrontmatter {
        return is_path(&text).then_some(
            "the file holds only a path: a symbolic link that was checked out as text; run `git config \
             core.symlinks true`, and check the file out again",
        );
    }
    // The message about YAML that only some programs read says how to write the value.
    if problem.message.starts_with("other programs reject") {
        return None;
    }
    let index = (problem.line as usize).checked_sub(1)?;
    help_for_line(&problem.message, text.lines().nth(index)?)
}

/// Whether the frontmatter, or a file without frontmatter, has the marks of a conflict.
fn has_conflict(text: &str) -> bool {
    let end = fences::split_file(text.as_bytes()).map_or(text.len(), |(_, body)| body);
    let head = text.get(..end).unwrap_or(text);
    let has_mark = |text: &str, mark: &str| text.lines().any(|line| line.starts_with(mark));
    let mut marks = CONFLICT_MARKS.iter();
    marks.all(|mark| has_mark(text, mark)) && CONFLICT_MARKS.iter().any(|mark| has_mark(head, mark))
}

/// Whether a file holds only the path of a Markdown file or a directory.
fn is_path(text: &str) -> bool {
    let path = text.trim_end_matches(['\r', '\n']);
    !path.is_empty()
        && path.len() <= MAX_PATH_BYTES
        && !path.contains(['\n', '\t'])
        && path == path.trim()
        && (Path::new(path).extension().is_some_and(|e| e == "md")
            || path.contains('/') && !path.contains(' '))
}

/// Returns the help for a line at which the YAML is invalid.
fn help_for_line(message: &str, line: &str) -> Option<&'static str> {
    if line.contains('：') && outer_key(line).is_none() {
        return Some("replace the full-width colon `：` by a colon and a blank");
    }

    if message.contains("could not find expected ':'") {
        let first_word = line.split([' ', '\t']).next().unwrap_or_default();
        let is_field = first_word.contains(':') && !first_word.contains("://");
        return Some(if is_field {
            "write a blank after the colon"
        } else {
            "indent the line if it continues the value above, or write it as `key: value`"
        });
    }

    let (_, value) = line.split_once(':')?;
    let value = value.trim();
    let mut chars = value.chars();
    match chars.next()? {
        '"' if closes_early(value, '"') => Some(
            "a quote inside quotes: write it as `\\\"`, or write the text after `>-` on lines of their own",
        ),
        '\'' if closes_early(value, '\'') => Some(
            "an apostrophe inside single quotes: write it twice, or write the text after `>-` on lines of \
             their own",
        ),
        '|' | '>' if chars.any(char::is_alphabetic) => {
            Some("begin the text on the next line, and indent it; or put the value in quotes")
        }
        '*' | '&' | '!' | '%' | '@' | '`' | '-' | '?' | '[' | '{' | ']' | '}' | ',' => {
            Some("put the value in quotes: its first sign has a meaning in YAML")
        }
        _ => None,
    }
}

/// Whether a value in quotes goes on after a closing quote.
fn closes_early(value: &str, quote: char) -> bool {
    value[1..]
        .split_once(quote)
        .is_some_and(|(_, rest)| !rest.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::help_for_source;
    use crate::daemon::parse::frontmatter;

    #[test]
    fn the_help_fits_the_shape_of_the_source() {
        for (file, words) in [
            (
                "---\nname: a\ndescription: \"x \"y \" z\"\n---\n",
                "a quote inside quotes",
            ),
            (
                "---\nname: a\ndescription: 'the users' files and 'x'\n  y\n---\n",
                "an apostrophe inside",
            ),
            ("---\nname: a\ndescription：x\n---\n", "full-width colon"),
            (
                "---\nname: a\ndescription:x\n---\n",
                "blank after the colon",
            ),
            (
                "---\nname: a\ndescription: x and\ny\n---\n",
                "indent the line",
            ),
            (
                "---\nname: a\ndescription: [x\u{1}]\n---\n",
                "put the value in quotes",
            ),
            (
                "---\nname: a\n<<<<<<< HEAD\nlicense: x\n=======\n>>>>>>> b\n---\n",
                "merge conflict",
            ),
            (
                "<<<<<<< HEAD\n---\n=======\n---\n>>>>>>> b\n",
                "merge conflict",
            ),
            ("../../shared/tidy/SKILL.md", "core.symlinks"),
            ("../shared/SKILL.md\r\n", "core.symlinks"),
            ("# A title\n", ""),
            ("Fills PDF forms and/or signs.\n", ""),
            ("---\nname: a\ndescription: \"x\n---\n", ""),
        ] {
            let parsed = frontmatter::read(file.as_bytes(), true, Some(b"a"));
            assert!(parsed.frontmatter.is_none(), "{file:?}");
            let problem = parsed.problems.last().expect("a problem");
            let help = help_for_source(problem, file.as_bytes()).unwrap_or_default();
            assert!(help.contains(words), "{file:?}: {help}");
            assert_eq!(help.is_empty(), words.is_empty(), "{file:?}: {help}");
        }
    }
}
