//! MCP servers, as they are declared: how to reach each, and the names of what it is given. Values
//! that may be secret are left out.

use super::fields::{At, Fields, MAX_NAME, MAX_TEXT};
use super::{bounds, place, secret};
use crate::domain::{Code, RelPath, Value, text};

/// One MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the proto's `McpServer` says what each means
pub struct McpServer {
    pub name: Box<str>,
    pub transport: Transport,
    pub command: Box<str>,
    pub args: Box<[Box<str>]>,
    /// Below the plugin.
    pub cwd: RelPath,
    pub url: Box<str>,
    pub headers: Box<[Given]>,
    pub environment: Box<[Given]>,
    pub bearer_token_variable: Option<Box<str>>,
    pub description: Option<Box<str>>,
    pub enabled: Option<bool>,
    pub required: Option<bool>,
    pub enabled_tools: Option<Box<[Box<str>]>>,
    pub disabled_tools: Box<[Box<str>]>,
    /// In milliseconds.
    pub startup_timeout: Option<u64>,
    /// In milliseconds.
    pub tool_timeout: Option<u64>,
    /// Whether anything of it is withheld.
    pub withheld: bool,
    /// Where it is declared, below the plugin.
    pub file: RelPath,
}

/// How a server is talked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the proto's `McpTransport` says what each means
pub enum Transport {
    Stdio,
    StreamableHttp,
    Sse,
}

/// A header or a variable that a server is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// Its name.
    pub name: Box<str>,
    /// What it is set to; `None` where that may be secret.
    pub value: Option<Box<str>>,
    /// The variable of the host's environment that it is taken from.
    pub from: Option<Box<str>>,
}

/// What is known of a server.
const KEYS: &[&str] = &[
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
pub(super) fn read(fields: &mut Fields<'_>, value: &Value) -> Vec<McpServer> {
    let root = At::root(value);
    let inner = ["mcpServers", "mcp_servers"].into_iter().find_map(|key| {
        let inner = value.get(key).filter(|inner| inner.as_map().is_some())?;
        // A server may be called so.
        let is_server = inner.get("command").or(inner.get("url")).is_some_and(Value::is_scalar);
        (!is_server).then_some((key, inner))
    });
    let inner = match inner {
        Some((key, inner)) => {
            fields.unknown(root, &[key, "inputs"]);
            inner
        }
        None => value,
    };
    let entries = bounds::first(fields, "MCP servers", inner.as_map().unwrap_or_default());
    let entries = entries.iter().filter(|(name, _)| &**name != "$schema");
    entries.filter_map(|(name, value)| server(fields, name, value)).collect()
}

fn server(fields: &mut Fields<'_>, name: &str, value: &Value) -> Option<McpServer> {
    const WHAT: &str = "MCP server";
    if value.as_map().is_none() {
        fields.useless(WHAT, name, &format!("is {}, and must be an object", value.kind()));
        return None;
    }
    let name = bounds::name(fields, WHAT, name)?;
    let at = At::named(value, "mcpServers", &name);
    let command = fields.whole(at, "command", MAX_TEXT);
    let url = fields.whole(at, "url", MAX_TEXT);
    let transport = transport(fields, at, &name, command.is_some(), url.is_some())?;
    let stdio = transport == Transport::Stdio;
    let (command, command_withheld) =
        secret::command(command.filter(|_| stdio).unwrap_or_default());
    let (args, args_withheld) = secret::arguments(fields.texts(at, "args", MAX_TEXT));
    let (url, url_withheld) = secret::url(url.filter(|_| !stdio).unwrap_or_default());
    let mut likely = command_withheld || args_withheld || url_withheld;
    let mut given = |fields: &mut Fields<'_>, sets: &[&str], takes: &[&str]| {
        collect(fields, at, (sets, takes), &mut likely)
    };
    let environment = given(fields, &["env"], &["env_vars", "envVars"]);
    let headers = given(
        fields,
        &["headers", "http_headers", "httpHeaders"],
        &["env_http_headers", "envHttpHeaders"],
    );
    let unset = |given: &[Given]| given.iter().any(|g| g.value.is_none() && g.from.is_none());
    let withheld = likely || unset(&environment) || unset(&headers);
    if likely {
        let name = text::shown(&name);
        let why = format!(
            "the MCP server {name} holds what may be a secret, which is withheld; \
             take it from the environment: `${{NAME}}`"
        );
        fields.warn(Code::SecretWithheld, why);
    }
    let (cwd, enabled) = (cwd(fields, at), enabled(fields, at));
    fields.unknown(at, KEYS);
    Some(McpServer {
        transport,
        command: command.into(),
        args,
        cwd,
        url: url.into(),
        headers,
        environment,
        bearer_token_variable: either(at, ["bearer_token_env_var", "bearerTokenEnvVar"])
            .and_then(|key| fields.line(at, key, MAX_NAME)),
        description: fields.line(at, "description", MAX_TEXT),
        enabled,
        required: fields.flag(at, "required"),
        enabled_tools: either(at, ["enabled_tools", "enabledTools"])
            .map(|key| fields.lines(at, key, MAX_NAME)),
        disabled_tools: either(at, ["disabled_tools", "disabledTools"])
            .map(|key| fields.lines(at, key, MAX_NAME))
            .unwrap_or_default(),
        startup_timeout: time(fields, at, STARTUP),
        tool_timeout: time(fields, at, TOOL),
        withheld,
        file: RelPath::root(),
        name: name.clone(),
    })
}

fn transport(
    fields: &mut Fields<'_>,
    at: At<'_>,
    name: &str,
    has_command: bool,
    has_url: bool,
) -> Option<Transport> {
    let key = either(at, ["type", "transport"]);
    let word = key.and_then(|key| fields.line(at, key, MAX_NAME)).unwrap_or_default();
    let word: String = word.to_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
    let transport = match &*word {
        "stdio" => Transport::Stdio,
        "" if has_command => Transport::Stdio,
        "" | "http" | "streamablehttp" => Transport::StreamableHttp,
        "sse" => Transport::Sse,
        _ => {
            let why = "has a transport that is not known, which is none of `stdio`, `http`, `sse`";
            fields.useless("MCP server", name, why);
            return None;
        }
    };
    let (has, needs, other) = match transport {
        Transport::Stdio => (has_command, "`command`", has_url),
        Transport::StreamableHttp | Transport::Sse => (has_url, "`url`", has_command),
    };
    if !has {
        let needs = if word.is_empty() { "`command` or `url`" } else { needs };
        fields.useless("MCP server", name, &format!("has no {needs} that can be used"));
        return None;
    }
    if other {
        let why = format!(
            "the MCP server {} has a command and a url; {needs} is used",
            text::shown(name)
        );
        fields.warn(Code::FieldInvalid, why);
    }
    Some(transport)
}

/// The keys of a time, each with the milliseconds of its unit.
type Times = [(&'static str, f64); 3];
const STARTUP: Times =
    [("startup_timeout_ms", 1.0), ("startup_timeout_sec", 1_000.0), ("startupTimeoutSec", 1_000.0)];
const TOOL: Times = [("tool_timeout_sec", 1_000.0), ("toolTimeoutSec", 1_000.0), ("timeout", 1.0)];

fn time(fields: &mut Fields<'_>, at: At<'_>, keys: Times) -> Option<u64> {
    let (key, unit) = keys.into_iter().find(|(key, _)| at.get(key).is_some())?;
    fields.time(at, key, unit)
}

fn either(at: At<'_>, keys: [&'static str; 2]) -> Option<&'static str> {
    keys.into_iter().find(|key| at.get(key).is_some())
}

fn enabled(fields: &mut Fields<'_>, at: At<'_>) -> Option<bool> {
    let disabled = fields.flag(at, "disabled").map(|disabled| !disabled);
    fields.flag(at, "enabled").or(disabled)
}

fn cwd(fields: &mut Fields<'_>, at: At<'_>) -> RelPath {
    let Some(text) = fields.whole(at, "cwd", MAX_TEXT) else { return RelPath::root() };
    place::directory(text).unwrap_or_else(|| {
        let text = secret::path(text);
        let why =
            format!("`cwd` names {text}, which is not inside the plugin; its own is reported");
        fields.warn(Code::PathInvalid, why);
        RelPath::root()
    })
}

/// What a server is given: names with values, and names with where the value is taken from. A list of
/// names takes each from the variable of the same name.
fn collect(
    fields: &mut Fields<'_>,
    at: At<'_>,
    (sets, takes): (&[&str], &[&str]),
    likely: &mut bool,
) -> Box<[Given]> {
    let mut all = Vec::new();
    for key in sets {
        for (name, value) in fields.entries(at, key) {
            let printed = value.printed();
            let shown = secret::value(name, &printed).filter(|_| value.is_scalar());
            *likely |= shown.is_none() && secret::is_likely(name, &printed);
            all.push(Given { name: cut(name), value: shown, from: None });
        }
    }
    for key in takes {
        if at.get(key).is_some_and(|value| value.as_map().is_some()) {
            for (name, from) in fields.entries(at, key) {
                let from = from.as_text().map(cut);
                all.push(Given { name: cut(name), value: None, from });
            }
            continue;
        }
        for name in fields.texts(at, key, MAX_NAME) {
            all.push(Given { name: cut(name), value: None, from: Some(cut(name)) });
        }
    }
    all.into()
}

fn cut(name: &str) -> Box<str> {
    text::cut(&secret::clean(name), MAX_NAME).into()
}
