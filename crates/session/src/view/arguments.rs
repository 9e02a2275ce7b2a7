//! Arguments of the skill tools: their schemas, and parsing. Models send empty texts and `null` for
//! absent fields, numbers as texts, and all arguments as one text: such forms are accepted, as each error
//! costs a turn of the conversation. Unknown fields are rejected.

use crate::skills::result::{ToolError, ToolErrorCode};
use crate::skills::skill_source::SourceKind;
use crate::skills::tool_names::ToolNames;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::borrow::Cow;

/// Limit of a query of the search tool in characters.
pub const MAX_QUERY_CHARS: usize = 400;
/// Default and maximum number of skills of a page of the search tool. Ten skills nearly always fit into
/// a result.
pub const DEFAULT_SEARCH_LIMIT: u32 = 10;
pub const MAX_SEARCH_LIMIT: u32 = 20;

/// Parses the arguments of a tool: an object, its text, or nothing.
pub fn parse_arguments<A: DeserializeOwned>(arguments: &Value) -> Result<A, ToolError> {
    let object = match arguments {
        Value::String(text) if !text.trim().is_empty() => match serde_json::from_str(text) {
            Ok(parsed @ Value::Object(_)) => Cow::Owned(parsed),
            // The error names the text.
            _ => Cow::Borrowed(arguments),
        },
        Value::Null | Value::String(_) => Cow::Owned(json!({})),
        Value::Array(_) => {
            return Err(invalid_arguments("the arguments are a list, not an object"));
        }
        _ => Cow::Borrowed(arguments),
    };
    A::deserialize(&*object).map_err(|error| invalid_arguments(&error.to_string()))
}

/// Reads a text. `null` and a blank text are absent.
pub fn read_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.filter(|text| !text.trim().is_empty()))
}

/// Reads a text, or words that are joined to a text.
pub fn read_words<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a text of keywords")]
    enum Words {
        Text(String),
        List(Vec<String>),
    }

    Ok(match Words::deserialize(deserializer)? {
        Words::Text(text) => text,
        Words::List(words) => words.join(" "),
    })
}

/// Reads a number that may be a text. `null` and a blank text are absent.
pub fn read_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let number = match &value {
        Value::Null => return Ok(None),
        Value::String(text) if text.trim().is_empty() => return Ok(None),
        Value::String(text) => text.trim().parse().ok(),
        Value::Number(number) => number.as_f64(),
        _ => None,
    };

    let whole = number
        .filter(|number| number.fract() == 0.0 && *number >= 0.0)
        .ok_or_else(|| D::Error::custom(format!("expected a number, not {value}")))?;
    // A larger number has the meaning of the largest one.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked, and saturating
    Ok(Some(whole as u32))
}

/// Returns the error of arguments that cannot be parsed.
pub fn invalid_arguments(reason: &str) -> ToolError {
    ToolError::with_hint(
        ToolErrorCode::InvalidArguments,
        &format!("the arguments cannot be read: {reason}"),
        "Call again with exactly the fields of the tool's schema.",
    )
}

impl ToolNames {
    /// Returns the payloads of the three skill tools, like
    /// [`Session::skill_tools`](crate::Session::skill_tools).
    #[must_use]
    pub fn skill_tools(self) -> Value {
        Value::Array(vec![list_tool(self), read_tool(self), search_tool(self)])
    }

    /// Returns the payload of a tool with the properties of its arguments.
    fn tool_payload(self, name: &str, description: &str, properties: &Value) -> Value {
        let mut tool = json!({
            "name": self.join(Some("skills"), name),
            "description": description,
            "inputSchema": {
                "type": "object",
                "properties": properties,
                "additionalProperties": false
            }
        });
        if self == Self::Namespaced {
            tool["name"] = json!(name);
            tool["namespace"] = json!("skills");
        }
        tool
    }
}

/// Returns the payload of the tool that lists skills.
fn list_tool(names: ToolNames) -> Value {
    let description = names.fill_placeholders(
        "Lists the available skills: sets of instructions by third parties for kinds of work. Read a \
         skill with {read} before doing work that its description fits. While next_cursor is not null \
         there are more: call again with it as cursor.",
    );
    names.tool_payload("list", &description, &json!({ "cursor": cursor_schema() }))
}

/// Returns the payload of the tool that reads a file of a skill.
fn read_tool(names: ToolNames) -> Value {
    let package = json!({
        "type": "string",
        "description": names.fill_placeholders("Name of the skill, or its package as {list} returns it")
    });

    let resource = json!({
        "type": ["string", "null"],
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
        "additionalProperties": false
    });

    // Qwen Code shows the first 157 characters of a description, so the purpose comes first.
    let description = "Reads a skill, which is instructions for a kind of work, or one of its files. \
        Read a skill before you do work that its name or description fits. While next_cursor is not \
        null there is more: call again with it as cursor. Skills are written by third parties: use \
        them for the task at hand.";
    let mut tool = names.tool_payload(
        "read",
        description,
        &json!({
            "package": package,
            "resource": resource,
            "authority": authority,
            "cursor": cursor_schema()
        }),
    );
    tool["inputSchema"]["required"] = json!(["package"]);
    tool
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

    let mut tool = names.tool_payload(
        "search",
        &description,
        &json!({ "query": query, "limit": limit, "cursor": cursor }),
    );
    tool["inputSchema"]["required"] = json!(["query"]);
    tool
}

fn cursor_schema() -> Value {
    json!({
        "type": ["string", "null"],
        "description": "next_cursor of the previous result, unchanged; omit it in the first call"
    })
}
