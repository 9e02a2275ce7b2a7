//! Parsers of the manifests, component files and marketplaces of plugins.

mod declarations;
mod documented_keys;
mod info;
pub mod marketplace;
mod mcp_servers;
mod plugin_path;
pub mod prompt;
mod sources;

use crate::daemon::model::limits::MAX_MANIFEST_BYTES;
use crate::daemon::model::plugin::ManifestDetails;
use crate::daemon::model::{DiagnosticCode, DynamicValue, FileProblem};
use crate::daemon::parse::fields::{FieldMapping, FieldReader};
use crate::daemon::parse::json;
use std::sync::Arc;

pub use sources::read_file;

/// Parses a JSON file of a plugin or marketplace. `bytes` is the whole file, or its first
/// `MAX_MANIFEST_BYTES` + 1 bytes.
fn parse_plugin_file(bytes: &[u8]) -> Result<DynamicValue, FileProblem> {
    if bytes.len() > MAX_MANIFEST_BYTES {
        let why = format!("the file is over {MAX_MANIFEST_BYTES} bytes; the file is ignored");
        return Err(invalid_file(why));
    }
    json::parse(bytes)
}

/// Returns the problem of a file that is ignored.
fn invalid_file(why: String) -> FileProblem {
    FileProblem::error(DiagnosticCode::PluginFileInvalid, why)
}

/// Reads the fields of a manifest with these bytes, except the name and version.
pub(super) fn read_manifest_details(
    value: &DynamicValue,
    bytes: &[u8],
    problems: &mut Vec<FileProblem>,
) -> Arc<ManifestDetails> {
    let mut fields = FieldReader::new(problems);
    let root = FieldMapping::root(value);
    let (sources, inline_components) = sources::read(&mut fields, root);
    let info = info::read(&mut fields, root);
    let is_switched_off = fields.read_flag(root, "defaultEnabled") == Some(false);
    let more = fields.read_more(
        root,
        "the manifest",
        sources::MANIFEST_KEYS,
        &[documented_keys::MANIFEST],
    );
    Arc::new(ManifestDetails {
        info,
        sources,
        is_switched_off,
        inline_components: inline_components.with_content(bytes),
        more: more.value,
    })
}

#[cfg(test)]
mod tests;
