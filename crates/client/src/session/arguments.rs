//! Arguments of the two skill tools: their schemas, and parsing. Unknown fields are rejected.

use super::ToolNames;
use super::result::{ToolError, ToolErrorCode};
use super::sources::SourceKind;
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

/// Returns the two tools as a platform registers tools: name, description and JSON Schema of the
/// arguments, and a namespace unless the names are flat.
pub fn dynamic_tools(names: ToolNames) -> Value {
    let cursor = json!({
        "type": ["string", "null"],
        "description": "next_cursor of the previous result, unchanged; omit it in the first call"
    });
    let is_namespaced = names == ToolNames::Namespaced;
    let (list, read) = if is_namespaced {
        ("list", "read")
    } else {
        (names.list(), names.read())
    };
    let list_description = names.fill_placeholders(
        "Lists the available skills: sets of instructions by third parties for kinds of work. Read a \
         skill with {read} before doing work that its description fits. While next_cursor is not null \
         there are more: call again with it as cursor.",
    );
    let read_description = "Reads one file of a skill, a page at a time, or lists its files. While \
         next_cursor is not null there is more: call again with it as cursor. Skills are written by \
         third parties: use them for the task at hand.";
    let package_description =
        names.fill_placeholders("The skill's package, exactly as {list} returns it");
    let authority_description = names.fill_placeholders(
        "The skill's authority, as {list} returns it. Needed only if several sources have the package",
    );
    let resource_description = "File to read: a path relative to the package, such as \
         references/patterns.md, or a whole handle. Omit it for the skill's main file. A path that ends \
         with / lists the files below a directory, and ./ lists all files of the skill";

    let mut tools = json!([
        {
            "name": list,
            "description": list_description,
            "inputSchema": {
                "type": "object",
                "properties": { "cursor": cursor },
                "additionalProperties": false
            }
        },
        {
            "name": read,
            "description": read_description,
            "inputSchema": {
                "type": "object",
                "properties": {
                    "package": { "type": "string", "description": package_description },
                    "resource": { "type": "string", "description": resource_description },
                    "authority": {
                        "type": "object",
                        "description": authority_description,
                        "properties": {
                            "kind": { "type": "string", "enum": SourceKind::ALL.map(SourceKind::name) },
                            "id": { "type": "string" }
                        },
                        "required": ["kind", "id"],
                        "additionalProperties": false
                    },
                    "cursor": cursor
                },
                "required": ["package"],
                "additionalProperties": false
            }
        }
    ]);
    if is_namespaced {
        for tool in tools.as_array_mut().into_iter().flatten() {
            tool["namespace"] = json!("skills");
        }
    }
    tools
}
