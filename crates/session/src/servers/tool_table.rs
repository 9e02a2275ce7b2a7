//! Tools of all servers of a session under names that model platforms accept, within the limits of a
//! session.

use super::limits::{
    MAX_DEFINITION_BYTES, MAX_LISTED_TOOLS, MAX_NAMESPACE_BYTES, MAX_SERVER_TOOLS,
};
use super::result_store::ResultStore;
use super::server::{ListedTools, PluginServer};
use crate::skills::tool_names::ToolNames;
use crate::tools::limits::{MAX_DESCRIPTION_BYTES, MAX_NAME_BYTES};
use crate::tools::{CustomTool, RegisteredTool, ToolFailure, ToolHandler, ToolSet};
use caproot_core::text::{escape_hidden_chars, quote_value, single_line, truncate_with_ellipsis};
use rmcp::model::{Tool, sha256_digest};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::HashSet;
use std::error::Error;
use std::fmt::Write as _;
use std::future::ready;
use std::sync::Arc;

/// Namespace of the tool that reads the rest of a result. A server's namespace has another `__`.
const RESULTS_NAMESPACE: &str = "mcp__results";
/// Omitted tools that a warning names.
const MAX_REPORTED: usize = 8;
/// Bytes of the digest at the end of a shortened name.
const SUFFIX_BYTES: usize = 8;

/// Builder of the tools of a session's servers.
#[derive(Debug, Default)]
pub struct ToolTable {
    names: ToolNames,
    taken: HashSet<String>,
    namespaces: HashSet<String>,
    tools: usize,
    definition_bytes: usize,
    results: Arc<ResultStore>,
}

/// Tools of one server.
#[derive(Debug, Default)]
pub struct ServerTools {
    pub tools: Vec<Arc<RegisteredTool>>,
    /// Digest of the definitions.
    pub digest: String,
    pub warnings: Vec<String>,
}

/// Tools of a server that the session does not have.
#[derive(Default)]
struct OmittedTools {
    over_limit: Vec<String>,
    invalid: Vec<String>,
}

impl ToolTable {
    /// Returns a table without tools, next to the tools of the program.
    pub fn new(program: &ToolSet, names: ToolNames, results: Arc<ResultStore>) -> Self {
        Self {
            names,
            taken: program.full_names().map(str::to_owned).collect(),
            results,
            ..Self::default()
        }
    }

    /// Adds the tools of a server that its declaration enables, up to the limits.
    pub fn add_server(&mut self, server: &Arc<PluginServer>, listed: ListedTools) -> ServerTools {
        let namespace = self.new_namespace(server);
        let mut added = ServerTools::default();
        let mut omitted = OmittedTools::default();
        let mut definitions = Vec::new();

        for tool in listed.tools {
            if !is_enabled(server, &tool.name) {
                continue;
            }
            let name = quote_value(&tool.name);
            match self.register(server, &namespace, &tool) {
                Err(reason) => omitted.invalid.push(format!("{name}: {reason}")),
                Ok(tool) => {
                    let definition = tool.to_payload().to_string();
                    let bytes = self.definition_bytes + definition.len();
                    // A later tool with a smaller definition may still fit.
                    if self.tools >= MAX_SERVER_TOOLS || bytes > MAX_DEFINITION_BYTES {
                        omitted.over_limit.push(name);
                        continue;
                    }
                    self.tools += 1;
                    self.definition_bytes = bytes;
                    self.taken.insert(tool.full_name().to_owned());
                    definitions.push(definition);
                    added.tools.push(Arc::new(tool));
                }
            }
        }

        added.digest = sha256_digest(definitions.join("\n").as_bytes());
        let phrase = server.declared.describe();
        added.warnings = omitted.to_warnings(&phrase);
        if let Some(first) = listed.omitted.first() {
            let count = listed.omitted.len();
            let (name, reason) = (quote_value(&first.name), single_line(&first.reason));
            added.warnings.push(format!(
                "{count} tools of {phrase} are malformed and omitted, such as {name}: {reason}"
            ));
        }
        if listed.truncated {
            added.warnings.push(format!(
                "{phrase} lists over {MAX_LISTED_TOOLS} tools; the rest is omitted"
            ));
        }
        added
    }

    /// Returns the tool that reads the rest of a long result, if the table has tools.
    pub fn result_reader(&self) -> Option<Arc<RegisteredTool>> {
        if self.tools == 0 {
            return None;
        }
        let schema = json!({
            "type": "object",
            "properties": {
                "cursor": {"type": "string", "description": "`next_cursor` of a result."},
            },
            "required": ["cursor"],
            "additionalProperties": false,
        });

        let results = self.results.clone();
        let handler: ToolHandler = Arc::new(move |arguments| {
            let cursor = arguments["cursor"].as_str().unwrap_or_default();
            Box::pin(ready(results.next_page(cursor)))
        });
        let description = "Returns the next part of a long result of a tool whose name begins with \
                           `mcp__`.";
        let tool = CustomTool::of_server("read", schema, handler)
            .in_namespace(RESULTS_NAMESPACE)
            .description(description);
        let tool = self.spell(RegisteredTool::new(tool).ok()?);
        tool.ok().map(Arc::new)
    }

    /// Returns a tool of the session that calls a tool of a server.
    fn register(
        &self,
        server: &Arc<PluginServer>,
        namespace: &str,
        tool: &Tool,
    ) -> Result<RegisteredTool, Box<dyn Error + Send + Sync>> {
        let mut schema = Value::Object(Map::clone(&tool.input_schema));
        if !escape_descriptions(&mut schema) {
            return Err("its schema has hidden characters".into());
        }
        let root = schema["type"].take();
        if !root.is_null() && root != "object" {
            return Err("its schema is not of an object".into());
        }
        schema["type"] = json!("object");

        let name = self.tool_name(namespace, &tool.name);
        let handler = call_handler(server.clone(), tool.name.to_string(), self.results.clone());
        let definition = CustomTool::of_server(&name, schema, handler)
            .in_namespace(namespace)
            .description(&describe_tool(server, tool))
            .time_limit(server.call_time());
        let registered = RegisteredTool::new(definition)?;
        self.spell(registered)
    }

    /// Returns a tool with the names of the session.
    fn spell(&self, tool: RegisteredTool) -> Result<RegisteredTool, Box<dyn Error + Send + Sync>> {
        match self.names {
            ToolNames::Namespaced => Ok(tool),
            ToolNames::Flat => Ok(tool.with_flat_name()?),
        }
    }

    /// Returns the name of a tool in its namespace, which no other tool has.
    fn tool_name(&self, namespace: &str, name: &str) -> String {
        let room = match self.names {
            ToolNames::Namespaced => MAX_NAME_BYTES,
            ToolNames::Flat => MAX_NAME_BYTES - namespace.len() - 1,
        };
        let short = short_name(name, name, room, false);
        if self
            .taken
            .contains(&self.names.join(Some(namespace), &short))
        {
            short_name(name, name, room, true)
        } else {
            short
        }
    }

    /// Returns the namespace of a server, which no other server has.
    fn new_namespace(&mut self, server: &PluginServer) -> String {
        let declared = &server.declared;
        let name = format!("mcp__{}__{}", declared.plugin.name, declared.server.name);
        let identity = format!("{}\n{}", declared.plugin.package, declared.server.name);

        let mut namespace = short_name(&name, &identity, MAX_NAMESPACE_BYTES, false);
        if self.namespaces.contains(&namespace) {
            namespace = short_name(&name, &identity, MAX_NAMESPACE_BYTES, true);
        }
        self.namespaces.insert(namespace.clone());
        namespace
    }
}

impl OmittedTools {
    fn to_warnings(&self, phrase: &str) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.over_limit.is_empty() {
            let names = join_names(&self.over_limit);
            warnings.push(format!(
                "a session has at most {MAX_SERVER_TOOLS} tools and {MAX_DEFINITION_BYTES} bytes of \
                 definitions of MCP servers; {phrase} has more: {names}"
            ));
        }
        if !self.invalid.is_empty() {
            let names = join_names(&self.invalid);
            warnings.push(format!("tools of {phrase} cannot be used: {names}"));
        }
        warnings
    }
}

/// Returns the first names, and the number of the others.
fn join_names(names: &[String]) -> String {
    let mut text = names[..names.len().min(MAX_REPORTED)].join(", ");
    if names.len() > MAX_REPORTED {
        // Writing to a string cannot fail.
        let _ = write!(text, " and {} more", names.len() - MAX_REPORTED);
    }
    text
}

/// Returns whether the declaration of a server enables a tool.
fn is_enabled(server: &PluginServer, tool: &str) -> bool {
    let declared = &server.declared.server;
    let enabled = declared.enabled_tools.as_ref();
    enabled.is_none_or(|enabled| enabled.names.iter().any(|name| name == tool))
        && !declared.disabled_tools.iter().any(|name| name == tool)
}

/// Returns the function of a tool that calls a tool of a server.
fn call_handler(server: Arc<PluginServer>, name: String, results: Arc<ResultStore>) -> ToolHandler {
    Arc::new(move |arguments| {
        let server = server.clone();
        let name = name.clone();
        let results = results.clone();
        Box::pin(async move {
            let Value::Object(arguments) = arguments else {
                return Err(ToolFailure::InvalidArguments {
                    path: ".".to_owned(),
                    reason: "expected an object".to_owned(),
                });
            };
            match server.call_tool(name, arguments).await {
                Ok(result) => results.first_page(result),
                Err(reason) => {
                    let phrase = server.declared.describe();
                    Err(ToolFailure::FunctionError(format!("{phrase}: {reason}")))
                }
            }
        })
    })
}

/// Returns the description of a tool for a model.
fn describe_tool(server: &PluginServer, tool: &Tool) -> String {
    let own = tool.description.as_deref().or(tool.title.as_deref());
    let own = own.unwrap_or_default().trim();
    if own.is_empty() {
        return format!("A tool of {}.", server.declared.describe());
    }
    truncate_with_ellipsis(&escape_hidden_chars(own), MAX_DESCRIPTION_BYTES)
}

/// Escapes hidden characters in the descriptions of a schema. Returns whether its names and other values,
/// which a model must repeat as they are, have none. A schema that is too deep is rejected later.
fn escape_descriptions(schema: &mut Value) -> bool {
    match schema {
        Value::Array(items) => items.iter_mut().all(escape_descriptions),
        Value::Object(fields) => fields.iter_mut().all(|(key, value)| match value {
            Value::String(text) if matches!(&**key, "description" | "title") => {
                *text = escape_hidden_chars(text).into_owned();
                true
            }
            value => !has_hidden_chars(key) && escape_descriptions(value),
        }),
        Value::String(text) => !has_hidden_chars(text),
        _ => true,
    }
}

fn has_hidden_chars(text: &str) -> bool {
    matches!(escape_hidden_chars(text), Cow::Owned(_))
}

/// Returns a name of the letters that platforms accept, of at most `max` bytes. A name that is cut, and
/// with `is_taken` each name, ends with a digest of its identity.
fn short_name(name: &str, identity: &str, max: usize, is_taken: bool) -> String {
    let is_other = |c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '-');
    let clean = single_line(name).replace(is_other, "_");
    if !is_taken && (1..=max).contains(&clean.len()) {
        return clean;
    }

    let digest = sha256_digest(identity.as_bytes());
    let suffix = &digest[digest.len() - SUFFIX_BYTES..];
    let kept = clean.len().min(max - SUFFIX_BYTES - 1);
    format!("{}_{suffix}", &clean[..kept])
}

#[cfg(test)]
mod tests {
    use super::short_name;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn names_fit_every_platform(name in "(?s).{0,90}", max in 10_usize..64, is_taken: bool) {
            let short = short_name(&name, &name, max, is_taken);
            prop_assert!((1..=max).contains(&short.len()), "{short}");
            prop_assert!(short.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)));
        }
    }

    #[test]
    fn a_valid_name_stays() {
        assert_eq!(short_name("mcp__a__b", "x", 40, false), "mcp__a__b");
        assert_ne!(short_name("mcp__a__b", "x", 40, true), "mcp__a__b");
        assert_eq!(short_name("a b.c", "x", 40, false), "a_b_c");
    }
}
