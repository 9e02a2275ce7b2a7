//! Calls of a session's tools by a model: a tool name and arguments in, a result of limited size
//! out.

use super::read::FoundRead;
use crate::skills::result::{ToolError, ToolErrorCode, ToolResult};
use crate::skills::tool_names::{SkillTool, ToolNames, group_by_namespace};
use crate::state::Session;
use crate::text::instructions::{DescribedSkills, InstructionText, TextStyle, write_instructions};
use crate::text::notices::{InstructionUpdate, UpdateRequest};
use crate::tools::RegisteredTool;
use crate::uses::invocation::{InvocationGuard, InvocationKind, InvocationTarget};
use crate::uses::usage::UsageKind;
use crate::view::arguments::{parse_arguments, read_text};
use crate::view::list::list_page;
use crate::view::session_view::SessionView;
use crate::view::view_cursor::ViewCursor;
use caproot_core::text::quote_value;
use caproot_core::wire::cursor::Cursor as _;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use std::sync::Arc;
use tracing::Instrument as _;

/// Tool that a call names, in either spelling.
enum CalledTool<'a> {
    List,
    /// Valid arguments of a read, or the error of invalid ones.
    Read(Result<FoundRead<'a>, ToolError>),
    Search,
    Custom(Arc<RegisteredTool>),
    Unknown,
}

/// Arguments of `skills.list`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ListArguments {
    #[serde(deserialize_with = "read_text")]
    cursor: Option<String>,
    /// Ignored: the tool of Codex for the same purpose takes an authority.
    #[serde(rename = "authority")]
    _authority: Option<IgnoredAny>,
}

impl Session {
    /// Returns the payloads of the three skill tools, by default `list`, `read` and `search` of the
    /// namespace `skills`, as a platform registers tools: an array of objects with `name`, `description` and
    /// `inputSchema`, and with `namespace` unless the names are [flat](crate::ToolNames::Flat).
    #[must_use]
    pub fn skill_tools(&self) -> Value {
        self.inner.options.tool_names.skill_tools()
    }

    /// Returns the payloads of all tools, as Codex and the Responses API register tools: an object for each
    /// namespace, with `type`, `name` and its `tools`, then an object of the type `function` for each custom
    /// tool without a namespace. No tool is deferred. If the names are [flat](crate::ToolNames::Flat),
    /// returns [`Session::flat_tools`].
    #[must_use]
    pub fn dynamic_tools(&self) -> Value {
        match self.inner.options.tool_names {
            ToolNames::Flat => self.flat_tools(),
            ToolNames::Namespaced => group_by_namespace(self.flat_tools()),
        }
    }

    /// Returns the payloads of all tools in one list: those of [`Session::skill_tools`], then the custom
    /// tools, which may have no `namespace`.
    #[must_use]
    pub fn flat_tools(&self) -> Value {
        self.tool_set().append_payloads(self.skill_tools())
    }

    /// Calls a tool, such as `skills.list` or a custom tool, by its name in either spelling. Always
    /// returns a result for the model, also after an error. Any number of calls may run at once.
    /// Needs a tokio runtime; dropping the future cancels the call.
    pub async fn call(&self, tool: &str, arguments: &Value) -> ToolResult {
        let called = self.find_called_tool(tool, arguments);
        let invocation = self.start_invocation(&called);
        // Boxed because the future is large, and callers nest it.
        let work = Box::pin(self.run_tool(tool, called, arguments)).instrument(invocation.span());
        let result = self.inner.run_until_closed(work).await.flatten();
        let result = result.unwrap_or_else(|error| {
            ToolResult::from_outcome(Err::<&(), _>(&error), self.inner.options.result_form())
        });
        invocation.finish_with_result(&result);
        result
    }

    fn find_called_tool(&self, name: &str, arguments: &Value) -> CalledTool<'_> {
        match SkillTool::from_name(name) {
            Some(SkillTool::List) => CalledTool::List,
            Some(SkillTool::Read) => CalledTool::Read(FoundRead::find(self, arguments)),
            Some(SkillTool::Search) => CalledTool::Search,
            None => self
                .tool_set()
                .find(name)
                .map_or(CalledTool::Unknown, CalledTool::Custom),
        }
    }

    /// Starts the span of a call, with the source and the skill that it reads.
    fn start_invocation(&self, tool: &CalledTool<'_>) -> InvocationGuard<'_> {
        let session = InvocationTarget::SESSION;
        let (kind, target) = match tool {
            CalledTool::List => (InvocationKind::List, session),
            CalledTool::Read(Ok(read)) => (InvocationKind::Read, read.target()),
            CalledTool::Read(Err(_)) => (InvocationKind::Read, session),
            CalledTool::Search => (InvocationKind::Search, session),
            CalledTool::Custom(tool) => {
                let target = InvocationTarget::of_custom_tool(tool.full_name());
                (InvocationKind::Tool, target)
            }
            CalledTool::Unknown => (InvocationKind::Tool, session),
        };
        InvocationGuard::start(self.inner.invocation_session(), kind, target)
    }

    async fn run_tool(
        &self,
        name: &str,
        tool: CalledTool<'_>,
        arguments: &Value,
    ) -> Result<ToolResult, ToolError> {
        match tool {
            CalledTool::List => self.list_skills(arguments),
            CalledTool::Read(read) => {
                let page = read?.read(self).await?;
                let form = self.inner.options.result_form();
                Ok(ToolResult::from_outcome(Ok(&page), form))
            }
            CalledTool::Search => self.call_search(arguments).await,
            CalledTool::Custom(tool) => Ok(self.tool_set().call_tool(&tool, arguments).await),
            CalledTool::Unknown => {
                let hint = if self.tool_set().is_empty() {
                    "There are {list}, {read} and {search}."
                } else {
                    "Call one of the tools that you were given, by its whole name."
                };

                let message = format!("there is no tool {}", quote_value(name));
                let code = ToolErrorCode::UnknownTool;
                Err(ToolError::with_hint(code, &message, hint))
            }
        }
    }

    fn list_skills(&self, arguments: &Value) -> Result<ToolResult, ToolError> {
        let arguments: ListArguments = parse_arguments(arguments)?;
        let form = self.inner.options.result_form();
        let (view, index) = match arguments.cursor {
            None => (self.current_view(), 0),
            Some(cursor) => {
                let cursor = ViewCursor::decode(&cursor, b"").ok_or_else(|| {
                    let message = form
                        .names
                        .fill_placeholders("{list} returned no such cursor");
                    ToolError::from_code(ToolErrorCode::InvalidCursor, &message)
                })?;
                let hint = "Call {list} again without `cursor`, from the start.";
                let view = self.find_cached_view(cursor.view_id, hint)?;
                (view, cursor.index as usize)
            }
        };

        let page = list_page(&view, index, form.max_bytes);
        self.inner
            .usage
            .record(UsageKind::Listed, page.shared_skills());
        Ok(ToolResult::from_outcome(Ok(&page), form))
    }

    /// Returns the text that describes the skills and the results of custom tools to a model, in at
    /// most `budget` bytes; [`DEFAULT_BUDGET`](crate::DEFAULT_BUDGET) is usual. If nothing changed,
    /// the text is the same. A name that the text gives in place of a handle keeps its skill for the life of
    /// the session, of its forks and of its saved state. The text has names and descriptions by third parties: it belongs into a
    /// developer message or a user message, never into the system prompt.
    #[must_use]
    pub fn instruction_text(&self, budget: usize) -> InstructionText {
        let view = self.current_view();
        self.tool_set()
            .write_instructions(budget, |budget| self.write_skills(&view, budget))
    }

    /// Returns the text for a model that has the text of the id `known`: nothing if the skills are the
    /// same, a notice of at most [`MAX_NOTICE_BYTES`](crate::MAX_NOTICE_BYTES) about changes, or the
    /// whole text if the whole text is shorter or the session does not know the id. The session knows
    /// its last 8 texts. Pass the id of each update to the next call.
    ///
    /// ```
    /// use caproot_session::{DEFAULT_BUDGET, SessionOptions, UpdateKind};
    /// # mod demo { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/support/demo_session.rs")); }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let session = demo::start_demo_session(&SessionOptions::default()).await;
    /// let first = session.instruction_update(None, DEFAULT_BUDGET);
    /// assert!(first.instructions.text.contains("- triage-logs: "));
    ///
    /// // At the next turn, nothing changed.
    /// let next = session.instruction_update(Some(&first.id), DEFAULT_BUDGET);
    /// assert_eq!((next.kind, next.instructions.text.as_str()), (UpdateKind::Unchanged, ""));
    /// # }
    /// ```
    #[must_use]
    pub fn instruction_update(&self, known: Option<&str>, budget: usize) -> InstructionUpdate {
        // The text comes before the lock, because it binds short names under the same lock.
        let whole = self.instruction_text(budget);
        if self.is_closed() {
            return InstructionUpdate::closed(whole);
        }

        let short_names = self.inner.short_names.lock();
        let request = UpdateRequest {
            known,
            budget,
            names: self.inner.options.tool_names,
            short_names: &short_names,
        };
        self.texts.lock().update(request, whole)
    }

    fn write_skills(&self, view: &SessionView, budget: usize) -> InstructionText {
        let style = TextStyle {
            names: self.inner.options.tool_names,
            has_scripts: self.inner.options.scripts,
        };

        // One lock covers choice and binding, so that no two texts give one name to two skills.
        let mut short_names = self.inner.short_names.lock();
        let text = {
            let described = DescribedSkills {
                skills: &view.skills,
                equal_roots: &view.equal_roots,
                emphasis: &view.emphasis,
                names: &short_names.chooser(&view.skills, &view.equal_roots),
            };
            write_instructions(&described, budget, style)
        };
        for placed in &text.skills {
            if let Some(name) = &placed.short_name {
                short_names.bind_name(name, &placed.skill);
            }
        }
        drop(short_names);

        self.inner
            .usage
            .record(UsageKind::Listed, text.shown_skills());
        #[cfg_attr(not(feature = "mcp"), allow(unused_mut))] // extended only with the feature
        let mut warnings = view.warnings.clone();
        #[cfg(feature = "mcp")]
        warnings.extend(self.plugin_servers.warnings());
        InstructionText { warnings, ..text }
    }
}
