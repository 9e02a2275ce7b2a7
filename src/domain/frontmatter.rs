//! The head of a SKILL.md: from bytes to what its author says of the skill, and what is wrong with
//! it. Leaves the fields to `fields`, and where the file lies and what else is beside it to others.

mod fields;

use super::limits::MAX_FRONTMATTER_BYTES;
use super::yaml::{self, YamlError, YamlErrorKind};
use super::{DiagnosticCode, DynamicValue, FileProblem, position, text, yaml_repair};

pub(super) use fields::split_tools;
pub use fields::{STANDARD_FIELDS, SkillMdFrontmatter};

/// What reading a SKILL.md gave.
#[derive(Debug, Clone, PartialEq)]
pub struct ParsedSkillMd {
    /// The skill; `None` where a problem of severity `Error` leaves it out.
    pub frontmatter: Option<SkillMdFrontmatter>,
    /// What is wrong, positions in the file, in the order in which it was met.
    pub problems: Vec<FileProblem>,
}

/// Reads the beginning of a SKILL.md. `head` is all of it (`whole`) or at least
/// `MAX_FRONTMATTER_BYTES` + 4 KiB; nothing behind the closing fence is looked at. `dir_name` is the
/// directory's name as it was walked to.
#[must_use]
pub fn read(head: &[u8], whole: bool, dir_name: Option<&[u8]>) -> ParsedSkillMd {
    let mut problems = Vec::new();
    let skill = extract_fenced(head, whole)
        .and_then(|yaml| parse_mapping(yaml, &mut problems).map(|fields| (yaml, fields)))
        .map_err(|problem| problems.push(problem))
        .ok()
        .and_then(|(yaml, value)| fields::read(value, yaml, dir_name, &mut problems));
    ParsedSkillMd { frontmatter: skill, problems }
}

/// The fields of any Markdown file's frontmatter, as written or after a repair, which is said in
/// `problems`. `head` and `whole` as for [`read`].
pub(super) fn read_mapping(
    head: &[u8],
    whole: bool,
    problems: &mut Vec<FileProblem>,
) -> Result<DynamicValue, FileProblem> {
    parse_mapping(extract_fenced(head, whole)?, problems)
}

/// The text between the fences, the newline before the closing one included. It begins on line 2.
fn extract_fenced(head: &[u8], whole: bool) -> Result<&str, FileProblem> {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let mut lines = head.split_inclusive(|b| *b == b'\n');
    let first = lines.next().filter(|line| is_fence(line)).ok_or_else(|| {
        let why = "the file does not begin with a `---` line; a skill begins with YAML between two";
        FileProblem::error(DiagnosticCode::NoFrontmatter, why).with_position(1, 1)
    })?;
    let start = first.len();
    let mut end = start;
    let is_closed = lines.any(|line| {
        let closes = is_fence(line);
        end += if closes { 0 } else { line.len() };
        closes
    });
    if !is_closed && whole {
        let why = "the frontmatter is never closed; add a second `---` line behind it";
        return Err(FileProblem::error(DiagnosticCode::NoFrontmatter, why).with_position(1, 1));
    }
    if !is_closed || end - start > MAX_FRONTMATTER_BYTES {
        let why = format!("the frontmatter is over {MAX_FRONTMATTER_BYTES} bytes; shorten it");
        return Err(FileProblem::error(DiagnosticCode::YamlSyntax, why).with_position(1, 1));
    }
    std::str::from_utf8(&head[start..end]).map_err(|error| {
        let (line, column) = position::position_of_byte(head, start + error.valid_up_to());
        let why = "the frontmatter is not UTF-8; save the file as UTF-8";
        FileProblem::error(DiagnosticCode::NotUtf8, why).with_position(line, column)
    })
}

fn is_fence(line: &[u8]) -> bool {
    line.strip_prefix(b"---").is_some_and(|rest| rest.trim_ascii().is_empty())
}

/// The fields, as written or after a repair, which is said in `problems`.
fn parse_mapping(yaml: &str, problems: &mut Vec<FileProblem>) -> Result<DynamicValue, FileProblem> {
    let value = match yaml::parse(yaml) {
        Ok(value) => value,
        Err(error) => parse_repaired(yaml, &error, problems).ok_or_else(|| {
            let YamlError { line, column, message, .. } = error;
            // The opening fence is a line, too.
            let (line, column) = if line == 0 { (1, 1) } else { (line + 1, column) };
            FileProblem::error(DiagnosticCode::YamlSyntax, message).with_position(line, column)
        })?,
    };
    match value {
        DynamicValue::Map(_) => Ok(value),
        DynamicValue::Null => {
            let why = "the frontmatter is empty; a skill needs a description";
            Err(FileProblem::error(DiagnosticCode::MissingDescription, why).with_position(1, 1))
        }
        other => {
            let why = format!("the frontmatter is {}, and must be a mapping", other.kind());
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
    let why = format!("read after quoting the values of {keys}; quote them in the file");
    let line = quoted.first().map_or(0, |(line, _)| line + 1);
    problems.push(FileProblem::warning(DiagnosticCode::YamlRepaired, why).with_position(line, 1));
    Some(value)
}

#[cfg(test)]
mod tests;
