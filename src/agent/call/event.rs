//! Events of `caproot call`: lines of stdout that answer no request.

use super::answer::{AnswerImage, SubmittedAnswer};
use super::schema::ToolPayload;
use caproot_session::{
    AuthorizationRequest, ChangedSource, ExecutorState, Session, SessionPluginChanges, SourceKind,
    UsageEvent,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// Event by its name in `event`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(
    tag = "event",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum CallEvent {
    /// With `--events`, or after `watch`: the skills or the state of a source changed.
    Changed {
        /// State of the source, if the source is an executor.
        #[serde(skip_serializing_if = "Option::is_none")]
        executor: Option<ExecutorState>,
        /// Name of any other source.
        #[serde(skip_serializing_if = "Option::is_none")]
        source: Option<SourceName>,
        /// Id of the session.
        session: String,
        /// After `watch`: the new text that describes the skills to a model, if the text changed.
        #[serde(skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// After `watch`: the result of `tools`, if the tools changed.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Option<Vec<ToolPayload>>")]
        tools: Option<Value>,
    },
    /// With `--events` or after `watch`, and with `--plugins`: plugins changed.
    Plugins {
        /// Id of the session.
        session: String,
        /// Changes of the plugins.
        #[serde(flatten)]
        changes: SessionPluginChanges,
    },
    /// After `watch_usage`: a skill was listed, read, injected or searched.
    Usage {
        /// Use of the skill.
        #[serde(flatten)]
        used: UsageEvent,
    },
    /// A model calls a tool of the program, which answers by the request `tool_result`.
    Tool {
        /// Number of the call.
        call: u64,
        /// Id of the session that started with the tool. A fork has the tools of its session.
        session: String,
        /// Id of the request `call` in which the tool is called; `null` for a call of a manager.
        request: Value,
        /// Name of the tool, with its namespace.
        tool: String,
        /// Arguments that fit the schema of the tool.
        arguments: Value,
    },
    /// For the `executors` of the request `start`: the executor of an environment is needed. The result is a `FoundExecutor`, or `null` if there is none.
    FindExecutor {
        /// Number of the call.
        call: u64,
        /// Key of the executors in the request `start`.
        key: String,
        /// Environment of the executor.
        environment_id: String,
    },
    /// With `ask_tokens` of the request `start`: the token of an MCP server is needed.
    /// The result is the token.
    McpToken {
        /// Number of the call.
        call: u64,
        /// Key of the sources in the request `start`.
        key: String,
        /// Name of the server.
        server: String,
    },
    /// With `ask_values` of the request `start`: a value that the declaration of a plugin's MCP server
    /// withholds is needed. The author of the plugin chose all texts except the source and the package. The result is the
    /// value, or `null` if the server must not get it.
    ServerValue {
        /// Number of the call.
        call: u64,
        /// Key of the sources in the request `start`.
        key: String,
        /// Kind of the plugin's source: `executor` or `local`.
        source_kind: &'static str,
        /// Id of the plugin's source; the environment of an executor.
        source_id: String,
        /// Handle of the plugin.
        package: String,
        /// Name of the plugin.
        plugin: String,
        /// Name of the server.
        server: String,
        /// Origin that gets the value, such as `https://mcp.tracker.example`.
        origin: String,
        /// Variable that the declaration names, or the name of the header.
        name: String,
    },
    /// With `ask_authorization` of the request `start`: an HTTP MCP server answered 401. The author of the plugin and
    /// the server chose all texts except the source and the package. The result is the value of `Authorization` for the
    /// origin, such as `Bearer …`, or `null` if the server must not get one. The answer may take 15 minutes.
    Authorize {
        /// Number of the call.
        call: u64,
        /// Key of the sources in the request `start`.
        key: String,
        /// Server and challenge.
        #[serde(flatten)]
        request: AuthorizationRequest,
    },
    /// A dispatcher needs a page of pending calls. The result is a `ProgramCallPage`.
    ListPending {
        /// Number of the call.
        call: u64,
        /// Number of the dispatcher.
        dispatcher: u64,
        /// Token of the page; `null` for the first page.
        token: Option<String>,
        /// Number of calls that the page should have.
        limit: usize,
    },
    /// A dispatcher has the answer of a pending call. The result is `null`, or an `UnneededAnswer`.
    SubmitResult {
        /// Number of the call.
        call: u64,
        /// Number of the dispatcher.
        dispatcher: u64,
        /// Id that the platform has for the pending call.
        request_id: String,
        /// Whether the answer is a success.
        success: bool,
        /// Whether third parties wrote the answer.
        external_context: bool,
        /// Text of JSON for the model, in at most 8,192 bytes.
        result: String,
        /// Images and sounds that the answer names; only those of the tools of plugins' MCP servers.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        images: Vec<AnswerImage>,
    },
    /// A dispatcher sends a turn. Any result means that the turn was sent.
    SendTurn {
        /// Number of the call.
        call: u64,
        /// Number of the dispatcher.
        dispatcher: u64,
        /// Turn of the request `run_turn`.
        turn: Value,
    },
    /// A dispatcher needs the status of its thread. The result is the name of the status.
    ThreadStatus {
        /// Number of the call.
        call: u64,
        /// Number of the dispatcher.
        dispatcher: u64,
    },
    /// A call of the program by an event needs no answer any more.
    ToolCancelled {
        /// Number of the call.
        call: u64,
    },
    /// With `--manager`: the answer of a pending call was submitted.
    Dispatched {
        /// The submitted answer.
        #[serde(flatten)]
        answer: SubmittedAnswer,
    },
}

/// Kind and id of a source, as in the authorities of its skills.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SourceName {
    /// `local`, `mcp` or `site`.
    kind: &'static str,
    id: String,
}

impl CallEvent {
    /// Returns the event of a changed source, with the new text and the new tools, if there are some.
    pub fn from_source(
        session: &Session,
        changed: &ChangedSource,
        text: Option<String>,
        tools: Option<Value>,
    ) -> Self {
        let is_executor = changed.kind == SourceKind::Executor;
        let executors = session.executors().into_iter();
        Self::Changed {
            executor: executors
                .filter(|_| is_executor)
                .find(|executor| executor.environment_id == changed.id),
            source: (!is_executor).then(|| SourceName {
                kind: changed.kind.name(),
                id: changed.id.clone(),
            }),
            session: session.id().to_owned(),
            text,
            tools,
        }
    }

    /// Returns the line of the event.
    pub fn to_line(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }
}
