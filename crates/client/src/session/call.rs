//! Calls of a session's tools by a model: a tool name and arguments in, a result of limited size
//! out.

use super::arguments::parse_arguments;
use super::instructions::{InstructionText, write_instructions};
use super::list::{SkillListCursor, list_page};
use super::metrics::{InvocationGuard, InvocationKind, InvocationTarget};
use super::read::read_page;
use super::result::{ToolError, ToolErrorCode, ToolResult};
use super::state::Session;
use super::view::SessionView;
use caproot_core::text::quote_value;
use caproot_core::wire::cursor::Cursor as _;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use tracing::Instrument as _;

/// Hint for a model that calls an unknown tool of a session without custom tools.
const SKILL_TOOLS_HINT: &str = "There are {list} and {read}.";

/// Arguments of `skills.list`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListArguments {
    cursor: Option<String>,
}

/// Beginning of a page of the list.
struct ListPageStart {
    view: Arc<SessionView>,
    /// Index of the first skill of the page.
    index: usize,
}

impl Session {
    /// Returns the payloads of the two skill tools, by default `list` and `read` of the namespace
    /// `skills`, as a platform registers tools: an array of objects with `name`, `description` and
    /// `inputSchema`, and with `namespace` unless the names are [flat](super::ToolNames::flat).
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

    /// Calls a tool, such as `skills.list` or a custom tool. Always returns a result for the model,
    /// also after an error. Any number of calls may run at once. Needs a tokio runtime; dropping
    /// the future cancels the call.
    pub async fn call(&self, tool: &str, arguments: &Value) -> ToolResult {
        let invocation = self.start_invocation(tool, arguments);
        let work = self.run_tool(tool, arguments).instrument(invocation.span());
        let result = match self.inner.run_until_closed(work).await {
            Ok(result) => result,
            Err(error) => self.error_result(&error),
        };

        invocation.finish_with_result(&result);
        result
    }

    /// Starts the metrics of a call, with the source and the skill that its arguments name.
    fn start_invocation(&self, tool: &str, arguments: &Value) -> InvocationGuard<'_> {
        let names = &self.inner.tool_names;
        let kind = if tool == names.list() {
            InvocationKind::List
        } else if tool == names.read() {
            InvocationKind::Read
        } else {
            InvocationKind::Tool
        };

        let target = match kind {
            InvocationKind::Read => self.read_target(arguments),
            InvocationKind::Tool if self.has_custom_tool(tool) => {
                InvocationTarget::of_custom_tool(tool)
            }
            _ => InvocationTarget::SESSION,
        };

        InvocationGuard::start(&self.inner.counters, kind, target)
    }

    /// Returns the source and the skill that the arguments of a read name.
    fn read_target<'a>(&'a self, arguments: &'a Value) -> InvocationTarget<'a> {
        let kind = text_field(&arguments["authority"], "kind");
        let id = text_field(&arguments["authority"], "id");

        match self.source_for_authority(kind, id) {
            Ok(source) => InvocationTarget::of_skill(source, text_field(arguments, "package")),
            Err(_) => InvocationTarget::SESSION,
        }
    }

    async fn run_tool(&self, tool: &str, arguments: &Value) -> ToolResult {
        let names = &self.inner.tool_names;
        if tool == names.list() {
            return self.list_skills(arguments);
        }
        if tool == names.read() {
            let page = read_page(self, arguments).await;
            return ToolResult::from_outcome(page.as_ref(), names);
        }

        #[cfg(feature = "handlers")]
        let result = self.call_custom_tool(tool, arguments).await;
        #[cfg(not(feature = "handlers"))]
        let result = self.unknown_tool_result(tool, SKILL_TOOLS_HINT);
        result
    }

    fn error_result(&self, error: &ToolError) -> ToolResult {
        ToolResult::from_outcome(Err::<&(), _>(error), &self.inner.tool_names)
    }

    fn unknown_tool_result(&self, tool: &str, hint: &'static str) -> ToolResult {
        let message = format!("there is no tool {}", quote_value(tool));
        self.error_result(&ToolError::with_hint(
            ToolErrorCode::UnknownTool,
            &message,
            hint,
        ))
    }

    #[cfg(feature = "handlers")]
    fn has_custom_tool(&self, tool: &str) -> bool {
        self.custom_tools.contains(tool)
    }

    #[cfg(not(feature = "handlers"))]
    #[allow(clippy::unused_self)] // `self` is used with the feature.
    fn has_custom_tool(&self, _: &str) -> bool {
        false
    }

    #[cfg(feature = "handlers")]
    async fn call_custom_tool(&self, tool: &str, arguments: &Value) -> ToolResult {
        match self.custom_tools.call_tool(tool, arguments).await {
            Some(result) => result,
            None if self.custom_tools.is_empty() => {
                self.unknown_tool_result(tool, SKILL_TOOLS_HINT)
            }
            None => self.unknown_tool_result(
                tool,
                "Call one of the tools that you were given, by its whole name.",
            ),
        }
    }

    fn list_skills(&self, arguments: &Value) -> ToolResult {
        match self.find_page_start(arguments) {
            Ok(ListPageStart { view, index }) => {
                let page = list_page(&view, index);
                ToolResult::from_outcome(Ok(&page), &self.inner.tool_names)
            }
            Err(error) => self.error_result(&error),
        }
    }

    /// Returns the beginning of the page that the arguments request.
    fn find_page_start(&self, arguments: &Value) -> Result<ListPageStart, ToolError> {
        let arguments: ListArguments = parse_arguments(arguments)?;
        let Some(cursor) = arguments.cursor else {
            return Ok(ListPageStart {
                view: self.current_view(),
                index: 0,
            });
        };

        let Some(cursor) = SkillListCursor::decode(&cursor, b"") else {
            let names = &self.inner.tool_names;
            let message = names.fill_placeholders("{list} returned no such cursor");
            return Err(ToolError::from_code(ToolErrorCode::InvalidCursor, &message));
        };
        let Some(view) = self.views.lock().find(cursor.view_id) else {
            let hint = "Call {list} again without `cursor`, from the start.";
            let message = "the cursor has expired, as the skills have changed";
            return Err(ToolError::with_hint(
                ToolErrorCode::CatalogChanged,
                message,
                hint,
            ));
        };

        Ok(ListPageStart {
            view,
            index: cursor.index as usize,
        })
    }

    /// Returns the text that describes the skills and the results of custom tools to a model, in at
    /// most `budget` bytes; [`DEFAULT_BUDGET`](super::DEFAULT_BUDGET) is usual. If nothing changed,
    /// the text is the same. The text has names and descriptions by third parties: it belongs into a
    /// developer message or a user message, never into the system prompt.
    #[must_use]
    pub fn instruction_text(&self, budget: usize) -> InstructionText {
        let view = self.current_view();
        #[cfg(feature = "handlers")]
        let text = self
            .custom_tools
            .write_instructions(budget, |budget| self.write_skills(&view, budget));
        #[cfg(not(feature = "handlers"))]
        let text = self.write_skills(&view, budget);
        text
    }

    fn write_skills(&self, view: &SessionView, budget: usize) -> InstructionText {
        let names = &self.inner.tool_names;
        write_instructions(&view.skills, budget, &view.warnings, names)
    }
}

/// Returns a field of arguments, or an empty text.
fn text_field<'a>(arguments: &'a Value, name: &str) -> &'a str {
    arguments[name].as_str().unwrap_or_default()
}
