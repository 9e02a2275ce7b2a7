//! Parser of a sidecar `agents/openai.yaml`. An invalid field is omitted, except that an invalid
//! policy fails closed.

use super::fields::{FieldMapping, FieldReader, MAX_TEXT_CHARS, MAX_WORD_CHARS};
use super::json::decode_text;
use super::{collect_problems, yaml};
use crate::daemon::model::limits::{MAX_MANIFEST_BYTES, MAX_WIRE_NESTING};
use crate::daemon::model::sidecar::{
    SkillInterface, SkillPermissions, SkillSidecar, ToolDependency,
};
use crate::daemon::model::{DiagnosticCode, DynamicValue, FileProblem, Severity};
use caproot_core::text;

/// Maximum size of the macOS permissions on the wire.
const MAX_MACOS_WIRE_BYTES: usize = 64 << 10;

/// Reads a sidecar. `bytes` is the whole file, or its first `MAX_MANIFEST_BYTES` + 1 bytes. An
/// empty file is a sidecar without fields.
#[must_use]
pub fn read(bytes: &[u8]) -> (SkillSidecar, Vec<FileProblem>) {
    let (sidecar, problems) = collect_problems(|problems| {
        let (yaml, value) = parse_mapping(bytes)?;
        let mut fields = FieldReader::with_positions(problems, yaml, 0);
        Ok(read_sidecar(&mut fields, FieldMapping::root(&value)))
    });
    (sidecar.unwrap_or_else(SkillSidecar::fail_closed), problems)
}

fn parse_mapping(bytes: &[u8]) -> Result<(&str, DynamicValue), FileProblem> {
    const CLOSED: &str = "implicit invocation is disabled";
    if bytes.len() > MAX_MANIFEST_BYTES {
        let why = format!("the file is over {MAX_MANIFEST_BYTES} bytes; {CLOSED}");
        return Err(FileProblem::error(DiagnosticCode::FieldTooLong, why));
    }

    let yaml = decode_text(bytes).map_err(|error| {
        let fault = if error.is_utf16 {
            "in UTF-16, save the file as UTF-8"
        } else {
            "not UTF-8"
        };
        error.into_problem(format!("the file is {fault}; {CLOSED}"))
    })?;

    let (why, line, column) = match yaml::parse(yaml) {
        Ok(value @ (DynamicValue::Map(_) | DynamicValue::Null)) => return Ok((yaml, value)),
        Ok(other) => {
            let kind = other.kind();
            let why = format!("the file must be a mapping, but is {kind}; {CLOSED}");
            (why, 1, 1)
        }
        Err(error) => {
            let why = format!("{CLOSED}: {}", error.message);
            (why, error.line, error.column)
        }
    };
    Err(FileProblem::error(DiagnosticCode::YamlSyntax, why).with_position(line, column))
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
        permissions: read_permissions(fields, root),
        ..policy
    }
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
        return SkillSidecar {
            forbids_model: root.non_null_value("policy").is_some(),
            ..SkillSidecar::default()
        };
    };

    let implicit = fields.read_bool(policy, IMPLICIT);
    let products = fields.read_texts(policy, PRODUCTS, MAX_WORD_CHARS);
    let is_set = |key| policy.non_null_value(key).is_some();
    let fails =
        (implicit.is_none() && is_set(IMPLICIT)) || (products.is_none() && is_set(PRODUCTS));
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
        icon_small: fields.read_text(at, "icon_small", MAX_TEXT_CHARS),
        icon_large: fields.read_text(at, "icon_large", MAX_TEXT_CHARS),
        brand_color: fields.read_color(at, "brand_color"),
        default_prompt: fields.read_text(at, "default_prompt", MAX_TEXT_CHARS),
    };

    (interface != SkillInterface::default()).then_some(interface)
}

fn read_dependencies(
    fields: &mut FieldReader<'_>,
    root: FieldMapping<'_>,
) -> Box<[ToolDependency]> {
    let at = read_section(fields, root, &["dependencies"], &["tools"]);
    let items = at.and_then(|at| fields.read_list(at, "tools"));
    let items = items.unwrap_or_default().iter();
    items.filter_map(|item| read_tool(fields, item)).collect()
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
    let kind = fields.read_text(at, "type", MAX_WORD_CHARS);
    let name = fields.read_text(at, "value", MAX_TEXT_CHARS);

    let (Some(kind), Some(name)) = (kind, name) else {
        let why = "a tool has no valid `type` or `value`; omitted";
        fields.report_at(PATH, DiagnosticCode::FieldInvalid, Severity::Warning, why);
        return None;
    };

    Some(ToolDependency {
        kind,
        value: name,
        description: fields.read_text(at, "description", MAX_TEXT_CHARS),
        transport: fields.read_text(at, "transport", MAX_WORD_CHARS),
        command: fields.read_text(at, "command", MAX_TEXT_CHARS),
        url: fields.read_text(at, "url", MAX_TEXT_CHARS),
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

    // `network: true` or `network: {enabled: true}`.
    let network = if let Some(DynamicValue::Bool(is_requested)) = at.non_null_value("network") {
        Some(*is_requested)
    } else {
        let network = read_section(fields, at, &["permissions", "network"], &["enabled"]);
        network.and_then(|network| fields.read_bool(network, "enabled"))
    };
    let macos = read_macos(fields, at);
    let files = read_section(fields, at, FILES, &["read", "write"]);
    let mut paths = |key| fields.read_texts(files?, key, MAX_TEXT_CHARS);
    let permissions = SkillPermissions {
        network,
        macos,
        file_system_read: paths("read").unwrap_or_default(),
        file_system_write: paths("write").unwrap_or_default(),
    };
    (permissions != SkillPermissions::default()).then_some(permissions)
}

fn read_macos(fields: &mut FieldReader<'_>, at: FieldMapping<'_>) -> Option<DynamicValue> {
    const KEY: &str = "macos";
    let value = at.non_null_value(KEY)?;
    let limit = if value.as_map().is_none() {
        fields.report_wrong_type(at, KEY, value, "a mapping");
        return None;
    } else if value.wire_size() > MAX_MACOS_WIRE_BYTES {
        format!("{MAX_MACOS_WIRE_BYTES} bytes")
    } else if value.depth() > MAX_WIRE_NESTING {
        format!("{MAX_WIRE_NESTING} levels of nesting")
    } else {
        return Some(value.clone());
    };
    fields.report_too_long(at, KEY, limit, "omitted");
    None
}

#[cfg(test)]
mod tests;
