//! Reader for the fields of a sidecar.

use crate::model::limits::MAX_WIRE_NESTING;
use crate::model::sidecar::{
    SkillInterface, SkillPermissions, SkillPolicy, SkillSidecar, ToolDependency,
};
use crate::model::{DiagnosticCode, DynamicValue, FileProblem, Severity, text};
use crate::parse::position;

/// Maximum length of a name, type, transport, product or color.
const MAX_NAME_CHARS: usize = 64;
/// Maximum length of other texts.
const MAX_TEXT_CHARS: usize = 1_024;
/// Maximum number of items in a list.
const MAX_ITEMS: usize = 256;
/// Maximum size of the macOS permissions on the wire.
const MAX_MACOS_WIRE_BYTES: usize = 64 << 10;
/// Maximum number of problems reported for one file. Bounds the cost of a hostile file.
const MAX_PROBLEMS: usize = 64;

/// Reads fields and records the problems of one file.
struct SidecarReader<'a> {
    yaml: &'a str,
    problems: Vec<FileProblem>,
}

/// Error for an invalid field. The problem is already reported.
struct InvalidField;

/// A mapping and the path of keys to it.
#[derive(Clone, Copy)]
struct SidecarMapping<'v> {
    value: &'v DynamicValue,
    path: &'static [&'static str],
}

impl SidecarMapping<'_> {
    fn key_path(self, key: &str) -> String {
        [self.path, &[key]].concat().join(".")
    }
}

/// Reads the fields of a sidecar. `yaml` is the text of the file, for positions of problems.
pub fn read(yaml: &str, value: &DynamicValue) -> (SkillSidecar, Vec<FileProblem>) {
    let mut reader = SidecarReader { yaml, problems: Vec::new() };
    let sidecar = reader.read_sidecar(value);
    (sidecar, reader.problems)
}

impl SidecarReader<'_> {
    fn read_sidecar(&mut self, value: &DynamicValue) -> SkillSidecar {
        let root = SidecarMapping { value, path: &[] };
        self.report_unknown_keys(root, &["interface", "dependencies", "policy", "permissions"]);
        // Problems are limited per file. Read the policy first so that other problems cannot hide
        // that the policy failed closed.
        let policy = self.read_policy(root);
        SkillSidecar {
            policy,
            interface: self.read_interface(root),
            dependencies: self.read_dependencies(root),
            permissions: self
                .read_permissions(root)
                .filter(|permissions| *permissions != SkillPermissions::default()),
        }
    }

    fn read_policy(&mut self, root: SidecarMapping<'_>) -> SkillPolicy {
        const PATH: &[&str] = &["policy"];
        let policy = match self.read_mapping(root, PATH, &["allow_implicit_invocation", "products"])
        {
            Ok(policy) => policy,
            Err(InvalidField) => return SkillSidecar::fail_closed().policy,
        };
        let Some(policy) = policy else { return SkillPolicy::default() };
        let implicit = self.read_bool(policy, "allow_implicit_invocation");
        let products = self.read_texts(policy, "products", MAX_NAME_CHARS);
        let allow_implicit_invocation = match (implicit, &products) {
            (Ok(implicit), Ok(_)) => implicit,
            _ => Some(false),
        };
        SkillPolicy { allow_implicit_invocation, products: products.unwrap_or_default() }
    }

    fn read_interface(&mut self, root: SidecarMapping<'_>) -> Option<SkillInterface> {
        const PATH: &[&str] = &["interface"];
        const KEYS: &[&str] = &[
            "display_name",
            "short_description",
            "icon_small",
            "icon_large",
            "brand_color",
            "default_prompt",
        ];
        let at = self.read_mapping(root, PATH, KEYS).ok()??;
        let one_line = |text: Option<Box<str>>| text.map(|text| text::collapse_whitespace(&text));
        let interface = SkillInterface {
            display_name: one_line(self.read_text(at, "display_name", MAX_NAME_CHARS)),
            short_description: one_line(self.read_text(at, "short_description", MAX_TEXT_CHARS)),
            icon_small: self.read_text(at, "icon_small", MAX_TEXT_CHARS),
            icon_large: self.read_text(at, "icon_large", MAX_TEXT_CHARS),
            brand_color: self.read_color(at, "brand_color"),
            default_prompt: self.read_text(at, "default_prompt", MAX_TEXT_CHARS),
        };
        (interface != SkillInterface::default()).then_some(interface)
    }

    fn read_dependencies(&mut self, root: SidecarMapping<'_>) -> Box<[ToolDependency]> {
        const PATH: &[&str] = &["dependencies"];
        let Ok(Some(at)) = self.read_mapping(root, PATH, &["tools"]) else { return Box::default() };
        let Ok(items) = self.read_list(at, "tools") else { return Box::default() };
        items.iter().filter_map(|item| self.read_tool(item)).collect()
    }

    fn read_tool(&mut self, value: &DynamicValue) -> Option<ToolDependency> {
        const KEYS: &[&str] = &["type", "value", "description", "transport", "command", "url"];
        let at = SidecarMapping { value, path: &["dependencies", "tools"] };
        if value.as_map().is_none() {
            let why = format!("a tool must be a mapping, but is {}; omitted", value.kind());
            self.report_problem(at.path, Severity::Warning, DiagnosticCode::FieldInvalid, why);
            return None;
        }
        self.report_unknown_keys(at, KEYS);
        let (kind, name) = (
            self.read_text(at, "type", MAX_NAME_CHARS),
            self.read_text(at, "value", MAX_TEXT_CHARS),
        );
        let (Some(kind), Some(name)) = (kind, name) else {
            let why = "a tool has no valid `type` or `value`; omitted";
            self.report_problem(at.path, Severity::Warning, DiagnosticCode::FieldInvalid, why);
            return None;
        };
        Some(ToolDependency {
            kind,
            value: name,
            description: self.read_text(at, "description", MAX_TEXT_CHARS),
            transport: self.read_text(at, "transport", MAX_NAME_CHARS),
            command: self.read_text(at, "command", MAX_TEXT_CHARS),
            url: self.read_text(at, "url", MAX_TEXT_CHARS),
        })
    }

    fn read_permissions(&mut self, root: SidecarMapping<'_>) -> Option<SkillPermissions> {
        const PATH: &[&str] = &["permissions"];
        const FILES: &[&str] = &["permissions", "file_system"];
        let at = self.read_mapping(root, PATH, &["network", "file_system", "macos"]).ok()??;
        let mut permissions = SkillPermissions {
            network: self.read_network(at),
            macos: self.read_macos(at),
            ..Default::default()
        };
        if let Ok(Some(files)) = self.read_mapping(at, FILES, &["read", "write"]) {
            permissions.file_system_read =
                self.read_texts(files, "read", MAX_TEXT_CHARS).unwrap_or_default();
            permissions.file_system_write =
                self.read_texts(files, "write", MAX_TEXT_CHARS).unwrap_or_default();
        }
        Some(permissions)
    }

    /// Reads `network: true` or `network: {enabled: true}`.
    fn read_network(&mut self, at: SidecarMapping<'_>) -> Option<bool> {
        const PATH: &[&str] = &["permissions", "network"];
        if let Some(DynamicValue::Bool(is_requested)) = at.value.get("network") {
            return Some(*is_requested);
        }
        let network = self.read_mapping(at, PATH, &["enabled"]).ok()??;
        self.read_bool(network, "enabled").ok()?
    }

    fn read_macos(&mut self, at: SidecarMapping<'_>) -> Option<DynamicValue> {
        let value = non_null_value(at, "macos")?;
        if value.as_map().is_none() {
            self.report_wrong_type(at, "macos", value, "a mapping");
        } else if value.wire_size() > MAX_MACOS_WIRE_BYTES {
            self.report_too_long(at, "macos", &format!("{MAX_MACOS_WIRE_BYTES} bytes"));
        } else if value.depth() > MAX_WIRE_NESTING {
            self.report_too_long(at, "macos", &format!("{MAX_WIRE_NESTING} levels of nesting"));
        } else {
            return Some(value.clone());
        }
        None
    }

    /// Reads the mapping at the last key of `path` and reports its unknown keys.
    fn read_mapping<'v>(
        &mut self,
        parent: SidecarMapping<'v>,
        path: &'static [&'static str],
        known: &[&str],
    ) -> Result<Option<SidecarMapping<'v>>, InvalidField> {
        let key = path.last().copied().unwrap_or_default();
        let Some(value) = non_null_value(parent, key) else { return Ok(None) };
        let at = SidecarMapping { value, path };
        if value.as_map().is_none() {
            return Err(self.report_wrong_type(parent, key, value, "a mapping"));
        }
        self.report_unknown_keys(at, known);
        Ok(Some(at))
    }

    /// Reads a text and trims it. Returns `None` for an empty text.
    fn read_text(&mut self, at: SidecarMapping<'_>, key: &str, max: usize) -> Option<Box<str>> {
        let value = non_null_value(at, key)?;
        let Some(text) = value.as_text().map(str::trim) else {
            self.report_wrong_type(at, key, value, "text");
            return None;
        };
        if text::exceeds_chars(text, max) {
            self.report_too_long(at, key, &format!("{max} characters"));
            return None;
        }
        (!text.is_empty()).then(|| text.into())
    }

    fn read_color(&mut self, at: SidecarMapping<'_>, key: &str) -> Option<Box<str>> {
        let text = self.read_text(at, key, MAX_NAME_CHARS)?;
        let digits = text.strip_prefix('#').unwrap_or_default();
        if digits.len() == 6 && digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Some(text);
        }
        let why = format!(
            "`{}` must be `#RRGGBB`, but is {}; omitted",
            at.key_path(key),
            text::quote_word(&text)
        );
        self.report_warning(at, key, DiagnosticCode::FieldInvalid, why);
        None
    }

    fn read_bool(
        &mut self,
        at: SidecarMapping<'_>,
        key: &str,
    ) -> Result<Option<bool>, InvalidField> {
        match non_null_value(at, key) {
            None => Ok(None),
            Some(DynamicValue::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(self.report_wrong_type(at, key, other, "true or false")),
        }
    }

    fn read_texts(
        &mut self,
        at: SidecarMapping<'_>,
        key: &str,
        max: usize,
    ) -> Result<Box<[Box<str>]>, InvalidField> {
        let items = self.read_list(at, key)?;
        let texts: Option<Vec<&str>> = items.iter().map(DynamicValue::as_text).collect();
        let Some(texts) = texts else {
            let why = format!("`{}` must be a list of texts; omitted", at.key_path(key));
            self.report_warning(at, key, DiagnosticCode::FieldInvalid, why);
            return Err(InvalidField);
        };
        if texts.iter().any(|text| text::exceeds_chars(text, max)) {
            return Err(self.report_too_long(at, key, &format!("{max} characters in an item")));
        }
        Ok(texts.into_iter().map(Into::into).collect())
    }

    /// Reads the items of a list. Returns no items if the key is absent.
    fn read_list<'v>(
        &mut self,
        at: SidecarMapping<'v>,
        key: &str,
    ) -> Result<&'v [DynamicValue], InvalidField> {
        let Some(value) = non_null_value(at, key) else { return Ok(&[]) };
        match value.as_list() {
            None => Err(self.report_wrong_type(at, key, value, "a list")),
            Some(items) if items.len() > MAX_ITEMS => {
                Err(self.report_too_long(at, key, &format!("{MAX_ITEMS} items")))
            }
            Some(items) => Ok(items),
        }
    }

    fn report_unknown_keys(&mut self, at: SidecarMapping<'_>, known: &[&str]) {
        let entries = at.value.as_map().unwrap_or_default();
        let keys: Vec<&str> =
            entries.iter().map(|(key, _)| &**key).filter(|key| !known.contains(key)).collect();
        if let Some(first) = keys.first().copied() {
            let keys = text::quote_words(keys.into_iter());
            let path = [at.path, &[first]].concat();
            self.report_problem(
                &path,
                Severity::Note,
                DiagnosticCode::FieldUnknown,
                format!("unknown keys: {keys}"),
            );
        }
    }

    fn report_wrong_type(
        &mut self,
        at: SidecarMapping<'_>,
        key: &str,
        value: &DynamicValue,
        expected: &str,
    ) -> InvalidField {
        let name = at.key_path(key);
        let why = format!("`{name}` must be {expected}, but is {}; omitted", value.kind());
        self.report_warning(at, key, DiagnosticCode::FieldInvalid, why);
        InvalidField
    }

    fn report_too_long(&mut self, at: SidecarMapping<'_>, key: &str, max: &str) -> InvalidField {
        let why = format!("`{}` is over {max}; omitted", at.key_path(key));
        self.report_warning(at, key, DiagnosticCode::FieldTooLong, why);
        InvalidField
    }

    fn report_warning(
        &mut self,
        at: SidecarMapping<'_>,
        key: &str,
        code: DiagnosticCode,
        why: String,
    ) {
        self.report_problem(&[at.path, &[key]].concat(), Severity::Warning, code, why);
    }

    fn report_problem(
        &mut self,
        path: &[&str],
        severity: Severity,
        code: DiagnosticCode,
        why: impl Into<String>,
    ) {
        if self.problems.len() < MAX_PROBLEMS {
            let (line, column) = position::position_of_key(self.yaml, path);
            self.problems.push(FileProblem::new(code, severity, why).with_position(line, column));
        }
    }
}

/// Returns the value of a key, or `None` if the key is absent or null.
fn non_null_value<'v>(at: SidecarMapping<'v>, key: &str) -> Option<&'v DynamicValue> {
    at.value.get(key).filter(|value| **value != DynamicValue::Null)
}
