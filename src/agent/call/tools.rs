//! Tools of the program: definitions in a file or a request, and calls as lines. The program answers
//! each call by a request.

use super::event::CallEvent;
use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use caproot_core::bounded_file;
use caproot_core::sync::Mutex;
use caproot_core::text::SentenceResult as _;
use caproot_session::sources::mcp::McpToken;
use caproot_session::{
    AuthorizationFailed, CustomTool, ServerAuthorization, ServerValues, ToolCaller,
    ToolFunctionError, ToolNames, ToolRegistry,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

/// Maximum number of events that wait for the program to read them. Executors are looked up again and
/// again, also while the program reads nothing.
const MAX_QUEUED_EVENTS: usize = 4096;
/// Maximum size of the file: 128 tools with schemas of 16 KiB.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Definition of a tool of the program.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ProgramTool {
    /// Namespace, which becomes a part of the name: `NAMESPACE_NAME`.
    #[serde(default)]
    namespace: Option<String>,
    /// Name of the tool.
    name: String,
    /// Description for the model.
    description: String,
    /// JSON Schema of the arguments.
    input_schema: Value,
    /// JSON Schema of the result, for the instruction text.
    #[serde(default)]
    output_schema: Option<Value>,
    /// Description of the result, for the instruction text.
    #[serde(default)]
    output_description: Option<String>,
    /// Time limit of a call, such as `30s`. The default is `1m`.
    #[serde(default)]
    time_limit: Option<String>,
    /// Whether third parties write the results, such as of a web search.
    #[serde(default)]
    external_context: bool,
}

/// Tools of the program in one session and its forks.
#[derive(Clone, Default)]
pub struct SessionTools {
    pub registry: ToolRegistry,
    /// Id of the session. Set before the session gets a call.
    pub owner: Arc<OnceLock<String>>,
}

/// Calls that the program has to answer.
pub struct ToolCallbacks {
    state: Mutex<CallbackState>,
    events: UnboundedSender<CallEvent>,
    /// Number of events that are not written yet.
    queued: AtomicUsize,
}

#[derive(Default)]
struct CallbackState {
    last_call: u64,
    is_closed: bool,
    waiting: HashMap<u64, WaitingAnswer>,
}

/// Answer that a call waits for.
struct WaitingAnswer {
    sender: oneshot::Sender<ToolOutcome>,
    /// Whether a request may wait for the answer. No request waits long for a login.
    delays_requests: bool,
}

/// Answer of the program.
pub type ToolOutcome = Result<Value, ToolFunctionError>;

/// Call that waits for its answer. If the call is dropped before, the program gets a line.
struct WaitingCall<'a> {
    callbacks: &'a ToolCallbacks,
    call: u64,
}

impl ToolCallbacks {
    /// Returns callbacks that send events to the program.
    pub fn new(events: UnboundedSender<CallEvent>) -> Self {
        Self {
            state: Mutex::default(),
            events,
            queued: AtomicUsize::new(0),
        }
    }

    /// Asks the program by an event with the number of the call, and waits for the answer.
    async fn ask(&self, make_event: impl FnOnce(u64) -> CallEvent) -> ToolOutcome {
        if self.queued.load(Ordering::Relaxed) >= MAX_QUEUED_EVENTS {
            let reason = "the program reads no events".to_owned();
            return Err(ToolFunctionError::Internal(reason));
        }

        let (call, event, outcome) = {
            let mut state = self.state.lock();
            if state.is_closed {
                return Err(stdin_closed());
            }
            let (sender, outcome) = oneshot::channel();
            state.last_call += 1;
            let call = state.last_call;
            let event = make_event(call);
            let waiting = WaitingAnswer {
                sender,
                delays_requests: !matches!(event, CallEvent::Authorize { .. }),
            };
            // The entry comes before the event, because the program may answer at once.
            state.waiting.insert(call, waiting);
            (call, event, outcome)
        };

        let _waiting = WaitingCall {
            callbacks: self,
            call,
        };
        self.send_event(event);

        // Only `close` drops the sender of a call that waits.
        outcome.await.unwrap_or_else(|_| Err(stdin_closed()))
    }

    /// Asks the program for a value of a type. An error is a sentence.
    pub async fn ask_value<T: DeserializeOwned>(
        &self,
        make_event: impl FnOnce(u64) -> CallEvent,
    ) -> Result<T, String> {
        let value = self.ask(make_event).await.map_err(|error| match error {
            ToolFunctionError::Failed(reason) | ToolFunctionError::Internal(reason) => reason,
        })?;
        serde_json::from_value(value).context("the answer of the program cannot be read")
    }

    /// Answers a call. Returns whether the call waits for its answer.
    pub fn answer(&self, call: u64, outcome: ToolOutcome) -> bool {
        let waiting = self.state.lock().waiting.remove(&call);
        waiting.is_some_and(|waiting| waiting.sender.send(outcome).is_ok())
    }

    /// Returns whether a call waits for its answer, and requests may wait for the call.
    pub fn has_waiting(&self) -> bool {
        let state = self.state.lock();
        state.waiting.values().any(|call| call.delays_requests)
    }

    /// Fails all calls from now on, as nothing answers them any more.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.waiting.clear();
    }

    /// Stores how many events are not written yet.
    pub fn set_queued(&self, count: usize) {
        self.queued.store(count, Ordering::Relaxed);
    }

    fn send_event(&self, event: CallEvent) {
        self.queued.fetch_add(1, Ordering::Relaxed);
        // The receiver ends with the process.
        drop(self.events.send(event));
    }
}

fn stdin_closed() -> ToolFunctionError {
    ToolFunctionError::Internal("the program closed stdin".to_owned())
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        if self
            .callbacks
            .state
            .lock()
            .waiting
            .remove(&self.call)
            .is_some()
        {
            self.callbacks
                .send_event(CallEvent::ToolCancelled { call: self.call });
        }
    }
}

/// Returns the token of an MCP server, which the program has.
pub fn program_token(callbacks: Arc<ToolCallbacks>, key: String, server: String) -> McpToken {
    McpToken::Callback(Arc::new(move || {
        let callbacks = callbacks.clone();
        let (key, server) = (key.clone(), server.clone());
        Box::pin(async move {
            callbacks
                .ask_value(|call| CallEvent::McpToken { call, key, server })
                .await
        })
    }))
}

/// Returns the values of headers of plugins' MCP servers, which the program has.
pub fn program_values(callbacks: &Arc<ToolCallbacks>, key: &str) -> ServerValues {
    let callbacks = callbacks.clone();
    let key = key.to_owned();

    ServerValues::new(move |request| {
        let (callbacks, key) = (callbacks.clone(), key.clone());
        async move {
            callbacks
                .ask_value(|call| CallEvent::ServerValue {
                    call,
                    key,
                    source_kind: request.source_kind.name(),
                    source_id: request.source_id,
                    package: request.package,
                    plugin: request.plugin,
                    server: request.server,
                    origin: request.origin,
                    name: request.name,
                })
                .await
                .unwrap_or_else(|reason| {
                    tracing::warn!("no value of a plugin's MCP server: {reason}");
                    None
                })
        }
    })
}

/// Returns `Authorization` of MCP servers, which the program has. An error of the program is not logged: it
/// can have a credential.
pub fn program_authorization(callbacks: &Arc<ToolCallbacks>, key: &str) -> ServerAuthorization {
    let callbacks = callbacks.clone();
    let key = key.to_owned();
    ServerAuthorization::new(move |request| {
        let (callbacks, key) = (callbacks.clone(), key.clone());
        async move {
            callbacks
                .ask_value(|call| CallEvent::Authorize { call, key, request })
                .await
                .map_err(|_| AuthorizationFailed)
        }
    })
}

/// Reads the tools of a file. Their calls go to the program.
pub fn read_tools(
    file: &Path,
    callbacks: &Arc<ToolCallbacks>,
) -> Result<SessionTools, CommandFailure> {
    bounded_file::read_file_or_pipe(file, MAX_FILE_BYTES)
        .and_then(bounded_file::decode_text)
        .map_err(|error| vec![format!("the file {error}")])
        .and_then(|text| serde_json::from_str(&text).map_err(|error| vec![error.to_string()]))
        .and_then(|definitions| register_tools(definitions, callbacks))
        .map_err(|mistakes| {
            let lines: Vec<_> = mistakes
                .iter()
                .map(|mistake| format!("cannot use --tools {}: {mistake}", file.display()))
                .collect();
            CommandFailure::from_messages(exit::BAD_CONFIG, &lines)
        })
}

/// Returns the tools of a session, or all mistakes. Their calls go to the program.
pub fn register_tools(
    definitions: Vec<ProgramTool>,
    callbacks: &Arc<ToolCallbacks>,
) -> Result<SessionTools, Vec<String>> {
    let tools = SessionTools::default();
    let mut mistakes = Vec::new();

    for definition in definitions {
        let tool = program_tool(definition, callbacks, tools.owner.clone());
        let registered =
            tool.and_then(|tool| tools.registry.register(tool).map_err(|e| e.to_string()));
        mistakes.extend(registered.err());
    }

    if mistakes.is_empty() {
        Ok(tools)
    } else {
        Err(mistakes)
    }
}

fn program_tool(
    definition: ProgramTool,
    callbacks: &Arc<ToolCallbacks>,
    owner: Arc<OnceLock<String>>,
) -> Result<CustomTool, String> {
    let ProgramTool {
        namespace,
        name,
        description,
        input_schema,
        ..
    } = definition;
    let full_name = ToolNames::Flat.join(namespace.as_deref(), &name);

    let callbacks = callbacks.clone();
    let called_name = full_name.clone();
    let mut tool = CustomTool::from_schema(&name, &description, input_schema, move |arguments| {
        let callbacks = callbacks.clone();
        let tool = called_name.clone();
        let session = owner.get().cloned().unwrap_or_default();
        async move {
            let caller = ToolCaller::current();
            let request = caller.and_then(|caller| serde_json::from_str(caller.name()).ok());
            let asked = callbacks.ask(|call| CallEvent::Tool {
                call,
                session,
                // A call of a manager has no request.
                request: request.unwrap_or_default(),
                tool,
                arguments,
            });
            asked.await
        }
    });
    tool = tool.external_context(definition.external_context);

    if let Some(namespace) = namespace {
        tool = tool.in_namespace(&namespace);
    }
    if let Some(schema) = definition.output_schema {
        tool = tool.output_schema(schema);
    }
    if let Some(description) = definition.output_description {
        tool = tool.output_description(&description);
    }
    if let Some(limit) = definition.time_limit {
        let limit = humantime::parse_duration(&limit)
            .context(format_args!("invalid timeLimit {limit:?} of {full_name:?}"))?;
        tool = tool.time_limit(limit);
    }
    Ok(tool)
}

#[cfg(test)]
mod tests {
    use super::{CallEvent, MAX_QUEUED_EVENTS, ToolCallbacks, ToolFunctionError};
    use serde_json::Value;
    use tokio::sync::mpsc::unbounded_channel;

    fn find_executor(call: u64) -> CallEvent {
        CallEvent::FindExecutor {
            call,
            key: String::new(),
            environment_id: "a".to_owned(),
        }
    }

    #[tokio::test]
    async fn a_program_that_reads_nothing_is_asked_a_limited_number_of_times() {
        let (sender, mut events) = unbounded_channel();
        let callbacks = ToolCallbacks::new(sender);
        for _ in 0..2 * MAX_QUEUED_EVENTS {
            // The caller waits no longer than this poll.
            tokio::select! {
                biased;
                _ = callbacks.ask(find_executor) => {}
                () = std::future::ready(()) => {}
            }
        }
        assert!(events.len() <= MAX_QUEUED_EVENTS + 1, "{}", events.len());
        let refused = callbacks.ask(find_executor).await;
        assert!(matches!(refused, Err(ToolFunctionError::Internal(_))));

        while events.try_recv().is_ok() {}
        callbacks.set_queued(events.len());
        let asked = callbacks.ask(find_executor);
        let answered = async {
            let Some(CallEvent::FindExecutor { call, .. }) = events.recv().await else {
                panic!("an event")
            };
            callbacks.answer(call, Ok(Value::Null))
        };
        let both = tokio::join!(asked, answered);
        assert!(matches!(both, (Ok(Value::Null), true)));
    }
}
