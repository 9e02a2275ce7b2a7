//! Parser for the frontmatter of a SKILL.md.

mod fields;

use super::yaml::{self, YamlError, YamlErrorKind};
use super::yaml_repair;
use crate::model::limits::MAX_FRONTMATTER_BYTES;
use crate::model::{DiagnosticCode, DynamicValue, FileProblem, SkillMdFrontmatter};
use caproot_core::text;
use caproot_core::text::fences::{self, FencedText};
use caproot_core::text::position;

pub use fields::{KNOWN_FIELDS, STANDARD_FIELDS};

/// Result of [`read`].
#[derive(Debug, Clone, PartialEq)]
pub struct ParsedSkillMd {
    /// Frontmatter of the skill; `None` if a problem has the severity `Error`.
    pub frontmatter: Option<SkillMdFrontmatter>,
    /// Problems in the order of detection, with positions in the file.
    pub problems: Vec<FileProblem>,
}

impl ParsedSkillMd {
    /// Result of a file that cannot be used because of `problem`.
    #[must_use]
    pub fn unusable(problem: FileProblem) -> Self {
        Self {
            frontmatter: None,
            problems: vec![problem],
        }
    }
}

/// Reads the frontmatter of a SKILL.md. `head` is the whole file if `is_whole`, else at least the
/// first `MAX_FRONTMATTER_BYTES` + 4 KiB. Bytes after the closing fence are ignored. `dir_name` is
/// the name of the directory, with links not resolved.
#[must_use]
pub fn read(head: &[u8], is_whole: bool, dir_name: Option<&[u8]>) -> ParsedSkillMd {
    let mut problems = Vec::new();
    let skill = extract_fenced(head, is_whole)
        .and_then(|yaml| parse_mapping(yaml, &mut problems).map(|fields| (yaml, fields)))
        .map_err(|problem| problems.push(problem))
        .ok()
        .and_then(|(yaml, value)| fields::read(value, yaml, dir_name, &mut problems));
    ParsedSkillMd {
        frontmatter: skill,
        problems,
    }
}

/// Reads the frontmatter of any Markdown file. Adds a problem to `problems` if the YAML was
/// repaired. `head` and `is_whole` are as in [`read`].
pub(crate) fn read_mapping(
    head: &[u8],
    is_whole: bool,
    problems: &mut Vec<FileProblem>,
) -> Result<DynamicValue, FileProblem> {
    parse_mapping(extract_fenced(head, is_whole)?, problems)
}

/// Returns the text between the fences, which begins on line 2 of the file.
fn extract_fenced(head: &[u8], is_whole: bool) -> Result<&str, FileProblem> {
    if fences::is_utf16(head) {
        let why = "the file is in UTF-16; save the file as UTF-8";
        return Err(FileProblem::error(DiagnosticCode::NotUtf8, why).with_position(1, 1));
    }

    let FencedText { text, is_closed } = fences::find_fenced_text(head).ok_or_else(|| {
        let why = "the file must begin with YAML frontmatter between two `---` lines";
        FileProblem::error(DiagnosticCode::NoFrontmatter, why).with_position(1, 1)
    })?;

    if !is_closed && is_whole {
        let why = "the frontmatter is not closed; add a `---` line after it";
        return Err(FileProblem::error(DiagnosticCode::NoFrontmatter, why).with_position(1, 1));
    }

    if !is_closed || text.len() > MAX_FRONTMATTER_BYTES {
        let why = format!("the frontmatter is over {MAX_FRONTMATTER_BYTES} bytes; shorten it");
        return Err(FileProblem::error(DiagnosticCode::YamlSyntax, why).with_position(1, 1));
    }

    std::str::from_utf8(text).map_err(|error| {
        let (line, column) = position::position_of_byte(text, error.valid_up_to());
        let why = "the frontmatter is not UTF-8; save the file as UTF-8";
        FileProblem::error(DiagnosticCode::NotUtf8, why).with_position(line + 1, column)
    })
}

/// Parses the YAML of the frontmatter. Repairs it if necessary and adds a problem to `problems`.
fn parse_mapping(yaml: &str, problems: &mut Vec<FileProblem>) -> Result<DynamicValue, FileProblem> {
    let value = match yaml::parse(yaml) {
        Ok(value) => value,
        Err(error) => parse_repaired(yaml, &error, problems).ok_or_else(|| {
            let YamlError {
                line,
                column,
                message,
                ..
            } = error;
            // Count the line of the opening fence.
            let (line, column) = if line == 0 {
                (1, 1)
            } else {
                (line + 1, column)
            };
            FileProblem::error(DiagnosticCode::YamlSyntax, message).with_position(line, column)
        })?,
    };

    match value {
        DynamicValue::Map(_) => Ok(value),
        DynamicValue::Null => {
            let why = "the frontmatter is empty; add a `description`";
            Err(FileProblem::error(DiagnosticCode::MissingDescription, why).with_position(1, 1))
        }
        other => {
            let why = format!("the frontmatter must be a mapping, but is {}", other.kind());
            Err(FileProblem::error(DiagnosticCode::YamlSyntax, why).with_position(2, 1))
        }
    }
}

fn parse_repaired(
    yaml: &str,
    error: &YamlError,
    problems: &mut Vec<FileProblem>,
) -> Option<DynamicValue> {
    if error.kind == YamlErrorKind::Rejected {
        return None;
    }
    let (repaired, quoted) = yaml_repair::quote_broken_values(yaml)?;
    let value = yaml::parse(&repaired).ok()?;
    let keys = text::quote_words(quoted.iter().map(|(_, key)| key.as_str()));
    let why = format!("repaired by quoting the values of {keys}; quote them in the file");
    let line = quoted.first().map_or(0, |(line, _)| line + 1);
    problems.push(FileProblem::warning(DiagnosticCode::YamlRepaired, why).with_position(line, 1));
    Some(value)
}

#[cfg(test)]
mod tests;
