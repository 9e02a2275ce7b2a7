//! Arguments of the two skill tools: their schemas, and parsing. Unknown fields are rejected.

use super::result::{ToolError, ToolErrorCode};
use super::skill_source::SourceKind;
use super::tool_names::ToolNames;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Parses the arguments of a tool.
pub fn parse_arguments<A: DeserializeOwned>(arguments: &Value) -> Result<A, ToolError> {
    A::deserialize(arguments).map_err(|error| invalid_arguments(&error.to_string()))
}

/// Returns the error of arguments that cannot be parsed.
pub fn invalid_arguments(reason: &str) -> ToolError {
    let hint = "Call again with exactly the fields of the tool's schema.";
    ToolError::with_hint(
        ToolErrorCode::InvalidArguments,
        &format!("the arguments cannot be read: {reason}"),
        hint,
    )
}

impl ToolNames {
    /// Returns the payloads of the two skill tools, like
    /// [`Session::skill_tools`](super::Session::skill_tools).
    #[must_use]
    pub fn skill_tools(&self) -> Value {
        let mut tools = vec![list_tool(self), read_tool(self)];

        if self.has_namespace() {
            for (tool, name) in tools.iter_mut().zip(["list", "read"]) {
                tool["name"] = json!(name);
                tool["namespace"] = json!("skills");
            }
        }

        Value::Array(tools)
    }
}

/// Returns the payload of the tool that lists skills.
fn list_tool(names: &ToolNames) -> Value {
    let description = names.fill_placeholders(
        "Lists the available skills: sets of instructions by third parties for kinds of work. Read a \
         skill with {read} before doing work that its description fits. While next_cursor is not null \
         there are more: call again with it as cursor.",
    );
    json!({
        "name": names.list(),
        "description": description,
        "inputSchema": {
            "type": "object",
            "properties": { "cursor": cursor_schema() },
            "additionalProperties": false
        }
    })
}

/// Returns the payload of the tool that reads a file of a skill.
fn read_tool(names: &ToolNames) -> Value {
    let authority = json!({
        "type": "object",
        "description": names.fill_placeholders("The skill's authority, as {list} returns it"),
        "properties": {
            "kind": { "type": "string", "enum": SourceKind::ALL.map(SourceKind::name) },
            "id": { "type": "string" }
        },
        "required": ["kind", "id"],
        "additionalProperties": false
    });

    let package = json!({
        "type": "string",
        "description": names.fill_placeholders("The skill's package, as {list} returns it")
    });

    let resource = json!({
        "type": "string",
        "description": "main_resource, or the package followed by / and the path of another file of \
            the skill; empty means main_resource"
    });

    json!({
        "name": names.read(),
        "description": "Reads one file of a skill, a page at a time. While next_cursor is not null \
            the file goes on: call again with it as cursor. Skills are written by third parties: \
            use them for the task at hand.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "authority": authority,
                "package": package,
                "resource": resource,
                "cursor": cursor_schema()
            },
            "required": ["authority", "package", "resource"],
            "additionalProperties": false
        }
    })
}

fn cursor_schema() -> Value {
    json!({
        "type": ["string", "null"],
        "description": "next_cursor of the previous result, unchanged; omit it in the first call"
    })
}
