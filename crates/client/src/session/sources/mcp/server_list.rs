//! List of MCP servers in the JSON that MCP hosts share: `{"mcpServers": {"docs": {…}}}`.

use super::address::is_server_name;
use super::connection::McpEndpoint;
use super::token::{McpToken, check_credentials};
use super::{McpServerConfig, McpSource};
use crate::session::SkillSource;
use caproot_core::document::{ConfigError, ConfigErrors};
use futures_util::future::join_all;
use http::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Limit of the text in bytes.
const MAX_TEXT_BYTES: usize = 1 << 20;
/// Limit of the servers.
const MAX_SERVERS: usize = 64;

/// Servers of a list.
///
/// | key of a server | meaning |
/// | --- | --- |
/// | `command`, `args`, `env`, `cwd` | program that speaks MCP on stdin and stdout |
/// | `url`, `headers` | server over HTTP |
/// | `tokenFile`, or `tokenCommand` as an array | bearer token of a server over HTTP, as [`McpToken`] |
/// | `type` | `stdio`, `http` or `streamable-http`; a server of another type is omitted |
/// | `disabled` | if true, the server is never started or called |
///
/// `${NAME}` in a value is an environment variable, and `${NAME:-text}` has a default.
///
/// ```
/// use caproot_client::session::sources::mcp::{McpEndpoint, McpServerList};
///
/// let text = r#"{"mcpServers": {
///     "docs": {"url": "https://docs.example/mcp", "headers": {"x-team": "${TEAM:-none}"}},
///     "kit": {"command": "kit-mcp", "args": ["--stdio"], "env": {"KIT_HOME": "/srv/kit"}}}}"#;
/// let list = McpServerList::parse(text, &|name| std::env::var(name).ok())?;
/// assert_eq!(list.servers[0].name, "docs");
/// assert!(matches!(list.servers[1].endpoint, McpEndpoint::Process { .. }));
/// # Ok::<(), caproot_client::ConfigErrors>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct McpServerList {
    /// Servers by name.
    pub servers: Vec<McpServerConfig>,
    /// Omitted servers and unused keys, one sentence each.
    pub warnings: Vec<String>,
}

/// Server of a list. Unknown keys are in `unused`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct ServerEntry {
    r#type: Option<String>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    token_file: Option<String>,
    token_command: Option<Vec<String>>,
    #[serde(default)]
    disabled: bool,
    #[serde(flatten)]
    unused: Map<String, Value>,
}

/// Function that returns the value of an environment variable.
type VariableLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

impl McpServerList {
    /// Parses a list. `variable` returns the value of an environment variable.
    ///
    /// # Errors
    ///
    /// All errors of the list, each with the name of the server.
    pub fn parse(text: &str, variable: VariableLookup<'_>) -> Result<Self, ConfigErrors> {
        let invalid = |reason: &str| ConfigError::key("", reason);
        if text.len() > MAX_TEXT_BYTES {
            return Err(invalid("the list of MCP servers is over 1 MiB").into());
        }
        let top: Map<String, Value> =
            serde_json::from_str(text).map_err(|error| invalid(&error.to_string()))?;
        let Some(Value::Object(entries)) = top.get("mcpServers") else {
            return Err(invalid("expected an object with an object `mcpServers`").into());
        };
        if entries.len() > MAX_SERVERS {
            return Err(invalid(&format!("`mcpServers` has over {MAX_SERVERS} servers")).into());
        }
        let (mut list, mut errors) = (Self::default(), ConfigErrors::default());
        for (name, entry) in entries {
            let key = format!("mcpServers.{}", name.escape_debug());
            if !is_server_name(name) {
                list.warnings.push(format!(
                    "{key} is omitted: a name has 1 to 64 letters, digits, `.`, `_` and `-`"
                ));
                continue;
            }
            match serde_path_to_error::deserialize::<_, ServerEntry>(entry) {
                Ok(entry) => match read_server(name, &entry, variable, &key, &mut list.warnings) {
                    Ok(server) => list.servers.extend(server),
                    Err(reason) => errors.add(ConfigError::key(&key, reason)),
                },
                Err(error) => errors.add(ConfigError::key(&key, type_error(&error))),
            }
        }
        errors.or_value(list)
    }

    /// Starts a source for each server at once, and waits for the first lists at most for
    /// `start_timeout`. Needs a tokio runtime.
    pub async fn start(self, start_timeout: Duration) -> Vec<Arc<dyn SkillSource>> {
        let servers = self.servers.into_iter();
        let started = join_all(servers.map(|server| {
            let server = McpServerConfig {
                start_timeout,
                ..server
            };
            McpSource::start(server)
        }));
        // The names were checked.
        let sources = started.await.into_iter().flatten();
        sources
            .map(|source| Arc::new(source) as Arc<dyn SkillSource>)
            .collect()
    }
}

/// Returns the key with the wrong type and the reason, without the value: the value may be a secret.
fn type_error(error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    let (path, reason) = (error.path().to_string(), error.inner().to_string());
    let reason = match (reason.find('"'), reason.rfind('"')) {
        (Some(start), Some(end)) if start < end => {
            format!("{}…{}", &reason[..start], &reason[end + 1..])
        }
        _ => reason,
    };
    if path == "." {
        reason
    } else {
        format!("`{path}`: {reason}")
    }
}

/// Returns the server, `None` if its transport is not supported, or the reason for an error.
fn read_server(
    name: &str,
    entry: &ServerEntry,
    variable: VariableLookup<'_>,
    key: &str,
    warnings: &mut Vec<String>,
) -> Result<Option<McpServerConfig>, String> {
    let expand = |text: &str| expand_variables(text, variable);
    if !entry.unused.is_empty() {
        let keys: Vec<_> = entry
            .unused
            .keys()
            .map(|key| format!("`{}`", key.escape_debug()))
            .collect();
        warnings.push(format!(
            "{key}: these keys are not used: {}",
            keys.join(", ")
        ));
    }
    if let Some(kind) = entry
        .r#type
        .as_deref()
        .filter(|kind| !["stdio", "http", "streamable-http", "streamableHttp"].contains(kind))
    {
        warnings.push(format!(
            "{key} is omitted: its type {kind:?} is not supported"
        ));
        return Ok(None);
    }
    let token = match (&entry.token_file, &entry.token_command) {
        (None, None) => None,
        (Some(file), None) => Some(McpToken::File(PathBuf::from(expand(file)?))),
        (None, Some(words)) => {
            let mut words = words
                .iter()
                .map(|word| expand(word))
                .collect::<Result<Vec<_>, _>>()?
                .into_iter();
            let program = words.next().ok_or("`tokenCommand` has no program")?;
            Some(McpToken::Command {
                program,
                arguments: words.collect(),
            })
        }
        (Some(_), Some(_)) => return Err("has `tokenFile` and `tokenCommand`; set one".to_owned()),
    };
    let endpoint = match (&entry.command, &entry.url) {
        (Some(command), None) => {
            if token.is_some() || !entry.headers.is_empty() {
                return Err("headers and tokens are only for a server with `url`".to_owned());
            }
            let variables = entry.env.iter().map(|(name, value)| {
                if name.is_empty() || name.contains(['=', '\0']) {
                    return Err(format!("`env` has the invalid name {name:?}"));
                }
                Ok((name.clone(), expand(value)?))
            });
            McpEndpoint::Process {
                program: expand(command)?,
                arguments: entry
                    .args
                    .iter()
                    .map(|word| expand(word))
                    .collect::<Result<_, _>>()?,
                environment: variables.collect::<Result<_, _>>()?,
                working_directory: entry
                    .cwd
                    .as_deref()
                    .map(expand)
                    .transpose()?
                    .map(PathBuf::from),
            }
        }
        (None, Some(url)) => {
            if !entry.args.is_empty() || !entry.env.is_empty() || entry.cwd.is_some() {
                return Err(
                    "`args`, `env` and `cwd` are only for a server with `command`".to_owned(),
                );
            }
            let headers = entry.headers.iter().map(|(name, value)| {
                let invalid = || format!("`headers` has the invalid header {name:?}");
                let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
                let mut value = HeaderValue::from_str(&expand(value)?).map_err(|_| invalid())?;
                value.set_sensitive(true);
                Ok((header, value))
            });
            let headers = headers.collect::<Result<Vec<_>, String>>()?;
            let url = expand(url)?;
            check_credentials(&url, &headers, token.as_ref())?;
            McpEndpoint::Http {
                url,
                headers,
                token,
            }
        }
        (Some(_), Some(_)) => return Err("has `command` and `url`; set one".to_owned()),
        (None, None) => return Err("has no `command` and no `url`; set one".to_owned()),
    };
    Ok(Some(McpServerConfig {
        enabled: !entry.disabled,
        ..McpServerConfig::new(name, endpoint)
    }))
}

/// Replaces `${NAME}` and `${NAME:-default}`. A variable without a value and a default is an error.
fn expand_variables(text: &str, variable: VariableLookup<'_>) -> Result<String, String> {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, tail) = after.split_once('}').ok_or("a `${` has no `}`")?;
        expanded.push_str(before);
        let (name, default) = match name.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (name, None),
        };
        let value = variable(name).or_else(|| default.map(str::to_owned));
        let unset = || format!("the environment variable {name:?} is not set");
        expanded.push_str(&value.ok_or_else(unset)?);
        rest = tail;
    }
    Ok(expanded + rest)
}

#[cfg(test)]
mod tests {
    use super::{McpEndpoint, McpServerList, McpToken};
    use proptest::prelude::*;
    use serde_json::json;

    fn variable(name: &str) -> Option<String> {
        (name == "TOKEN").then(|| "s3cret".to_owned())
    }

    #[test]
    fn servers_are_read() {
        let text = json!({"other": 1, "mcpServers": {
            "kit": {"command": "${HOME_OF_KIT:-/opt}/kit", "args": ["-v"], "env": {"A": "${TOKEN}"},
                "cwd": "/srv", "disabled": true, "alwaysAllow": []},
            "web": {"type": "http", "url": "https://a/mcp", "headers": {"x-key": "k${TOKEN}"}},
            "file": {"url": "https://a/mcp", "tokenFile": "/run/token"},
            "old": {"type": "sse", "url": "https://a/sse"},
            "two words": {"command": "x"},
        }});
        let list = McpServerList::parse(&text.to_string(), &variable).expect("a list");
        let names: Vec<_> = list
            .servers
            .iter()
            .map(|server| (&*server.name, server.enabled))
            .collect();
        assert_eq!(names, [("file", true), ("kit", false), ("web", true)]);
        let McpEndpoint::Process {
            program,
            arguments,
            environment,
            working_directory,
        } = &list.servers[1].endpoint
        else {
            panic!("{list:?}")
        };
        assert_eq!(
            (&**program, &arguments[..]),
            ("/opt/kit", &["-v".to_owned()][..])
        );
        assert_eq!(environment["A"], "s3cret");
        assert_eq!(working_directory.as_deref(), Some("/srv".as_ref()));
        let McpEndpoint::Http { headers, .. } = &list.servers[2].endpoint else {
            panic!("{list:?}")
        };
        assert_eq!(headers[0].1, "ks3cret");
        let McpEndpoint::Http {
            token: Some(McpToken::File(file)),
            ..
        } = &list.servers[0].endpoint
        else {
            panic!("{list:?}")
        };
        assert_eq!(file.as_os_str(), "/run/token");
        assert_eq!(list.warnings.len(), 3, "{:?}", list.warnings);
        assert!(
            !format!("{list:?}").contains("s3cret"),
            "secrets are not shown"
        );
    }

    #[test]
    fn every_invalid_server_is_reported() {
        let text = json!({"mcpServers": {
            "a": {}, "b": {"command": "x", "url": "y"}, "c": {"command": 1},
            "d": {"url": "${NONE}"}, "e": {"url": "${NONE"}, "f": {"url": "y", "headers": {"a b": ""}},
            "g": {"url": "y", "tokenFile": "x", "tokenCommand": ["x"]}, "h": {"url": "y", "tokenCommand": []},
            "i": {"command": "x", "tokenFile": "y"}, "j": {"url": "x", "cwd": "y"}, "k": 7,
            "l": {"command": "x", "env": {"a=b": ""}}, "m": {"url": "y", "headers": "s3\"cret"},
            "n": {"url": "http://a.example/", "headers": {"Authorization": "Bearer ${TOKEN}"}},
            "o": {"url": "http://a.example/", "tokenFile": "/run/token"},
        }});
        let error = McpServerList::parse(&text.to_string(), &variable).expect_err("invalid");
        let keys: Vec<_> = error.iter().map(|error| &*error.key).collect();
        let expected: Vec<_> = ('a'..='o')
            .map(|name| format!("mcpServers.{name}"))
            .collect();
        assert_eq!(keys, expected, "{error}");
        let wrong_type = "mcpServers.m: `headers`: invalid type: string …, expected a map";
        assert_eq!(error[12].to_string(), wrong_type);
        assert!(
            error[13]
                .to_string()
                .contains("`authorization` is sent only over https"),
            "{error}"
        );
        for bad in [
            "",
            "[]",
            "{}",
            r#"{"mcpServers": []}"#,
            &" ".repeat(2 << 20),
        ] {
            assert!(McpServerList::parse(bad, &variable).is_err());
        }
    }

    proptest! {
        #[test]
        fn no_text_causes_a_panic(text in "(?s).{0,80}", value in r"(\$|\{|\}|:-|TOKEN|a){0,12}") {
            drop(McpServerList::parse(&text, &variable));
            let list = json!({"mcpServers": {"a": {"url": value}}}).to_string();
            drop(McpServerList::parse(&list, &variable));
        }
    }
}
