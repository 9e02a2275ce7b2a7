//! A JSON file that declares components: from its bytes to what it declares.

use super::fields::PluginFieldReader;
use super::{ComponentKind, PluginComponents, secret_filter, sources};
use crate::domain::limits::MAX_MANIFEST_BYTES;
use crate::domain::{DiagnosticCode, FileProblem, json};

/// Reads a file of a kind that is declared in JSON: all its bytes, or `MAX_MANIFEST_BYTES` + 1 of them.
/// `None` where it cannot be used at all, which the last problem says.
#[must_use]
pub fn read(kind: ComponentKind, bytes: &[u8]) -> (Option<PluginComponents>, Vec<FileProblem>) {
    let invalid = |why: String| FileProblem::error(DiagnosticCode::PluginFileInvalid, why);
    if bytes.len() > MAX_MANIFEST_BYTES {
        let why = format!("the file is over {MAX_MANIFEST_BYTES} bytes; nothing of it is reported");
        return (None, vec![invalid(why)]);
    }
    let value = match json::parse(bytes) {
        Ok(value) => value,
        Err(e) => {
            return (
                None,
                vec![
                    invalid(secret_filter::redact_in_text(&e.message))
                        .with_position(e.line, e.column),
                ],
            );
        }
    };
    if value.as_map().is_none() {
        let why = format!("the file is {}, and must be an object", value.kind());
        return (None, vec![invalid(why).with_position(1, 1)]);
    }
    let mut problems = Vec::new();
    let components =
        sources::read_components(&mut PluginFieldReader::new(&mut problems), kind, &value);
    (Some(components), problems)
}
