//! List of MCP servers in the JSON that MCP hosts share: `{"mcpServers": {"docs": {…}}}`.

use super::address::is_server_name;
use super::connection::McpEndpoint;
use super::limits::MAX_AGE;
use super::token::{McpToken, check_credentials};
use super::{McpServerConfig, McpSource};
use crate::SkillSource;
use caproot_core::document::{ConfigError, ConfigErrors};
use futures_util::future::join_all;
use http::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Limit of the text in bytes.
const MAX_TEXT_BYTES: usize = 1 << 20;
/// Limit of the servers.
const MAX_SERVERS: usize = 64;
/// Types of the transports that a source has.
const SUPPORTED_TYPES: [&str; 4] = ["stdio", "http", "streamable-http", "streamableHttp"];

/// Servers of a list.
///
/// | key of a server | meaning |
/// | --- | --- |
/// | `command`, `args`, `env`, `cwd` | program that speaks MCP on stdin and stdout |
/// | `url`, `headers` | server over HTTP |
/// | `tokenFile`, or `tokenCommand` as an array | bearer token of a server over HTTP, as [`McpToken`] |
/// | `type` | `stdio`, `http` or `streamable-http`; a server of another type is omitted |
/// | `maxAgeSeconds` | how old the server's latest statement about a skill may be at a read; 30 by default |
/// | `disabled` | if true, the server is never started or called |
///
/// `${NAME}` in a value is an environment variable, and `${NAME:-text}` has a default.
///
/// ```
/// use caproot_session::sources::mcp::{McpEndpoint, McpServerList};
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
    max_age_seconds: Option<u32>,
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
        let entries = parse_entries(text).map_err(|reason| ConfigError::key("", reason))?;

        let mut list = Self::default();
        let mut errors = ConfigErrors::default();
        for (name, entry) in entries {
            let key = format!("mcpServers.{}", name.escape_debug());
            if !is_server_name(&name) {
                list.warnings.push(format!(
                    "{key} is omitted: a name has 1 to 64 letters, digits, `.`, `_` and `-`"
                ));
                continue;
            }

            let added = serde_path_to_error::deserialize::<_, ServerEntry>(entry)
                .map_err(|error| type_error(&error))
                .and_then(|entry| list.add_server(&name, &key, &entry, variable));
            if let Err(reason) = added {
                errors.add(ConfigError::key(&key, reason));
            }
        }
        errors.or_value(list)
    }

    /// Adds the server of an entry, or a warning if its transport is not supported.
    fn add_server(
        &mut self,
        name: &str,
        key: &str,
        entry: &ServerEntry,
        variable: VariableLookup<'_>,
    ) -> Result<(), String> {
        if !entry.unused.is_empty() {
            let names: Vec<_> = entry
                .unused
                .keys()
                .map(|name| format!("`{}`", name.escape_debug()))
                .collect();
            self.warnings.push(format!(
                "{key}: these keys are not used: {}",
                names.join(", ")
            ));
        }

        if let Some(kind) = &entry.r#type
            && !SUPPORTED_TYPES.contains(&&**kind)
        {
            self.warnings.push(format!(
                "{key} is omitted: its type {kind:?} is not supported"
            ));
            return Ok(());
        }

        let endpoint = entry.read_endpoint(&|text| expand_variables(text, variable))?;
        self.servers.push(McpServerConfig {
            enabled: !entry.disabled,
            max_age: entry
                .max_age_seconds
                .map_or(MAX_AGE, |seconds| Duration::from_secs(u64::from(seconds))),
            ..McpServerConfig::new(name, endpoint)
        });
        Ok(())
    }

    /// Starts a source for each server at once, and waits for the first lists at most for
    /// `start_timeout`. Needs a tokio runtime.
    pub async fn start(self, start_timeout: Duration) -> Vec<Arc<dyn SkillSource>> {
        let started = self.servers.into_iter().map(|server| {
            McpSource::start(McpServerConfig {
                start_timeout,
                ..server
            })
        });

        join_all(started)
            .await
            .into_iter()
            // The names were checked.
            .flatten()
            .map(|source| Arc::new(source) as Arc<dyn SkillSource>)
            .collect()
    }
}

/// Returns the key with the wrong type and the reason, without the value: the value may be a secret.
fn type_error(error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    let path = error.path().to_string();
    let mut reason = error.inner().to_string();
    if let (Some(start), Some(end)) = (reason.find('"'), reason.rfind('"'))
        && start < end
    {
        reason.replace_range(start..=end, "…");
    }

    if path == "." {
        reason
    } else {
        format!("`{path}`: {reason}")
    }
}

/// Returns the entries of a list by name, or the reason why the text is no list.
fn parse_entries(text: &str) -> Result<Map<String, Value>, String> {
    if text.len() > MAX_TEXT_BYTES {
        return Err("the list of MCP servers is over 1 MiB".to_owned());
    }
    let mut top: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| error.to_string())?;
    let Some(Value::Object(entries)) = top.remove("mcpServers") else {
        return Err("expected an object with an object `mcpServers`".to_owned());
    };
    if entries.len() > MAX_SERVERS {
        return Err(format!("`mcpServers` has over {MAX_SERVERS} servers"));
    }
    Ok(entries)
}

/// Function that replaces the variables of a value.
type ValueExpander<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// Errors are the end of a sentence.
impl ServerEntry {
    fn read_endpoint(&self, expand: ValueExpander<'_>) -> Result<McpEndpoint, String> {
        let token = self.read_token(expand)?;
        match (&self.command, &self.url) {
            (Some(_), None) if token.is_some() || !self.headers.is_empty() => {
                Err("headers and tokens are only for a server with `url`".to_owned())
            }
            (Some(command), None) => self.read_process(command, expand),
            (None, Some(url)) => self.read_http(url, token, expand),
            (Some(_), Some(_)) => Err("has `command` and `url`; set one".to_owned()),
            (None, None) => Err("has no `command` and no `url`; set one".to_owned()),
        }
    }

    fn read_token(&self, expand: ValueExpander<'_>) -> Result<Option<McpToken>, String> {
        Ok(match (&self.token_file, &self.token_command) {
            (None, None) => None,
            (Some(file), None) => Some(McpToken::File(expand(file)?.into())),
            (None, Some(words)) => {
                let mut words = expand_all(words, expand)?.into_iter();
                Some(McpToken::Command {
                    program: words.next().ok_or("`tokenCommand` has no program")?,
                    arguments: words.collect(),
                })
            }
            (Some(_), Some(_)) => {
                return Err("has `tokenFile` and `tokenCommand`; set one".to_owned());
            }
        })
    }

    fn read_process(
        &self,
        command: &str,
        expand: ValueExpander<'_>,
    ) -> Result<McpEndpoint, String> {
        let mut environment = BTreeMap::new();
        for (name, value) in &self.env {
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(format!("`env` has the invalid name {name:?}"));
            }
            environment.insert(name.clone(), expand(value)?);
        }

        Ok(McpEndpoint::Process {
            program: expand(command)?,
            arguments: expand_all(&self.args, expand)?,
            environment,
            working_directory: match &self.cwd {
                Some(directory) => Some(expand(directory)?.into()),
                None => None,
            },
        })
    }

    fn read_http(
        &self,
        url: &str,
        token: Option<McpToken>,
        expand: ValueExpander<'_>,
    ) -> Result<McpEndpoint, String> {
        if !self.args.is_empty() || !self.env.is_empty() || self.cwd.is_some() {
            return Err("`args`, `env` and `cwd` are only for a server with `command`".to_owned());
        }

        let mut headers = Vec::new();
        for (name, value) in &self.headers {
            headers.push(
                parse_header(name, &expand(value)?)
                    .ok_or_else(|| format!("`headers` has the invalid header {name:?}"))?,
            );
        }

        let url = expand(url)?;
        check_credentials(&url, &headers, token.is_some())?;
        Ok(McpEndpoint::Http {
            url,
            headers,
            token,
        })
    }
}

fn expand_all(texts: &[String], expand: ValueExpander<'_>) -> Result<Vec<String>, String> {
    texts.iter().map(|text| expand(text)).collect()
}

/// Parses a header whose value is not logged.
fn parse_header(name: &str, value: &str) -> Option<(HeaderName, HeaderValue)> {
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some((name.parse().ok()?, value))
}

/// Replaces `${NAME}` and `${NAME:-default}`. A variable without a value and a default is an error.
fn expand_variables(text: &str, variable: VariableLookup<'_>) -> Result<String, String> {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (reference, tail) = after.split_once('}').ok_or("a `${` has no `}`")?;
        let (name, default) = match reference.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (reference, None),
        };
        let value = variable(name)
            .or_else(|| default.map(str::to_owned))
            .ok_or_else(|| format!("the environment variable {name:?} is not set"))?;

        expanded += before;
        expanded += &value;
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
