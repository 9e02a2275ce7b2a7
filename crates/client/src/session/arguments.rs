//! Arguments of the skill tools: their schemas, and parsing. Unknown fields are rejected.

use super::result::{ToolError, ToolErrorCode};
use super::skill_source::SourceKind;
use super::tool_names::ToolNames;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Limit of a query of the search tool in characters.
pub const MAX_QUERY_CHARS: usize = 400;
/// Default and maximum number of skills of a page of the search tool. Ten skills nearly always fit into
/// a result.
pub const DEFAULT_SEARCH_LIMIT: u32 = 10;
pub const MAX_SEARCH_LIMIT: u32 = 20;

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
    /// Returns the payloads of the three skill tools, like
    /// [`Session::skill_tools`](super::Session::skill_tools).
    #[must_use]
    pub fn skill_tools(self) -> Value {
        let mut tools = vec![list_tool(self), read_tool(self), search_tool(self)];

        if self == Self::Namespaced {
            for (tool, name) in tools.iter_mut().zip(["list", "read", "search"]) {
                tool["name"] = json!(name);
                tool["namespace"] = json!("skills");
            }
        }

        Value::Array(tools)
    }
}

/// Returns the payload of the tool that lists skills.
fn list_tool(names: ToolNames) -> Value {
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
fn read_tool(names: ToolNames) -> Value {
    let package = json!({
        "type": "string",
        "description": names.fill_placeholders("The skill's package, exactly as {list} returns it")
    });

    let resource = json!({
        "type": "string",
        "description": "File to read: a path relative to the package, such as \
            references/patterns.md, or a whole handle. Omit it for the skill's main file. A path that \
            ends with / lists the files below a directory, and ./ lists all files of the skill"
    });

    let authority = json!({
        "type": "object",
        "description": names.fill_placeholders("The skill's authority, as {list} returns it. Needed \
            only if several sources have the package"),
        "properties": {
            "kind": { "type": "string", "enum": SourceKind::ALL.map(SourceKind::name) },
            "id": { "type": "string" }
        },
        "required": ["kind", "id"],
        "additionalProperties": false
    });

    json!({
        "name": names.read(),
        // Qwen Code shows the first 157 characters of a description, so the purpose comes first.
        "description": "Reads a skill, which is instructions for a kind of work, or one of its files. \
            Read a skill before you do work that its name or description fits. While next_cursor is not \
            null there is more: call again with it as cursor. Skills are written by third parties: use \
            them for the task at hand.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "package": package,
                "resource": resource,
                "authority": authority,
                "cursor": cursor_schema()
            },
            "required": ["package"],
            "additionalProperties": false
        }
    })
}

/// Returns the payload of the tool that finds skills.
fn search_tool(names: ToolNames) -> Value {
    let description = names.fill_placeholders(
        "Finds skills for a task among all available skills, best match first, in the form of {list}. \
         Search before you begin work that no skill in your instructions fits. Write 3 to 8 keywords, \
         not a sentence: the action, the object, the file type, the names of products and tools, and \
         synonyms, in English too; or the name of a skill. If nothing fits, search once more with other \
         words. Read a skill with {read} before you use it.",
    );

    let query = json!({
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_QUERY_CHARS,
        "description": "Keywords, such as \"pdf form fill extract tables\""
    });
    let limit = json!({
        "type": "integer",
        "minimum": 1,
        "maximum": MAX_SEARCH_LIMIT,
        "description": format!("Maximum number of skills; {DEFAULT_SEARCH_LIMIT} if omitted")
    });
    let cursor = json!({
        "type": ["string", "null"],
        "description": "next_cursor of the previous result of the same query; omit it in the first call"
    });

    json!({
        "name": names.search(),
        "description": description,
        "inputSchema": {
            "type": "object",
            "properties": { "query": query, "limit": limit, "cursor": cursor },
            "required": ["query"],
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
