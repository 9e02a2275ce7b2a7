//! Parsers of the manifests, component files and marketplaces of plugins.

mod declarations;
mod info;
pub mod marketplace;
mod mcp_servers;
mod plugin_path;
pub mod prompt;
mod sources;

use crate::model::limits::MAX_MANIFEST_BYTES;
use crate::model::plugin::ManifestDetails;
use crate::model::{DiagnosticCode, DynamicValue, FileProblem};
use crate::parse::fields::{FieldMapping, FieldReader};
use crate::parse::{json, secret_filter};
use std::sync::Arc;

pub use sources::read_file;

/// Parses a JSON file of a plugin or marketplace. `bytes` is the whole file, or its first
/// `MAX_MANIFEST_BYTES` + 1 bytes.
fn parse_plugin_file(bytes: &[u8]) -> Result<DynamicValue, FileProblem> {
    if bytes.len() > MAX_MANIFEST_BYTES {
        let why = format!("the file is over {MAX_MANIFEST_BYTES} bytes; the file is ignored");
        return Err(invalid_file(why));
    }
    json::parse(bytes).map_err(|e| {
        invalid_file(secret_filter::redact_in_text(&e.message)).with_position(e.line, e.column)
    })
}

/// Returns the problem of a file that is ignored.
fn invalid_file(why: String) -> FileProblem {
    FileProblem::error(DiagnosticCode::PluginFileInvalid, why)
}

/// Reads the fields of a manifest except the name and version.
pub(super) fn read_manifest_details(
    value: &DynamicValue,
    problems: &mut Vec<FileProblem>,
) -> Arc<ManifestDetails> {
    let mut fields = FieldReader::new(problems);
    let root = FieldMapping::root(value);
    let (sources, inline_components) = sources::read(&mut fields, root);
    let info = info::read(&mut fields, root);
    fields.report_unknown_keys(root, sources::MANIFEST_KEYS);
    Arc::new(ManifestDetails {
        info,
        sources,
        inline_components,
    })
}

#[cfg(test)]
mod tests;
