use caproot::session::{CustomTool, SessionOptions, ToolRegistry, ToolRegistryError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Counts the words of a text.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Count {
    /// The text.
    text: String,
}

/// How many words there are.
#[derive(Serialize, JsonSchema)]
struct Counted {
    words: usize,
}

/// The options of a session that has one tool of its own.
pub fn options() -> Result<SessionOptions, ToolRegistryError> {
    let count = CustomTool::new("count", |Count { text }: Count| async move {
        let words = text.split_whitespace().count();
        if words == 0 { Err("there is not one word") } else { Ok(Counted { words }) }
    });
    let tools = ToolRegistry::new();
    tools.register(count.in_namespace("words").time_limit(Duration::from_secs(5)))?;
    Ok(SessionOptions { tools, ..SessionOptions::default() })
}
