//! MCP servers, as they are declared: how to reach each, and the names of what it is given. Values
//! that may be secret are left out.

use super::fields::{LabeledMapping, MAX_NAME_CHARS, MAX_TEXT_CHARS, PluginFieldReader};
use super::{plugin_path, secret_filter};
use crate::domain::{DiagnosticCode, DynamicValue, RelPath, text};

/// One MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the proto's `McpServer` says what each means
pub struct McpServer {
    pub name: Box<str>,
    pub transport: McpTransport,
    pub command: Box<str>,
    pub args: Box<[Box<str>]>,
    /// Below the plugin.
    pub cwd: RelPath,
    pub url: Box<str>,
    pub headers: Box<[NamedValue]>,
    pub environment: Box<[NamedValue]>,
    pub bearer_token_variable: Option<Box<str>>,
    pub description: Option<Box<str>>,
    pub enabled: Option<bool>,
    pub required: Option<bool>,
    pub enabled_tools: Option<Box<[Box<str>]>>,
    pub disabled_tools: Box<[Box<str>]>,
    /// In milliseconds.
    pub startup_timeout_ms: Option<u64>,
    /// In milliseconds.
    pub tool_timeout_ms: Option<u64>,
    /// Whether anything of it is redacted.
    pub redacted: bool,
    /// Where it is declared, below the plugin.
    pub declared_by: RelPath,
}

/// How a server is talked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the proto's `McpTransport` says what each means
pub enum McpTransport {
    Stdio,
    StreamableHttp,
    Sse,
}

/// A header or a variable that a server is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedValue {
    /// Its name.
    pub name: Box<str>,
    /// What it is set to; `None` where that may be secret.
    pub value: Option<Box<str>>,
    /// The variable of the host's environment that it is taken from.
    pub from_variable: Option<Box<str>>,
}

/// What is known of a server.
const KNOWN_KEYS: &[&str] = &[
    "type",
    "transport",
    "command",
    "args",
    "cwd",
    "env",
    "env_vars",
    "envVars",
    "url",
    "headers",
    "http_headers",
    "httpHeaders",
    "env_http_headers",
    "envHttpHeaders",
    "bearer_token_env_var",
    "bearerTokenEnvVar",
    "description",
    "enabled",
    "disabled",
    "required",
    "enabled_tools",
    "enabledTools",
    "disabled_tools",
    "disabledTools",
    "startup_timeout_sec",
    "startup_timeout_ms",
    "startupTimeoutSec",
    "startupTimeoutMs",
    "tool_timeout_sec",
    "toolTimeoutSec",
    "timeout",
];

/// Reads `{"mcpServers": {NAME: {…}}}`, or the inner object alone.
pub(super) fn read(fields: &mut PluginFieldReader<'_>, value: &DynamicValue) -> Vec<McpServer> {
    let root = LabeledMapping::root(value);
    let inner = ["mcpServers", "mcp_servers"].into_iter().find_map(|key| {
        let inner = value.get(key).filter(|inner| inner.as_map().is_some())?;
        // A server may be called so.
        let is_server =
            inner.get("command").or(inner.get("url")).is_some_and(DynamicValue::is_scalar);
        (!is_server).then_some((key, inner))
    });
    let inner = match inner {
        Some((key, inner)) => {
            fields.report_unknown_keys(root, &[key, "inputs"]);
            inner
        }
        None => value,
    };
    let entries = fields.take_components("MCP servers", inner.as_map().unwrap_or_default());
    let entries = entries.iter().filter(|(name, _)| &**name != "$schema");
    entries.filter_map(|(name, value)| read_server(fields, name, value)).collect()
}

fn read_server(
    fields: &mut PluginFieldReader<'_>,
    name: &str,
    value: &DynamicValue,
) -> Option<McpServer> {
    const WHAT: &str = "MCP server";
    if value.as_map().is_none() {
        fields.report_unusable(WHAT, name, &format!("is {}, and must be an object", value.kind()));
        return None;
    }
    let name = fields.check_component_name(WHAT, name)?;
    let at = LabeledMapping::new(value, "mcpServers", &name);
    let command = fields.read_verbatim(at, "command", MAX_TEXT_CHARS);
    let url = fields.read_verbatim(at, "url", MAX_TEXT_CHARS);
    let transport = read_transport(fields, at, &name, command.is_some(), url.is_some())?;
    let stdio = transport == McpTransport::Stdio;
    let (command, command_redacted) =
        secret_filter::redact_in_command(command.filter(|_| stdio).unwrap_or_default());
    let (args, args_redacted) =
        secret_filter::redact_in_arguments(fields.read_verbatim_list(at, "args", MAX_TEXT_CHARS));
    let (url, url_redacted) =
        secret_filter::redact_in_url(url.filter(|_| !stdio).unwrap_or_default());
    let mut likely = command_redacted || args_redacted || url_redacted;
    let mut given = |fields: &mut PluginFieldReader<'_>, sets: &[&str], takes: &[&str]| {
        read_named_values(fields, at, (sets, takes), &mut likely)
    };
    let environment = given(fields, &["env"], &["env_vars", "envVars"]);
    let headers = given(
        fields,
        &["headers", "http_headers", "httpHeaders"],
        &["env_http_headers", "envHttpHeaders"],
    );
    let unset =
        |given: &[NamedValue]| given.iter().any(|g| g.value.is_none() && g.from_variable.is_none());
    let redacted = likely || unset(&environment) || unset(&headers);
    if likely {
        let name = text::quote_word(&name);
        let why = format!(
            "the MCP server {name} holds what may be a secret, which is redacted; \
             take it from the environment: `${{NAME}}`"
        );
        fields.report_warning(DiagnosticCode::SecretRedacted, why);
    }
    let (cwd, enabled) = (read_working_dir(fields, at), read_enabled(fields, at));
    fields.report_unknown_keys(at, KNOWN_KEYS);
    Some(McpServer {
        transport,
        command: command.into(),
        args,
        cwd,
        url: url.into(),
        headers,
        environment,
        bearer_token_variable: find_present_key(at, ["bearer_token_env_var", "bearerTokenEnvVar"])
            .and_then(|key| fields.read_line(at, key, MAX_NAME_CHARS)),
        description: fields.read_line(at, "description", MAX_TEXT_CHARS),
        enabled,
        required: fields.read_bool(at, "required"),
        enabled_tools: find_present_key(at, ["enabled_tools", "enabledTools"])
            .map(|key| fields.read_lines(at, key, MAX_NAME_CHARS)),
        disabled_tools: find_present_key(at, ["disabled_tools", "disabledTools"])
            .map(|key| fields.read_lines(at, key, MAX_NAME_CHARS))
            .unwrap_or_default(),
        startup_timeout_ms: read_timeout_ms(fields, at, STARTUP_TIMEOUT_KEYS),
        tool_timeout_ms: read_timeout_ms(fields, at, TOOL_TIMEOUT_KEYS),
        redacted,
        declared_by: RelPath::root(),
        name: name.clone(),
    })
}

fn read_transport(
    fields: &mut PluginFieldReader<'_>,
    at: LabeledMapping<'_>,
    name: &str,
    has_command: bool,
    has_url: bool,
) -> Option<McpTransport> {
    let key = find_present_key(at, ["type", "transport"]);
    let word = key.and_then(|key| fields.read_line(at, key, MAX_NAME_CHARS)).unwrap_or_default();
    let word: String = word.to_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
    let transport = match &*word {
        "stdio" => McpTransport::Stdio,
        "" if has_command => McpTransport::Stdio,
        "" | "http" | "streamablehttp" => McpTransport::StreamableHttp,
        "sse" => McpTransport::Sse,
        _ => {
            let why = "has a transport that is not known, which is none of `stdio`, `http`, `sse`";
            fields.report_unusable("MCP server", name, why);
            return None;
        }
    };
    let (has, needs, other) = match transport {
        McpTransport::Stdio => (has_command, "`command`", has_url),
        McpTransport::StreamableHttp | McpTransport::Sse => (has_url, "`url`", has_command),
    };
    if !has {
        let needs = if word.is_empty() { "`command` or `url`" } else { needs };
        fields.report_unusable("MCP server", name, &format!("has no {needs} that can be used"));
        return None;
    }
    if other {
        let why = format!(
            "the MCP server {} has a command and a url; {needs} is used",
            text::quote_word(name)
        );
        fields.report_warning(DiagnosticCode::FieldInvalid, why);
    }
    Some(transport)
}

/// The keys of a time, each with the milliseconds of its unit.
type TimeoutKeys = [(&'static str, f64); 3];
const STARTUP_TIMEOUT_KEYS: TimeoutKeys =
    [("startup_timeout_ms", 1.0), ("startup_timeout_sec", 1_000.0), ("startupTimeoutSec", 1_000.0)];
const TOOL_TIMEOUT_KEYS: TimeoutKeys =
    [("tool_timeout_sec", 1_000.0), ("toolTimeoutSec", 1_000.0), ("timeout", 1.0)];

fn read_timeout_ms(
    fields: &mut PluginFieldReader<'_>,
    at: LabeledMapping<'_>,
    keys: TimeoutKeys,
) -> Option<u64> {
    let (key, unit) = keys.into_iter().find(|(key, _)| at.non_null_value(key).is_some())?;
    fields.read_duration_ms(at, key, unit)
}

fn find_present_key(at: LabeledMapping<'_>, keys: [&'static str; 2]) -> Option<&'static str> {
    keys.into_iter().find(|key| at.non_null_value(key).is_some())
}

fn read_enabled(fields: &mut PluginFieldReader<'_>, at: LabeledMapping<'_>) -> Option<bool> {
    let disabled = fields.read_bool(at, "disabled").map(|disabled| !disabled);
    fields.read_bool(at, "enabled").or(disabled)
}

fn read_working_dir(fields: &mut PluginFieldReader<'_>, at: LabeledMapping<'_>) -> RelPath {
    let Some(text) = fields.read_verbatim(at, "cwd", MAX_TEXT_CHARS) else {
        return RelPath::root();
    };
    plugin_path::parse_working_dir(text).unwrap_or_else(|| {
        let text = secret_filter::redact_in_path(text);
        let why =
            format!("`cwd` names {text}, which is not inside the plugin; its own is reported");
        fields.report_warning(DiagnosticCode::PathInvalid, why);
        RelPath::root()
    })
}

/// What a server is given: names with values, and names with where the value is taken from. A list of
/// names takes each from the variable of the same name.
fn read_named_values(
    fields: &mut PluginFieldReader<'_>,
    at: LabeledMapping<'_>,
    (sets, takes): (&[&str], &[&str]),
    likely: &mut bool,
) -> Box<[NamedValue]> {
    let mut all = Vec::new();
    for key in sets {
        for (name, value) in fields.read_entries(at, key) {
            let printed = value.to_text();
            let shown =
                secret_filter::reportable_value(name, &printed).filter(|_| value.is_scalar());
            *likely |= shown.is_none() && secret_filter::is_likely_secret(name, &printed);
            all.push(NamedValue { name: clean_name(name), value: shown, from_variable: None });
        }
    }
    for key in takes {
        if at.non_null_value(key).is_some_and(|value| value.as_map().is_some()) {
            for (name, from) in fields.read_entries(at, key) {
                let from = from.as_text().map(clean_name);
                all.push(NamedValue { name: clean_name(name), value: None, from_variable: from });
            }
            continue;
        }
        for name in fields.read_verbatim_list(at, key, MAX_NAME_CHARS) {
            all.push(NamedValue {
                name: clean_name(name),
                value: None,
                from_variable: Some(clean_name(name)),
            });
        }
    }
    all.into()
}

fn clean_name(name: &str) -> Box<str> {
    text::truncate_chars(&secret_filter::redact_in_text(name), MAX_NAME_CHARS).into()
}
