//! Components that are declared in JSON and have no type of their own: apps, hooks and LSP servers.
//! The parts that a component needs are checked. A host interprets the rest of the declaration.

use crate::daemon::model::limits::MAX_WIRE_NESTING;
use crate::daemon::model::plugin::{ComponentKind, MAX_COMPONENTS, PluginComponent};
use crate::daemon::model::{DiagnosticCode, DynamicValue, Severity};
use crate::daemon::parse::fields::{FieldMapping, FieldReader, MAX_NAME_CHARS, MAX_TEXT_CHARS};
use crate::daemon::parse::secret_filter;
use caproot_core::text;
use caproot_core::wire::RelPath;

/// Maximum length of the text that a component must have, such as a command or prompt.
const MAX_REQUIRED_CHARS: usize = 8_192;
/// Maximum size of a declaration on the wire.
const MAX_DECLARATION_BYTES: usize = 64 << 10;
/// Events of known hosts, in lower case.
const KNOWN_EVENTS: [&str; 38] = [
    "pretooluse",
    "permissionrequest",
    "permissiondenied",
    "posttooluse",
    "posttoolusefailure",
    "posttoolbatch",
    "precompact",
    "postcompact",
    "sessionstart",
    "sessionend",
    "setup",
    "userpromptsubmit",
    "userpromptexpansion",
    "subagentstart",
    "subagentstop",
    "stop",
    "stopfailure",
    "notification",
    "teammateidle",
    "taskcreated",
    "taskcompleted",
    "configchange",
    "cwdchanged",
    "filechanged",
    "worktreecreate",
    "worktreeremove",
    "instructionsloaded",
    "elicitation",
    "elicitationresult",
    "beforesubmitprompt",
    "beforeshellexecution",
    "aftershellexecution",
    "beforemcpexecution",
    "aftermcpexecution",
    "beforereadfile",
    "afterfileedit",
    "afteragentresponse",
    "afteragentthought",
];

/// Keys and values of a declaration.
type DeclarationEntries = [(Box<str>, DynamicValue)];

/// Reads the components of a kind: `{"apps": {NAME: {…}}}` or only the inner object.
pub fn read(
    fields: &mut FieldReader<'_>,
    kind: ComponentKind,
    value: &DynamicValue,
) -> Vec<PluginComponent> {
    let key = kind.manifest_key();
    let inner = value.get(key).filter(|inner| {
        // An app or LSP server may have the name of its kind.
        let required = inner
            .get(required_key(kind))
            .and_then(DynamicValue::as_text);
        inner.as_map().is_some() && (required.is_none() || kind == ComponentKind::Hooks)
    });
    if inner.is_some() {
        let root = FieldMapping::root(value);
        fields.read_more(root, "the file", &[key, "description", "version"], &[]);
    }

    let entries = inner.unwrap_or(value).as_map().unwrap_or_default();
    if kind == ComponentKind::Hooks {
        return read_events(fields, entries);
    }
    let entries = fields.take_components(&format!("{}s", kind.noun()), entries);
    let required = required_key(kind);
    let named = entries.iter().filter(|(name, _)| &**name != "$schema");
    let read = named.filter_map(|(name, value)| {
        let name = fields.check_component_name(kind.noun(), name)?;
        let declared = match value {
            // An app may be only its id.
            DynamicValue::Text(_) if kind == ComponentKind::Apps => {
                &DynamicValue::Map([(required.into(), value.clone())].into())
            }
            _ => value,
        };
        read_declaration(fields, kind, &name, declared, Some(required))
    });
    read.collect()
}

/// Returns the key of the text that each component of the kind has.
fn required_key(kind: ComponentKind) -> &'static str {
    match kind {
        ComponentKind::Apps => "id",
        _ => "command",
    }
}

/// Reads the hooks of all events: `{EVENT: [{"matcher": …, "hooks": [{…}]}]}`.
fn read_events(fields: &mut FieldReader<'_>, events: &DeclarationEntries) -> Vec<PluginComponent> {
    let mut hooks = HookList::default();
    for (event, groups) in events.iter().filter(|(event, _)| &**event != "$schema") {
        // An event may have many hooks: the name is searched for secrets once.
        let Some(event) = fields.check_component_name("event", event) else {
            continue;
        };
        let Some(groups) = groups.as_list() else {
            let why = format!("must be a list, but is {}", groups.kind());
            fields.report_unusable("event", &event, &why);
            continue;
        };
        if !KNOWN_EVENTS.contains(&&*event.to_lowercase()) {
            let shown = text::quote_word(&event);
            let why = format!("unknown event {shown}; its hooks are still reported");
            fields.report_at(&[], DiagnosticCode::FieldUnknown, Severity::Note, why);
        }

        for group in groups {
            hooks.read_group(fields, &event, group);
        }
    }

    if hooks.omitted > 0 {
        let omitted = hooks.omitted;
        let why = format!("a file may declare {MAX_COMPONENTS} hooks; {omitted} omitted");
        fields.report_warning(DiagnosticCode::LimitReached, why);
    }
    hooks.found
}

/// Hooks of one file.
#[derive(Default)]
struct HookList {
    found: Vec<PluginComponent>,
    /// Number of hooks over `MAX_COMPONENTS`.
    omitted: usize,
}

impl HookList {
    /// Reads the hooks of a group. The other keys of the group, such as `matcher`, belong to each of
    /// its hooks.
    fn read_group(&mut self, fields: &mut FieldReader<'_>, event: &str, group: &DynamicValue) {
        let hooks = match group.get("hooks") {
            // Some hosts declare hooks without groups.
            None => return self.read_hook(fields, event, &[], group),
            Some(DynamicValue::List(hooks)) => hooks,
            Some(other) => {
                let at = FieldMapping::new(group, &["hooks"], event);
                return fields.report_wrong_type(at, "hooks", other, "a list");
            }
        };

        let keys = group.as_map().unwrap_or_default().iter();
        let shared: Vec<_> = keys.filter(|(key, _)| &**key != "hooks").cloned().collect();
        let sizes = shared
            .iter()
            .map(|(key, value)| key.len() + value.wire_size());
        if sizes.sum::<usize>() > 2 * MAX_TEXT_CHARS {
            let why = format!("shares over {} bytes in its group", 2 * MAX_TEXT_CHARS);
            return fields.report_unusable("hook of", event, &why);
        }

        for hook in hooks {
            self.read_hook(fields, event, &shared, hook);
        }
    }

    fn read_hook(
        &mut self,
        fields: &mut FieldReader<'_>,
        event: &str,
        shared: &DeclarationEntries,
        hook: &DynamicValue,
    ) {
        if self.found.len() == MAX_COMPONENTS {
            self.omitted += 1;
            return;
        }
        let Some(own) = hook.as_map() else {
            let why = format!("must be an object, but is {}", hook.kind());
            return fields.report_unusable("hook of", event, &why);
        };

        let inherited = shared.iter().filter(|(key, _)| hook.get(key).is_none());
        let declared = DynamicValue::Map(inherited.chain(own).cloned().collect());
        let at = FieldMapping::new(&declared, &["hooks"], event);
        let hook_type = fields.read_line(at, "type", MAX_NAME_CHARS);
        let required = match hook_type.as_deref() {
            None | Some("command") => Some("command"),
            Some("http") => Some("url"),
            Some("prompt" | "agent") => Some("prompt"),
            Some("mcp_tool") => None,
            // A host interprets the declaration, and may know more types than the daemon.
            Some(other) => {
                let shown = text::quote_word(other);
                let why = format!("unknown hook type {shown}; the hook is still reported");
                fields.report_at(&[], DiagnosticCode::FieldUnknown, Severity::Note, why);
                None
            }
        };
        let read = read_declaration(fields, ComponentKind::Hooks, event, &declared, required);
        self.found.extend(read);
    }
}

/// Reads the declaration of a component. `name` has no secrets. Reports a component without the text
/// at the key `required`, and a declaration that is too large.
pub fn read_declaration(
    fields: &mut FieldReader<'_>,
    kind: ComponentKind,
    name: &str,
    value: &DynamicValue,
    required: Option<&str>,
) -> Option<PluginComponent> {
    let what = match kind {
        ComponentKind::Hooks => "hook of",
        other => other.noun(),
    };
    let Some(entries) = value.as_map() else {
        let why = format!("must be an object, but is {}", value.kind());
        fields.report_unusable(what, name, &why);
        return None;
    };
    let at = FieldMapping::new(value, &[], name);
    let missing =
        required.filter(|key| fields.read_verbatim(at, key, MAX_REQUIRED_CHARS).is_none());
    if let Some(key) = missing {
        fields.report_unusable(what, name, &format!("has no valid `{key}`"));
        return None;
    }

    // The limits are those of the wire, where only the redacted declaration goes.
    let declaration = secret_filter::redact_in_declaration(entries);
    let size = declaration.value.wire_size();
    if size > MAX_DECLARATION_BYTES || declaration.value.depth() > MAX_WIRE_NESTING {
        let why = format!(
            "is over {MAX_DECLARATION_BYTES} bytes, or nested over {MAX_WIRE_NESTING} levels deep"
        );
        fields.report_unusable(what, name, &why);
        return None;
    }
    let redacted = &declaration.redacted;
    let subject = format!("the {what} {}", text::quote_word(name));
    fields.report_redacted(&subject, redacted);
    Some(PluginComponent {
        kind,
        name: name.into(),
        file: RelPath::root(),
        redacted: !redacted.is_empty(),
        declaration: declaration.value,
        digest: None,
        size: 0,
    })
}
