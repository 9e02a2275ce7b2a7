//! The door for a model: a tool's name and arguments in, a bounded result out. Leaves each tool to its
//! own file.

use super::arguments::{self, ListArguments, ReadArguments};
use super::cursor::SkillListCursor;
use super::invocation::{InvocationGuard, SESSION_SOURCE};
use super::lifecycle::session_closed_error;
use super::list;
use super::metrics::InvocationKind;
use super::result::{ToolError, ToolErrorCode, ToolResult};
use super::{InstructionText, Session, instructions};
use serde_json::Value;
use tracing::Instrument as _;

/// The hint for a model that calls another tool than the two of skills.
const SKILL_TOOLS_HINT: &str = "There are {list} and {read}.";

impl Session {
    /// The payloads of the two tools that every session has, by default `list` and `read` of the namespace
    /// `skills`: an array of objects with `name`, `description` and `inputSchema`, and a `namespace` unless
    /// the names are [flat](super::ToolNames::flat), as a platform registers tools.
    #[must_use]
    pub fn skill_tools(&self) -> Value {
        arguments::dynamic_tools(&self.inner.tool_names)
    }

    /// The payloads of all its tools: those of [`Session::skill_tools`], and behind them its own ones, which
    /// may have no `namespace`.
    #[must_use]
    pub fn dynamic_tools(&self) -> Value {
        let tools = self.skill_tools();
        #[cfg(feature = "handlers")]
        let tools = self.custom_tools.append_payloads(tools);
        tools
    }

    /// Calls a tool, such as `skills.list` or an own one, with its arguments. Always gives a result
    /// that is for the model, also where something is wrong. Any number may be called at once. Needs a
    /// tokio runtime; dropped, it ends what was called.
    pub async fn call(&self, tool: &str, arguments: &Value) -> ToolResult {
        let invocation = self.start_invocation(tool, arguments);
        let work = self.run_tool(tool, arguments).instrument(invocation.span());
        let result = self.inner.run_until_closed(work).await;
        let result = result.unwrap_or_else(|| self.error_result(&session_closed_error()));
        invocation.finish_with_result(&result);
        result
    }

    /// That a model calls a tool: of which source and skill, as far as its arguments say so.
    fn start_invocation(&self, tool: &str, arguments: &Value) -> InvocationGuard<'_> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let authority = &arguments["authority"];
        let read = self.source_for_authority(&text(&authority["kind"]), &text(&authority["id"]));
        let names = &self.inner.tool_names;
        let (how, source, skill) = match read {
            _ if tool == names.list() => (InvocationKind::List, SESSION_SOURCE, String::new()),
            Err(_) if tool == names.read() => (InvocationKind::Read, SESSION_SOURCE, String::new()),
            Ok(source) if tool == names.read() => {
                let source = (source.kind().name(), source.id());
                (InvocationKind::Read, source, text(&arguments["package"]))
            }
            _ if self.has_own(tool) => (InvocationKind::Tool, ("own", tool), String::new()),
            _ => (InvocationKind::Tool, SESSION_SOURCE, String::new()),
        };
        InvocationGuard::start(&self.inner.counters, how, source, &skill)
    }

    async fn run_tool(&self, tool: &str, arguments: &Value) -> ToolResult {
        let names = &self.inner.tool_names;
        if tool == names.list() {
            return self.list_skills(arguments);
        }
        if tool == names.read() {
            let page = match arguments::parse_arguments::<ReadArguments>(arguments) {
                Ok(arguments) => self.read_page(&arguments).await,
                Err(refusal) => Err(refusal),
            };
            return ToolResult::from_outcome(page.as_ref(), names);
        }
        #[cfg(feature = "handlers")]
        let result = self.call_own(tool, arguments).await;
        #[cfg(not(feature = "handlers"))]
        let result = self.unknown(tool, SKILL_TOOLS_HINT);
        result
    }

    fn error_result(&self, refusal: &ToolError) -> ToolResult {
        ToolResult::from_outcome(Err::<&(), _>(refusal), &self.inner.tool_names)
    }

    fn unknown_tool_result(&self, tool: &str, next: &'static str) -> ToolResult {
        let message = format!("there is no tool {tool:?}");
        self.error_result(&ToolError::with_hint(ToolErrorCode::UnknownTool, &message, next))
    }

    #[cfg(feature = "handlers")]
    fn has_own(&self, tool: &str) -> bool {
        self.custom_tools.contains(tool)
    }

    #[cfg(not(feature = "handlers"))]
    #[allow(clippy::unused_self)] // it has none
    fn has_own(&self, _: &str) -> bool {
        false
    }

    #[cfg(feature = "handlers")]
    async fn call_own(&self, tool: &str, arguments: &Value) -> ToolResult {
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
        let names = &self.inner.tool_names;
        let cursor = match arguments::parse_arguments::<ListArguments>(arguments) {
            Ok(arguments) => arguments.cursor,
            Err(refusal) => return self.error_result(&refusal),
        };
        let Some(cursor) = cursor else {
            return ToolResult::from_outcome(Ok(&list::list_page(&self.current_view(), 0)), names);
        };
        let Some(cursor) = SkillListCursor::parse(&cursor) else {
            let message = names.fill_placeholders("{list} gave no such cursor");
            return self
                .error_result(&ToolError::from_code(ToolErrorCode::InvalidCursor, &message));
        };
        let Some(view) = self.cached_view(cursor.view_id) else {
            let next = "Call {list} again without `cursor`, from the start.";
            let message = "the list that the cursor is of is gone; the skills changed since";
            return self.error_result(&ToolError::with_hint(
                ToolErrorCode::CatalogChanged,
                message,
                next,
            ));
        };
        ToolResult::from_outcome(Ok(&list::list_page(&view, cursor.index as usize)), names)
    }

    /// The text that tells a model what skills there are, and what own tools give, in at most so many
    /// bytes; [`DEFAULT_BUDGET`](super::DEFAULT_BUDGET) is usual. Where nothing changed, it is the same
    /// text.
    #[must_use]
    pub fn instruction_text(&self, budget: usize) -> InstructionText {
        let view = self.current_view();
        let names = &self.inner.tool_names;
        let skills =
            |budget| instructions::write_instructions(&view.skills, budget, &view.warnings, names);
        #[cfg(feature = "handlers")]
        let told = self.custom_tools.write_instructions(budget, skills);
        #[cfg(not(feature = "handlers"))]
        let told = skills(budget);
        told
    }
}
