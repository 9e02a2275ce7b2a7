//! Declared MCP servers: transport, command or URL, headers and environment variables. Possible
//! secrets are redacted.

use super::{documented_keys, plugin_path};
use crate::daemon::model::plugin::{McpServer, McpTransport, NamedValue};
use crate::daemon::model::{DiagnosticCode, DynamicValue};
use crate::daemon::parse::fields::{FieldMapping, FieldReader, MAX_NAME_CHARS, MAX_TEXT_CHARS};
use crate::daemon::parse::secret_filter;
use caproot_core::text;
use caproot_core::wire::RelPath;

/// Known keys of a server.
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

/// Keys of environment variables or headers.
struct NamedValueKeys {
    /// Keys of mappings of names to values.
    set: &'static [&'static str],
    /// Keys of mappings of names to variables of the host, or of lists of variables that keep their name.
    inherited: &'static [&'static str],
}
const ENVIRONMENT_KEYS: NamedValueKeys = NamedValueKeys {
    set: &["env"],
    inherited: &["env_vars", "envVars"],
};
const HEADER_KEYS: NamedValueKeys = NamedValueKeys {
    set: &["headers", "http_headers", "httpHeaders"],
    inherited: &["env_http_headers", "envHttpHeaders"],
};
const BEARER_TOKEN_KEYS: [&str; 2] = ["bearer_token_env_var", "bearerTokenEnvVar"];

/// Reads `{"mcpServers": {NAME: {…}}}` or only the inner object.
pub fn read(fields: &mut FieldReader<'_>, value: &DynamicValue) -> Vec<McpServer> {
    let root = FieldMapping::root(value);
    let inner = ["mcpServers", "mcp_servers"].into_iter().find_map(|key| {
        let inner = value.get(key).filter(|inner| inner.as_map().is_some())?;
        // A server may have the name `mcpServers`.
        let required = inner.get("command").or(inner.get("url"));
        let is_server = required.is_some_and(DynamicValue::is_scalar);
        (!is_server).then_some((key, inner))
    });
    if let Some((key, _)) = inner {
        fields.read_more(root, "the file", &[key], &[&["inputs"]]);
    }

    let servers = inner.map_or(value, |(_, inner)| inner);
    fields
        .take_components("MCP servers", servers.as_map().unwrap_or_default())
        .iter()
        .filter(|(name, _)| &**name != "$schema")
        .filter_map(|(name, value)| read_server(fields, name, value))
        .collect()
}

fn read_server(
    fields: &mut FieldReader<'_>,
    name: &str,
    value: &DynamicValue,
) -> Option<McpServer> {
    if value.as_map().is_none() {
        let why = format!("must be an object, but is {}", value.kind());
        fields.report_unusable("MCP server", name, &why);
        return None;
    }
    let name = fields.check_component_name("MCP server", name)?;
    let at = FieldMapping::new(value, &["mcpServers"], &name);

    let command = fields.read_verbatim(at, "command", MAX_TEXT_CHARS);
    let url = fields.read_verbatim(at, "url", MAX_TEXT_CHARS);
    let transport = read_transport(fields, at, &name, command.is_some(), url.is_some())?;
    let is_stdio = transport == McpTransport::Stdio;
    let mut redacted = Vec::new();

    // The key of the other transport is not used, as `read_transport` reports.
    let command = command.filter(|_| is_stdio).unwrap_or_default();
    let shown_command = secret_filter::redact_in_line(command);
    let url = url.filter(|_| !is_stdio).unwrap_or_default();
    let shown_url = secret_filter::redact_in_line(url);
    let args = fields.read_verbatim_list(at, "args", MAX_TEXT_CHARS);
    let shown_args = secret_filter::redact_in_arguments(args.iter().copied(), false);
    let is_args_shown = args.into_iter().eq(shown_args.iter().map(|arg| &**arg));
    for (key, is_shown) in [
        ("command", shown_command == command),
        ("url", shown_url == url),
        ("args", is_args_shown),
    ] {
        if !is_shown {
            redacted.push(key.to_owned());
        }
    }

    let environment = read_named_values(fields, at, &ENVIRONMENT_KEYS, &mut redacted);
    let headers = read_named_values(fields, at, &HEADER_KEYS, &mut redacted);
    let subject = format!("the MCP server {}", text::quote_word(&name));
    fields.report_redacted(&subject, &redacted);

    let cwd = read_working_dir(fields, at);
    let enabled = read_enabled(fields, at);
    let more = fields.read_more(at, &subject, KNOWN_KEYS, &[documented_keys::MCP_SERVER]);
    Some(McpServer {
        transport,
        command: shown_command.into(),
        args: shown_args.into(),
        cwd,
        url: shown_url.into(),
        redacted: !redacted.is_empty() || more.has_redacted,
        headers: headers.into(),
        environment: environment.into(),
        more: more.value,
        bearer_token_variable: at
            .find_present_key(BEARER_TOKEN_KEYS)
            .and_then(|key| fields.read_line(at, key, MAX_NAME_CHARS)),
        description: fields.read_line(at, "description", MAX_TEXT_CHARS),
        enabled,
        required: fields.read_bool(at, "required"),
        enabled_tools: read_tools(fields, at, ["enabled_tools", "enabledTools"]),
        disabled_tools: read_tools(fields, at, ["disabled_tools", "disabledTools"])
            .unwrap_or_default(),
        startup_timeout_ms: read_timeout_ms(fields, at, STARTUP_TIMEOUT_KEYS),
        tool_timeout_ms: read_timeout_ms(fields, at, TOOL_TIMEOUT_KEYS),
        declared_by: RelPath::root(),
        digest: None,
        name: name.clone(),
    })
}

/// Reads the working directory, or returns the plugin's directory.
fn read_working_dir(fields: &mut FieldReader<'_>, at: FieldMapping<'_>) -> RelPath {
    let Some(text) = fields.read_verbatim(at, "cwd", MAX_TEXT_CHARS) else {
        return RelPath::root();
    };
    plugin_path::parse_working_dir(text).unwrap_or_else(|| {
        let text = secret_filter::quote_path(text);
        let why = format!(
            "`cwd` names {text}, which is not inside the plugin; the plugin's directory is reported"
        );
        fields.report_warning(DiagnosticCode::PathInvalid, why);
        RelPath::root()
    })
}

/// Reads whether a server is enabled. `enabled` comes before `disabled`.
fn read_enabled(fields: &mut FieldReader<'_>, at: FieldMapping<'_>) -> Option<bool> {
    let disabled = fields.read_bool(at, "disabled").map(|disabled| !disabled);
    fields.read_bool(at, "enabled").or(disabled)
}

fn read_tools(
    fields: &mut FieldReader<'_>,
    at: FieldMapping<'_>,
    keys: [&str; 2],
) -> Option<Box<[Box<str>]>> {
    let key = at.find_present_key(keys)?;
    Some(fields.read_lines(at, key, MAX_NAME_CHARS))
}

fn read_transport(
    fields: &mut FieldReader<'_>,
    at: FieldMapping<'_>,
    name: &str,
    has_command: bool,
    has_url: bool,
) -> Option<McpTransport> {
    let key = at.find_present_key(["type", "transport"]);
    let declared = key.and_then(|key| fields.read_line(at, key, MAX_NAME_CHARS));

    // A transport has several spellings, such as `streamable-http` and `streamableHttp`.
    let mut word = declared.unwrap_or_default().to_lowercase();
    word.retain(|c| c.is_ascii_alphanumeric());

    let transport = match &*word {
        "stdio" => McpTransport::Stdio,
        "" if has_command => McpTransport::Stdio,
        "" | "http" | "streamablehttp" => McpTransport::StreamableHttp,
        "sse" => McpTransport::Sse,
        _ => {
            let why = "has an unknown transport, expected `stdio`, `http` or `sse`";
            fields.report_unusable("MCP server", name, why);
            return None;
        }
    };

    let (has_required, required, has_other) = match transport {
        McpTransport::Stdio => (has_command, "`command`", has_url),
        McpTransport::StreamableHttp | McpTransport::Sse => (has_url, "`url`", has_command),
    };

    if !has_required {
        let required = match &*word {
            "" => "`command` or `url`",
            _ => required,
        };
        fields.report_unusable("MCP server", name, &format!("has no valid {required}"));
        return None;
    }

    if has_other {
        let why = format!(
            "the MCP server {} has a command and a url; {required} is used",
            text::quote_word(name)
        );
        fields.report_warning(DiagnosticCode::FieldInvalid, why);
    }

    Some(transport)
}

/// Keys of a timeout, each with the number of milliseconds in its unit.
type TimeoutKeys = [(&'static str, f64); 3];
const STARTUP_TIMEOUT_KEYS: TimeoutKeys = [
    ("startup_timeout_ms", 1.0),
    ("startup_timeout_sec", 1_000.0),
    ("startupTimeoutSec", 1_000.0),
];
const TOOL_TIMEOUT_KEYS: TimeoutKeys = [
    ("tool_timeout_sec", 1_000.0),
    ("toolTimeoutSec", 1_000.0),
    ("timeout", 1.0),
];

fn read_timeout_ms(
    fields: &mut FieldReader<'_>,
    at: FieldMapping<'_>,
    keys: TimeoutKeys,
) -> Option<u64> {
    let (key, unit) = keys
        .into_iter()
        .find(|(key, _)| at.non_null_value(key).is_some())?;
    fields.read_duration_ms(at, key, unit)
}

/// Reads the headers or environment variables of a server. Adds the redacted ones to `redacted`.
fn read_named_values(
    fields: &mut FieldReader<'_>,
    at: FieldMapping<'_>,
    keys: &NamedValueKeys,
    redacted: &mut Vec<String>,
) -> Vec<NamedValue> {
    let mut named = Vec::new();
    for key in keys.set {
        for (name, value) in fields.read_entries(at, key) {
            let text = value.to_text();
            let shown = secret_filter::redact_in_value(name, &text);
            let is_shown = value.is_scalar() && shown == *text;
            let shown_name = clean_name(name);
            if !is_shown || shown_name != *name {
                redacted.push(format!("{key}.{shown_name}"));
            }
            named.push(NamedValue {
                name: shown_name,
                value: is_shown.then_some(text),
                from_variable: None,
            });
        }
    }

    for key in keys.inherited {
        let inherited = |name: &str, variable: Option<&str>| NamedValue {
            name: clean_name(name),
            value: None,
            from_variable: variable.map(clean_name),
        };
        if let Some(DynamicValue::Map(_)) = at.non_null_value(key) {
            let entries = fields.read_entries(at, key).iter();
            named.extend(entries.map(|(name, variable)| inherited(name, variable.as_text())));
        } else {
            let variables = fields.read_verbatim_list(at, key, MAX_NAME_CHARS);
            named.extend(
                variables
                    .into_iter()
                    .map(|name| inherited(name, Some(name))),
            );
        }
    }
    named
}

fn clean_name(name: &str) -> Box<str> {
    text::truncate_chars(&secret_filter::redact_in_text(name), MAX_NAME_CHARS).into()
}
