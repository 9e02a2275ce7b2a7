//! The fields of a sidecar, one by one. Leaves parsing the file to its parent.

use super::{Interface, Permissions, Policy, Sidecar, ToolDependency};
use crate::domain::limits::MAX_WIRE_NESTING;
use crate::domain::{Code, Problem, Severity, Value, position, text};

/// Characters of a name or a kind.
const MAX_WORD: usize = 64;
/// Characters of any other text.
const MAX_TEXT: usize = 1_024;
/// Tools, products, and paths of one kind.
const MAX_ITEMS: usize = 256;
/// Bytes on the wire of the macOS permissions.
const MAX_MACOS_WEIGHT: usize = 64 << 10;
/// Problems of one file that are kept, so that a hostile one costs a bounded time to report.
const MAX_PROBLEMS: usize = 64;

/// What reads one field after another, and keeps what is wrong.
pub(super) struct Fields<'a> {
    yaml: &'a str,
    problems: Vec<Problem>,
}

/// A field that is there and cannot be read; its problem is reported.
struct Bad;

/// A mapping and the keys that lead to it.
#[derive(Clone, Copy)]
struct At<'v> {
    value: &'v Value,
    path: &'static [&'static str],
}

impl At<'_> {
    fn name(self, key: &str) -> String {
        [self.path, &[key]].concat().join(".")
    }
}

impl<'a> Fields<'a> {
    /// `yaml` is the text of the whole file, for positions.
    pub(super) fn new(yaml: &'a str) -> Self {
        Self { yaml, problems: Vec::new() }
    }

    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    pub(super) fn sidecar(&mut self, value: &Value) -> Sidecar {
        let root = At { value, path: &[] };
        self.unknown(root, &["interface", "dependencies", "policy", "permissions"]);
        // The policy comes first, so that no flood of other problems can hide that it is closed.
        let policy = self.policy(root);
        Sidecar {
            policy,
            interface: self.interface(root),
            dependencies: self.dependencies(root),
            permissions: self.permissions(root).filter(|asked| *asked != Permissions::default()),
        }
    }

    fn policy(&mut self, root: At<'_>) -> Policy {
        const PATH: &[&str] = &["policy"];
        let policy = match self.mapping(root, PATH, &["allow_implicit_invocation", "products"]) {
            Ok(policy) => policy,
            Err(Bad) => return Sidecar::closed().policy,
        };
        let Some(policy) = policy else { return Policy::default() };
        let implicit = self.flag(policy, "allow_implicit_invocation");
        let products = self.texts(policy, "products", MAX_WORD);
        let allow_implicit_invocation = match (implicit, &products) {
            (Ok(implicit), Ok(_)) => implicit,
            _ => Some(false),
        };
        Policy { allow_implicit_invocation, products: products.unwrap_or_default() }
    }

    fn interface(&mut self, root: At<'_>) -> Option<Interface> {
        const PATH: &[&str] = &["interface"];
        const KEYS: &[&str] = &[
            "display_name",
            "short_description",
            "icon_small",
            "icon_large",
            "brand_color",
            "default_prompt",
        ];
        let at = self.mapping(root, PATH, KEYS).ok()??;
        let one_line = |text: Option<Box<str>>| text.map(|text| text::collapsed(&text));
        let interface = Interface {
            display_name: one_line(self.text(at, "display_name", MAX_WORD)),
            short_description: one_line(self.text(at, "short_description", MAX_TEXT)),
            icon_small: self.text(at, "icon_small", MAX_TEXT),
            icon_large: self.text(at, "icon_large", MAX_TEXT),
            brand_color: self.color(at, "brand_color"),
            default_prompt: self.text(at, "default_prompt", MAX_TEXT),
        };
        (interface != Interface::default()).then_some(interface)
    }

    fn dependencies(&mut self, root: At<'_>) -> Box<[ToolDependency]> {
        const PATH: &[&str] = &["dependencies"];
        let Ok(Some(at)) = self.mapping(root, PATH, &["tools"]) else { return Box::default() };
        let Ok(items) = self.list(at, "tools") else { return Box::default() };
        items.iter().filter_map(|item| self.tool(item)).collect()
    }

    fn tool(&mut self, value: &Value) -> Option<ToolDependency> {
        const KEYS: &[&str] = &["type", "value", "description", "transport", "command", "url"];
        let at = At { value, path: &["dependencies", "tools"] };
        if value.as_map().is_none() {
            let why = format!("a tool is {}, and must be a mapping; left out", value.kind());
            self.report(at.path, Severity::Warning, Code::FieldInvalid, why);
            return None;
        }
        self.unknown(at, KEYS);
        let (kind, name) = (self.text(at, "type", MAX_WORD), self.text(at, "value", MAX_TEXT));
        let (Some(kind), Some(name)) = (kind, name) else {
            let why = "a tool without a `type` or `value` that can be used; left out";
            self.report(at.path, Severity::Warning, Code::FieldInvalid, why);
            return None;
        };
        Some(ToolDependency {
            kind,
            value: name,
            description: self.text(at, "description", MAX_TEXT),
            transport: self.text(at, "transport", MAX_WORD),
            command: self.text(at, "command", MAX_TEXT),
            url: self.text(at, "url", MAX_TEXT),
        })
    }

    fn permissions(&mut self, root: At<'_>) -> Option<Permissions> {
        const PATH: &[&str] = &["permissions"];
        const FILES: &[&str] = &["permissions", "file_system"];
        let at = self.mapping(root, PATH, &["network", "file_system", "macos"]).ok()??;
        let mut asked =
            Permissions { network: self.network(at), macos: self.macos(at), ..Default::default() };
        if let Ok(Some(files)) = self.mapping(at, FILES, &["read", "write"]) {
            asked.read = self.texts(files, "read", MAX_TEXT).unwrap_or_default();
            asked.write = self.texts(files, "write", MAX_TEXT).unwrap_or_default();
        }
        Some(asked)
    }

    /// `network: true`, or `network: {enabled: true}`.
    fn network(&mut self, at: At<'_>) -> Option<bool> {
        const PATH: &[&str] = &["permissions", "network"];
        if let Some(Value::Bool(asked)) = at.value.get("network") {
            return Some(*asked);
        }
        let network = self.mapping(at, PATH, &["enabled"]).ok()??;
        self.flag(network, "enabled").ok()?
    }

    fn macos(&mut self, at: At<'_>) -> Option<Value> {
        let value = present(at, "macos")?;
        if value.as_map().is_none() {
            self.wrong(at, "macos", value, "a mapping");
        } else if value.weight() > MAX_MACOS_WEIGHT {
            self.too_long(at, "macos", &format!("{MAX_MACOS_WEIGHT} bytes"));
        } else if value.depth() > MAX_WIRE_NESTING {
            self.too_long(at, "macos", &format!("{MAX_WIRE_NESTING} levels of nesting"));
        } else {
            return Some(value.clone());
        }
        None
    }

    /// The mapping under the last key of `path`, its unknown keys reported.
    fn mapping<'v>(
        &mut self,
        parent: At<'v>,
        path: &'static [&'static str],
        known: &[&str],
    ) -> Result<Option<At<'v>>, Bad> {
        let key = path.last().copied().unwrap_or_default();
        let Some(value) = present(parent, key) else { return Ok(None) };
        let at = At { value, path };
        if value.as_map().is_none() {
            return Err(self.wrong(parent, key, value, "a mapping"));
        }
        self.unknown(at, known);
        Ok(Some(at))
    }

    /// The text under a key without the white space around it, if it is there and can be used.
    fn text(&mut self, at: At<'_>, key: &str, max: usize) -> Option<Box<str>> {
        let value = present(at, key)?;
        let Some(text) = value.as_text().map(str::trim) else {
            self.wrong(at, key, value, "text");
            return None;
        };
        if text::is_over(text, max) {
            self.too_long(at, key, &format!("{max} characters"));
            return None;
        }
        (!text.is_empty()).then(|| text.into())
    }

    fn color(&mut self, at: At<'_>, key: &str) -> Option<Box<str>> {
        let text = self.text(at, key, MAX_WORD)?;
        let digits = text.strip_prefix('#').unwrap_or_default();
        if digits.len() == 6 && digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Some(text);
        }
        let why = format!("`{}` is {}, and must be `#RRGGBB`", at.name(key), text::shown(&text));
        self.warn(at, key, Code::FieldInvalid, why);
        None
    }

    fn flag(&mut self, at: At<'_>, key: &str) -> Result<Option<bool>, Bad> {
        match present(at, key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(self.wrong(at, key, other, "true or false")),
        }
    }

    fn texts(&mut self, at: At<'_>, key: &str, max: usize) -> Result<Box<[Box<str>]>, Bad> {
        let items = self.list(at, key)?;
        let texts: Option<Vec<&str>> = items.iter().map(Value::as_text).collect();
        let Some(texts) = texts else {
            let why = format!("`{}` holds what is no text; left out", at.name(key));
            self.warn(at, key, Code::FieldInvalid, why);
            return Err(Bad);
        };
        if texts.iter().any(|text| text::is_over(text, max)) {
            return Err(self.too_long(at, key, &format!("{max} characters in an item")));
        }
        Ok(texts.into_iter().map(Into::into).collect())
    }

    /// The items under a key; none where it is absent.
    fn list<'v>(&mut self, at: At<'v>, key: &str) -> Result<&'v [Value], Bad> {
        let Some(value) = present(at, key) else { return Ok(&[]) };
        match value.as_list() {
            None => Err(self.wrong(at, key, value, "a list")),
            Some(items) if items.len() > MAX_ITEMS => {
                Err(self.too_long(at, key, &format!("{MAX_ITEMS} items")))
            }
            Some(items) => Ok(items),
        }
    }

    fn unknown(&mut self, at: At<'_>, known: &[&str]) {
        let entries = at.value.as_map().unwrap_or_default();
        let keys: Vec<&str> =
            entries.iter().map(|(key, _)| &**key).filter(|key| !known.contains(key)).collect();
        if let Some(first) = keys.first().copied() {
            let keys = text::listed(keys.into_iter());
            let path = [at.path, &[first]].concat();
            self.report(&path, Severity::Note, Code::FieldUnknown, format!("not known: {keys}"));
        }
    }

    fn wrong(&mut self, at: At<'_>, key: &str, value: &Value, expected: &str) -> Bad {
        let name = at.name(key);
        let why = format!("`{name}` is {}, and must be {expected}; left out", value.kind());
        self.warn(at, key, Code::FieldInvalid, why);
        Bad
    }

    fn too_long(&mut self, at: At<'_>, key: &str, max: &str) -> Bad {
        let why = format!("`{}` is over {max}; left out", at.name(key));
        self.warn(at, key, Code::FieldTooLong, why);
        Bad
    }

    fn warn(&mut self, at: At<'_>, key: &str, code: Code, why: String) {
        self.report(&[at.path, &[key]].concat(), Severity::Warning, code, why);
    }

    fn report(&mut self, path: &[&str], severity: Severity, code: Code, why: impl Into<String>) {
        if self.problems.len() < MAX_PROBLEMS {
            let (line, column) = position::of_key(self.yaml, path);
            self.problems.push(Problem::new(code, severity, why).at(line, column));
        }
    }
}

/// The value under a key, unless it is absent or null.
fn present<'v>(at: At<'v>, key: &str) -> Option<&'v Value> {
    at.value.get(key).filter(|value| **value != Value::Null)
}
