//! Calls of a session's tools by a model: a tool name and arguments in, a result of limited size
//! out.

use super::arguments;
use super::lifecycle::session_closed_error;
use super::list::{SkillListCursor, list_page};
use super::metrics::{InvocationGuard, InvocationKind, SESSION_SOURCE};
use super::read;
use super::result::{ToolError, ToolErrorCode, ToolResult};
use super::tool_names::SkillTool;
use super::{InstructionText, Session, instructions};
use caproot_core::text::quote_value;
use caproot_core::wire::cursor::Cursor as _;
use serde::Deserialize;
use serde_json::Value;
use tracing::Instrument as _;

/// Tool that a call names, in either spelling.
#[derive(Debug, Clone, Copy)]
enum CalledTool<'a> {
    Skill(SkillTool),
    /// Custom tool with this full name.
    Custom(&'a str),
    Unknown,
}

/// Arguments of `skills.list`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListArguments {
    cursor: Option<String>,
}

impl Session {
    /// Returns the payloads of the two skill tools, by default `list` and `read` of the namespace
    /// `skills`, as a platform registers tools: an array of objects with `name`, `description` and
    /// `inputSchema`, and with `namespace` unless the names are [flat](super::ToolNames::Flat).
    #[must_use]
    pub fn skill_tools(&self) -> Value {
        self.inner.tool_names.skill_tools()
    }

    /// Returns the payloads of all tools: those of [`Session::skill_tools`], then the custom tools,
    /// which may have no `namespace`.
    #[must_use]
    pub fn dynamic_tools(&self) -> Value {
        let tools = self.skill_tools();
        #[cfg(feature = "handlers")]
        let tools = self.custom_tools.append_payloads(tools);
        tools
    }

    /// Calls a tool, such as `skills.list` or a custom tool, by its name in either spelling. Always
    /// returns a result for the model, also after an error. Any number of calls may run at once. Needs a tokio runtime; dropping
    /// the future cancels the call.
    pub async fn call(&self, tool: &str, arguments: &Value) -> ToolResult {
        let called = self.find_called_tool(tool);
        let invocation = self.start_invocation(called, arguments);
        let work = self.run_tool(tool, called, arguments);
        let work = work.instrument(invocation.span());

        let result = self.inner.run_until_closed(work).await;
        let result = result.unwrap_or_else(|| self.error_result(&session_closed_error()));
        invocation.finish_with_result(&result);
        result
    }

    fn find_called_tool(&self, name: &str) -> CalledTool<'_> {
        if let Some(tool) = SkillTool::from_name(name) {
            return CalledTool::Skill(tool);
        }
        #[cfg(feature = "handlers")]
        if let Some(name) = self.custom_tools.find_name(name) {
            return CalledTool::Custom(name);
        }
        CalledTool::Unknown
    }

    /// Starts the metrics of a call, with the source and the skill that its arguments name.
    fn start_invocation(&self, tool: CalledTool<'_>, arguments: &Value) -> InvocationGuard<'_> {
        let counters = &self.inner.counters;
        match tool {
            CalledTool::Skill(SkillTool::List) => {
                InvocationGuard::start(counters, InvocationKind::List, SESSION_SOURCE, "")
            }
            CalledTool::Skill(SkillTool::Read) => {
                let package = arguments["package"].as_str().unwrap_or_default();
                let authority = &arguments["authority"];
                let owner = match (authority["kind"].as_str(), authority["id"].as_str()) {
                    (Some(kind), Some(id)) => self.find_authority(kind, id),
                    _ => self.authority_of_package(package),
                };
                match owner {
                    Ok(owner) => {
                        let source = (owner.source.kind().name(), owner.source.id());
                        InvocationGuard::start(counters, InvocationKind::Read, source, package)
                    }
                    Err(_) => {
                        InvocationGuard::start(counters, InvocationKind::Read, SESSION_SOURCE, "")
                    }
                }
            }
            CalledTool::Custom(name) => {
                InvocationGuard::start(counters, InvocationKind::Tool, ("custom", name), "")
            }
            CalledTool::Unknown => {
                InvocationGuard::start(counters, InvocationKind::Tool, SESSION_SOURCE, "")
            }
        }
    }

    async fn run_tool(&self, name: &str, tool: CalledTool<'_>, arguments: &Value) -> ToolResult {
        match tool {
            CalledTool::Skill(SkillTool::List) => self.list_skills(arguments),
            CalledTool::Skill(SkillTool::Read) => {
                let read = read::read_resource(self, arguments).await;
                ToolResult::from_outcome(read.as_ref(), self.inner.tool_names)
            }
            CalledTool::Custom(full_name) => self.call_custom_tool(full_name, arguments).await,
            CalledTool::Unknown => self.unknown_tool_result(name),
        }
    }

    fn error_result(&self, error: &ToolError) -> ToolResult {
        ToolResult::from_outcome(Err::<&(), _>(error), self.inner.tool_names)
    }

    fn unknown_tool_result(&self, name: &str) -> ToolResult {
        #[cfg(feature = "handlers")]
        let has_custom_tools = !self.custom_tools.is_empty();
        #[cfg(not(feature = "handlers"))]
        let has_custom_tools = false;

        let hint = if has_custom_tools {
            "Call one of the tools that you were given, by its whole name."
        } else {
            "There are {list} and {read}."
        };
        let message = format!("there is no tool {}", quote_value(name));
        self.error_result(&ToolError::with_hint(
            ToolErrorCode::UnknownTool,
            &message,
            hint,
        ))
    }

    async fn call_custom_tool(&self, name: &str, arguments: &Value) -> ToolResult {
        #[cfg(feature = "handlers")]
        if let Some(result) = self.custom_tools.call_tool(name, arguments).await {
            return result;
        }
        let _ = arguments;
        self.unknown_tool_result(name)
    }

    fn list_skills(&self, arguments: &Value) -> ToolResult {
        let names = self.inner.tool_names;
        let cursor = match arguments::parse_arguments::<ListArguments>(arguments) {
            Ok(arguments) => arguments.cursor,
            Err(error) => return self.error_result(&error),
        };
        let Some(cursor) = cursor else {
            return ToolResult::from_outcome(Ok(&list_page(&self.current_view(), 0)), names);
        };
        let Some(cursor) = SkillListCursor::decode(&cursor, b"") else {
            let message = names.fill_placeholders("{list} returned no such cursor");
            let error = ToolError::from_code(ToolErrorCode::InvalidCursor, &message);
            return self.error_result(&error);
        };
        let Some(view) = self.views.lock().find(cursor.view_id) else {
            let hint = "Call {list} again without `cursor`, from the start.";
            let message = "the cursor has expired, as the skills have changed";
            let error = ToolError::with_hint(ToolErrorCode::CatalogChanged, message, hint);
            return self.error_result(&error);
        };
        ToolResult::from_outcome(Ok(&list_page(&view, cursor.index as usize)), names)
    }

    /// Returns the text that describes the skills and the results of custom tools to a model, in at
    /// most `budget` bytes; [`DEFAULT_BUDGET`](super::DEFAULT_BUDGET) is usual. If nothing changed,
    /// the text is the same. The text has names and descriptions by third parties: it belongs into a
    /// developer message or a user message, never into the system prompt.
    #[must_use]
    pub fn instruction_text(&self, budget: usize) -> InstructionText {
        let view = self.current_view();
        let names = self.inner.tool_names;
        let skills =
            |budget| instructions::write_instructions(&view.skills, budget, &view.warnings, names);
        #[cfg(feature = "handlers")]
        let text = self.custom_tools.write_instructions(budget, skills);
        #[cfg(not(feature = "handlers"))]
        let text = skills(budget);
        text
    }
}
