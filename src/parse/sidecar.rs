//! Parser of a sidecar `agents/openai.yaml`. An invalid field is omitted, except that an invalid policy fails closed.

mod fields;

use super::{position, yaml};
use crate::model::limits::MAX_MANIFEST_BYTES;
use crate::model::sidecar::SkillSidecar;
use crate::model::{DiagnosticCode, DynamicValue, FileProblem};

/// Reads a sidecar. `bytes` is the whole file, or its first `MAX_MANIFEST_BYTES` + 1 bytes. An
/// empty file is a sidecar without fields.
#[must_use]
pub fn read(bytes: &[u8]) -> (SkillSidecar, Vec<FileProblem>) {
    match parse_mapping(bytes) {
        Ok((yaml, value)) => fields::read(yaml, &value),
        Err(problem) => (SkillSidecar::fail_closed(), vec![problem]),
    }
}

fn parse_mapping(bytes: &[u8]) -> Result<(&str, DynamicValue), FileProblem> {
    const CLOSED: &str = "implicit invocation is disabled";
    if bytes.len() > MAX_MANIFEST_BYTES {
        let why = format!("the file is over {MAX_MANIFEST_BYTES} bytes; {CLOSED}");
        return Err(FileProblem::error(DiagnosticCode::FieldTooLong, why));
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let yaml = std::str::from_utf8(bytes).map_err(|error| {
        let (line, column) = position::position_of_byte(bytes, error.valid_up_to());
        let why = format!("the file is not UTF-8; {CLOSED}");
        FileProblem::error(DiagnosticCode::NotUtf8, why).with_position(line, column)
    })?;
    match yaml::parse(yaml) {
        Ok(value @ (DynamicValue::Map(_) | DynamicValue::Null)) => Ok((yaml, value)),
        Ok(other) => {
            let why = format!("the file must be a mapping, but is {}; {CLOSED}", other.kind());
            Err(FileProblem::error(DiagnosticCode::YamlSyntax, why).with_position(1, 1))
        }
        Err(error) => {
            let why = format!("{CLOSED}: {}", error.message);
            Err(FileProblem::error(DiagnosticCode::YamlSyntax, why)
                .with_position(error.line, error.column))
        }
    }
}

#[cfg(test)]
mod tests;
