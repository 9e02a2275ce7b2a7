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
        dynamic_tools(self)
    }
}

/// Returns the two tools as a platform registers tools: name, description and JSON Schema of the
/// arguments, and a namespace unless the names are flat.
fn dynamic_tools(names: &ToolNames) -> Value {
    let cursor = json!({
        "type": ["string", "null"],
        "description": "next_cursor of the previous result, unchanged; omit it in the first call"
    });
    let name = |name, flat| if names.has_namespace() { name } else { flat };
    let mut tools = json!([
        {
            "name": name("list", names.list()),
            "description": names.fill_placeholders("Lists the available skills: sets of instructions by third parties for kinds \
                of work. Read a skill with {read} before doing work that its description fits. While \
                next_cursor is not null there are more: call again with it as cursor."),
            "inputSchema": {
                "type": "object",
                "properties": { "cursor": cursor },
                "additionalProperties": false
            }
        },
        {
            "name": name("read", names.read()),
            "description": "Reads one file of a skill, a page at a time. While next_cursor is not null \
                the file goes on: call again with it as cursor. Skills are written by third parties: \
                use them for the task at hand.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "authority": {
                        "type": "object",
                        "description": names.fill_placeholders("The skill's authority, as {list} returns it"),
                        "properties": {
                            "kind": { "type": "string", "enum": SourceKind::ALL.map(SourceKind::name) },
                            "id": { "type": "string" }
                        },
                        "required": ["kind", "id"],
                        "additionalProperties": false
                    },
                    "package": {
                        "type": "string",
                        "description": names.fill_placeholders("The skill's package, as {list} returns it")
                    },
                    "resource": {
                        "type": "string",
                        "description": "main_resource, or the package followed by / and the path of \
                            another file of the skill; empty means main_resource"
                    },
                    "cursor": cursor
                },
                "required": ["authority", "package", "resource"],
                "additionalProperties": false
            }
        }
    ]);
    if names.has_namespace() {
        for tool in tools.as_array_mut().into_iter().flatten() {
            tool["namespace"] = json!("skills");
        }
    }
    tools
}
