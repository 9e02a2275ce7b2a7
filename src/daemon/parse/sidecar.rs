//! Parser of a sidecar `agents/openai.yaml`. An invalid field is omitted, except that an invalid
//! policy fails closed.

use super::fields::{FieldMapping, FieldReader, MAX_TEXT_CHARS, MAX_WORD_CHARS};
use super::yaml;
use crate::daemon::model::limits::{MAX_MANIFEST_BYTES, MAX_WIRE_NESTING};
use crate::daemon::model::sidecar::{
    SkillInterface, SkillPermissions, SkillSidecar, ToolDependency,
};
use crate::daemon::model::{DiagnosticCode, DynamicValue, FileProblem, Severity};
use caproot_core::text;
use caproot_core::text::fences::{self, BYTE_ORDER_MARK};
use caproot_core::text::position;

/// Maximum size of the macOS permissions on the wire.
const MAX_MACOS_WIRE_BYTES: usize = 64 << 10;

/// Reads a sidecar. `bytes` is the whole file, or its first `MAX_MANIFEST_BYTES` + 1 bytes. An
/// empty file is a sidecar without fields.
#[must_use]
pub fn read(bytes: &[u8]) -> (SkillSidecar, Vec<FileProblem>) {
    let mut problems = Vec::new();
    let sidecar = match parse_mapping(bytes) {
        Ok((yaml, value)) => {
            let mut fields = FieldReader::with_positions(&mut problems, yaml, 0);
            read_sidecar(&mut fields, FieldMapping::root(&value))
        }
        Err(problem) => {
            problems.push(problem);
            SkillSidecar::fail_closed()
        }
    };
    (sidecar, problems)
}

fn parse_mapping(bytes: &[u8]) -> Result<(&str, DynamicValue), FileProblem> {
    const CLOSED: &str = "implicit invocation is disabled";
    if bytes.len() > MAX_MANIFEST_BYTES {
        let why = format!("the file is over {MAX_MANIFEST_BYTES} bytes; {CLOSED}");
        return Err(FileProblem::error(DiagnosticCode::FieldTooLong, why));
    }

    // UTF-16 without a byte order mark may be valid UTF-8, so this check comes first.
    if fences::is_utf16(bytes) {
        let why = format!("the file is in UTF-16, save the file as UTF-8; {CLOSED}");
        return Err(FileProblem::error(DiagnosticCode::NotUtf8, why).with_position(1, 1));
    }

    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    let yaml = std::str::from_utf8(bytes).map_err(|error| {
        let (line, column) = position::position_of_byte(bytes, error.valid_up_to());
        let why = format!("the file is not UTF-8; {CLOSED}");
        FileProblem::error(DiagnosticCode::NotUtf8, why).with_position(line, column)
    })?;

    match yaml::parse(yaml) {
        Ok(value @ (DynamicValue::Map(_) | DynamicValue::Null)) => Ok((yaml, value)),
        Ok(other) => {
            let why = format!(
                "the file must be a mapping, but is {}; {CLOSED}",
                other.kind()
            );
            Err(FileProblem::error(DiagnosticCode::YamlSyntax, why).with_position(1, 1))
        }
        Err(error) => {
            let why = format!("{CLOSED}: {}", error.message);
            Err(FileProblem::error(DiagnosticCode::YamlSyntax, why)
                .with_position(error.line, error.column))
        }
    }
}

fn read_sidecar(fields: &mut FieldReader<'_>, root: FieldMapping<'_>) -> SkillSidecar {
    fields.report_unknown_keys(
        root,
        &["interface", "dependencies", "policy", "permissions"],
        "ignored",
    );
    // Problems are limited per file. Read the policy first so that other problems cannot hide that
    // the policy failed closed.
    let policy = read_policy(fields, root);
    SkillSidecar {
        interface: read_interface(fields, root),
        dependencies: read_dependencies(fields, root),
        permissions: read_permissions(fields, root)
            .filter(|permissions| *permissions != SkillPermissions::default()),
        ..policy
    }
}

/// Reads a text of at most `max` characters.
fn read_text(
    fields: &mut FieldReader<'_>,
    at: FieldMapping<'_>,
    key: &str,
    max: usize,
) -> Option<Box<str>> {
    fields.read_verbatim(at, key, max).map(Into::into)
}

/// Reads the mapping at the last key of `path` and reports its unknown keys.
fn read_section<'v>(
    fields: &mut FieldReader<'_>,
    parent: FieldMapping<'v>,
    path: &'static [&'static str],
    known: &[&str],
) -> Option<FieldMapping<'v>> {
    let section = fields.read_mapping(parent, path, "a mapping")?;
    fields.report_unknown_keys(section, known, "ignored");
    Some(section)
}

/// Returns a sidecar that has only the policy.
fn read_policy(fields: &mut FieldReader<'_>, root: FieldMapping<'_>) -> SkillSidecar {
    const IMPLICIT: &str = "allow_implicit_invocation";
    const PRODUCTS: &str = "products";
    let Some(policy) = read_section(fields, root, &["policy"], &[IMPLICIT, PRODUCTS]) else {
        return match root.non_null_value("policy") {
            Some(_) => SkillSidecar::fail_closed(),
            None => SkillSidecar::default(),
        };
    };

    let implicit = fields.read_bool(policy, IMPLICIT);
    let products = fields.read_texts(policy, PRODUCTS, MAX_WORD_CHARS);
    let fails = (implicit.is_none() && policy.non_null_value(IMPLICIT).is_some())
        || (products.is_none() && policy.non_null_value(PRODUCTS).is_some());
    SkillSidecar {
        forbids_model: fails || implicit == Some(false),
        products: products.unwrap_or_default(),
        ..SkillSidecar::default()
    }
}

fn read_interface(fields: &mut FieldReader<'_>, root: FieldMapping<'_>) -> Option<SkillInterface> {
    const KEYS: &[&str] = &[
        "display_name",
        "short_description",
        "icon_small",
        "icon_large",
        "brand_color",
        "default_prompt",
    ];
    let at = read_section(fields, root, &["interface"], KEYS)?;

    let interface = SkillInterface {
        display_name: fields
            .read_verbatim(at, "display_name", MAX_WORD_CHARS)
            .map(text::collapse_whitespace),
        short_description: fields
            .read_verbatim(at, "short_description", MAX_TEXT_CHARS)
            .map(text::collapse_whitespace),
        icon_small: read_text(fields, at, "icon_small", MAX_TEXT_CHARS),
        icon_large: read_text(fields, at, "icon_large", MAX_TEXT_CHARS),
        brand_color: fields.read_color(at, "brand_color"),
        default_prompt: read_text(fields, at, "default_prompt", MAX_TEXT_CHARS),
    };

    (interface != SkillInterface::default()).then_some(interface)
}

fn read_dependencies(
    fields: &mut FieldReader<'_>,
    root: FieldMapping<'_>,
) -> Box<[ToolDependency]> {
    let at = read_section(fields, root, &["dependencies"], &["tools"]);
    let items = at
        .and_then(|at| fields.read_list(at, "tools"))
        .unwrap_or_default();
    items
        .iter()
        .filter_map(|item| read_tool(fields, item))
        .collect()
}

fn read_tool(fields: &mut FieldReader<'_>, value: &DynamicValue) -> Option<ToolDependency> {
    const PATH: &[&str] = &["dependencies", "tools"];
    const KEYS: &[&str] = &[
        "type",
        "value",
        "description",
        "transport",
        "command",
        "url",
    ];

    if value.as_map().is_none() {
        let why = format!("a tool must be a mapping, but is {}; omitted", value.kind());
        fields.report_at(PATH, DiagnosticCode::FieldInvalid, Severity::Warning, why);
        return None;
    }

    let at = FieldMapping::new(value, PATH, "");
    fields.report_unknown_keys(at, KEYS, "ignored");
    let kind = read_text(fields, at, "type", MAX_WORD_CHARS);
    let name = read_text(fields, at, "value", MAX_TEXT_CHARS);

    let (Some(kind), Some(name)) = (kind, name) else {
        let why = "a tool has no valid `type` or `value`; omitted";
        fields.report_at(PATH, DiagnosticCode::FieldInvalid, Severity::Warning, why);
        return None;
    };

    Some(ToolDependency {
        kind,
        value: name,
        description: read_text(fields, at, "description", MAX_TEXT_CHARS),
        transport: read_text(fields, at, "transport", MAX_WORD_CHARS),
        command: read_text(fields, at, "command", MAX_TEXT_CHARS),
        url: read_text(fields, at, "url", MAX_TEXT_CHARS),
    })
}

fn read_permissions(
    fields: &mut FieldReader<'_>,
    root: FieldMapping<'_>,
) -> Option<SkillPermissions> {
    const FILES: &[&str] = &["permissions", "file_system"];
    let at = read_section(
        fields,
        root,
        &["permissions"],
        &["network", "file_system", "macos"],
    )?;

    let mut permissions = SkillPermissions {
        network: read_network(fields, at),
        macos: read_macos(fields, at),
        ..SkillPermissions::default()
    };

    if let Some(files) = read_section(fields, at, FILES, &["read", "write"]) {
        let mut paths = |key| {
            fields
                .read_texts(files, key, MAX_TEXT_CHARS)
                .unwrap_or_default()
        };
        permissions.file_system_read = paths("read");
        permissions.file_system_write = paths("write");
    }

    Some(permissions)
}

/// Reads `network: true` or `network: {enabled: true}`.
fn read_network(fields: &mut FieldReader<'_>, at: FieldMapping<'_>) -> Option<bool> {
    if let Some(DynamicValue::Bool(is_requested)) = at.non_null_value("network") {
        return Some(*is_requested);
    }
    let network = read_section(fields, at, &["permissions", "network"], &["enabled"])?;
    fields.read_bool(network, "enabled")
}

fn read_macos(fields: &mut FieldReader<'_>, at: FieldMapping<'_>) -> Option<DynamicValue> {
    const KEY: &str = "macos";
    let value = at.non_null_value(KEY)?;
    if value.as_map().is_none() {
        fields.report_wrong_type(at, KEY, value, "a mapping");
    } else if value.wire_size() > MAX_MACOS_WIRE_BYTES {
        let limit = format_args!("{MAX_MACOS_WIRE_BYTES} bytes");
        fields.report_too_long(at, KEY, limit, "omitted");
    } else if value.depth() > MAX_WIRE_NESTING {
        let limit = format_args!("{MAX_WIRE_NESTING} levels of nesting");
        fields.report_too_long(at, KEY, limit, "omitted");
    } else {
        return Some(value.clone());
    }
    None
}

#[cfg(test)]
mod tests;
