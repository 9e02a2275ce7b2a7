//! The door for a model: a tool's name and arguments in, a bounded result out. Leaves each tool to its
//! own file.

use super::arguments::{self, ListArguments, ReadArguments};
use super::cursor::Cursor;
use super::invocation::{Invocation, SESSION};
use super::lifecycle::closed;
use super::list;
use super::metrics::How;
use super::result::{Code, Refusal, ToolResult};
use super::{Instructions, Session, instructions};
use serde_json::Value;
use tracing::Instrument as _;

/// The hint for a model that calls another tool than the two of skills.
const ONLY_SKILL_TOOLS: &str = "There are {list} and {read}.";

impl Session {
    /// The payloads of the two tools that every session has, by default `list` and `read` of the namespace
    /// `skills`: an array of objects with `name`, `description` and `inputSchema`, and a `namespace` unless
    /// the names are [flat](super::ToolNames::flat), as a platform registers tools.
    #[must_use]
    pub fn skill_tools(&self) -> Value {
        arguments::dynamic_tools(&self.life.tool_names)
    }

    /// The payloads of all its tools: those of [`Session::skill_tools`], and behind them its own ones, which
    /// may have no `namespace`.
    #[must_use]
    pub fn dynamic_tools(&self) -> Value {
        let tools = self.skill_tools();
        #[cfg(feature = "handlers")]
        let tools = self.own.payloads(tools);
        tools
    }

    /// Calls a tool, such as `skills.list` or an own one, with its arguments. Always gives a result
    /// that is for the model, also where something is wrong. Any number may be called at once. Needs a
    /// tokio runtime; dropped, it ends what was called.
    pub async fn call(&self, tool: &str, arguments: &Value) -> ToolResult {
        let invocation = self.invocation(tool, arguments);
        let work = self.answer(tool, arguments).instrument(invocation.span());
        let result = self.life.unless_closed(work).await;
        let result = result.unwrap_or_else(|| self.refused(&closed()));
        invocation.answered(&result);
        result
    }

    /// That a model calls a tool: of which source and skill, as far as its arguments say so.
    fn invocation(&self, tool: &str, arguments: &Value) -> Invocation<'_> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let authority = &arguments["authority"];
        let read = self.source(&text(&authority["kind"]), &text(&authority["id"]));
        let names = &self.life.tool_names;
        let (how, source, skill) = match read {
            _ if tool == names.list() => (How::List, SESSION, String::new()),
            Err(_) if tool == names.read() => (How::Read, SESSION, String::new()),
            Ok(source) if tool == names.read() => {
                let source = (source.kind().name(), source.id());
                (How::Read, source, text(&arguments["package"]))
            }
            _ if self.has_own(tool) => (How::Tool, ("own", tool), String::new()),
            _ => (How::Tool, SESSION, String::new()),
        };
        Invocation::begin(&self.life.counters, how, source, &skill)
    }

    async fn answer(&self, tool: &str, arguments: &Value) -> ToolResult {
        let names = &self.life.tool_names;
        if tool == names.list() {
            return self.list(arguments);
        }
        if tool == names.read() {
            let page = match arguments::read::<ReadArguments>(arguments) {
                Ok(arguments) => self.read(&arguments).await,
                Err(refusal) => Err(refusal),
            };
            return ToolResult::of(page.as_ref(), names);
        }
        #[cfg(feature = "handlers")]
        let result = self.call_own(tool, arguments).await;
        #[cfg(not(feature = "handlers"))]
        let result = self.unknown(tool, ONLY_SKILL_TOOLS);
        result
    }

    fn refused(&self, refusal: &Refusal) -> ToolResult {
        ToolResult::of(Err::<&(), _>(refusal), &self.life.tool_names)
    }

    fn unknown(&self, tool: &str, next: &'static str) -> ToolResult {
        let message = format!("there is no tool {tool:?}");
        self.refused(&Refusal::new(Code::UnknownTool, &message, next))
    }

    #[cfg(feature = "handlers")]
    fn has_own(&self, tool: &str) -> bool {
        self.own.has(tool)
    }

    #[cfg(not(feature = "handlers"))]
    #[allow(clippy::unused_self)] // it has none
    fn has_own(&self, _: &str) -> bool {
        false
    }

    #[cfg(feature = "handlers")]
    async fn call_own(&self, tool: &str, arguments: &Value) -> ToolResult {
        match self.own.call(tool, arguments).await {
            Some(result) => result,
            None if self.own.is_empty() => self.unknown(tool, ONLY_SKILL_TOOLS),
            None => {
                self.unknown(tool, "Call one of the tools that you were given, by its whole name.")
            }
        }
    }

    fn list(&self, arguments: &Value) -> ToolResult {
        let names = &self.life.tool_names;
        let cursor = match arguments::read::<ListArguments>(arguments) {
            Ok(arguments) => arguments.cursor,
            Err(refusal) => return self.refused(&refusal),
        };
        let Some(cursor) = cursor else {
            return ToolResult::of(Ok(&list::page(&self.view(), 0)), names);
        };
        let Some(cursor) = Cursor::parse(&cursor) else {
            let message = names.fill("{list} gave no such cursor");
            return self.refused(&Refusal::said(Code::InvalidCursor, &message));
        };
        let Some(view) = self.view_before(cursor.view) else {
            let next = "Call {list} again without `cursor`, from the start.";
            let message = "the list that the cursor is of is gone; the skills changed since";
            return self.refused(&Refusal::new(Code::CatalogChanged, message, next));
        };
        ToolResult::of(Ok(&list::page(&view, cursor.at as usize)), names)
    }

    /// The text that tells a model what skills there are, and what own tools give, in at most so many
    /// bytes; [`DEFAULT_BUDGET`](super::DEFAULT_BUDGET) is usual. Where nothing changed, it is the same
    /// text.
    #[must_use]
    pub fn instruction_text(&self, budget: usize) -> Instructions {
        let view = self.view();
        let names = &self.life.tool_names;
        let skills = |budget| instructions::write(&view.skills, budget, &view.warnings, names);
        #[cfg(feature = "handlers")]
        let told = self.own.tell(budget, skills);
        #[cfg(not(feature = "handlers"))]
        let told = skills(budget);
        told
    }
}
