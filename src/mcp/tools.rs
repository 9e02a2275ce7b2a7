//! The two tools of a session as MCP has tools, for hosts whose model is shown tools and no resources.

use crate::session::Session;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ContentBlock, MetaObject, Tool, ToolAnnotations,
};
use serde_json::Value;

/// In `_meta` of results: that strangers wrote what is in them.
const EXTERNAL_CONTEXT_KEY: &str = "caproot/externalContext";

/// What `tools/list` gives.
pub(super) fn list_tools(session: &Session) -> Vec<Tool> {
    let payloads = session.skill_tools();
    payloads.as_array().into_iter().flatten().map(tool_from_payload).collect()
}

fn tool_from_payload(payload: &Value) -> Tool {
    let text = |key: &str| payload[key].as_str().unwrap_or_default().to_owned();
    let schema = payload["inputSchema"].as_object().cloned().unwrap_or_default();
    let hints = ToolAnnotations::new().read_only(true).open_world(false);
    Tool::new(text("name"), text("description"), schema).with_annotations(hints)
}

/// What `tools/call` gives, also where something is wrong.
pub(super) async fn call_tool(session: &Session, request: CallToolRequestParams) -> CallToolResult {
    let arguments = Value::Object(request.arguments.unwrap_or_default());
    let result = session.call(&request.name, &arguments).await;
    let content = vec![ContentBlock::text(result.json)];
    let mut answer = if result.success {
        CallToolResult::success(content)
    } else {
        CallToolResult::error(content)
    };
    let mark = (EXTERNAL_CONTEXT_KEY.to_owned(), Value::Bool(result.external_context));
    answer.meta = Some(MetaObject(std::iter::once(mark).collect()));
    answer
}
