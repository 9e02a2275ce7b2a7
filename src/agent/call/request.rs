//! Requests of `caproot call`: one JSON object in each line of stdin.

use super::answer::RequestError;
use super::dispatchers::ProgramCall;
use super::lines::InputLine;
use super::session_request::SessionRequest;
use super::tools::ToolOutcome;
use caproot_core::text::SentenceResult as _;
use caproot_session::{
    DEFAULT_BUDGET, MAX_INJECTED_BYTES, SkillAuthority, SkillMention, ToolFunctionError, UserPrompt,
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// Line of stdin: a request, and the fields that all requests have.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct RequestLine {
    /// Any JSON value. The answer has the same value. The default is `null`.
    #[serde(default)]
    pub id: Value,
    /// Id of a session that `start`, `fork` or `restore` returned. The default is the first session.
    /// `hello`, `start`, `restore`, `cancel`, `tool_result` and the methods of a manager ignore the id.
    #[serde(default, deserialize_with = "read_session_id")]
    pub session: Option<String>,
    /// The request itself, in the same object.
    #[serde(flatten)]
    pub request: CallRequest,
}

/// Request by its `method`. The other fields are those of the variant; further fields are errors.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "method", rename_all = "snake_case", deny_unknown_fields)]
pub enum CallRequest {
    /// The version of the program, its limits and the id of its first session.
    Hello {},
    /// A new session, or a saved session with options.
    Start(Box<SessionRequest>),
    /// All skills that a model may use.
    List {},
    /// A whole text file of a skill.
    Read(FileRequest),
    /// The text and the tools of the session of now, and the event `changed` after each change from now on.
    Watch {
        /// Maximum size of the text in bytes. The default is 8,000.
        #[serde(default = "default_budget")]
        budget: usize,
    },
    /// The event `usage` for each use of a skill of the session from now on.
    WatchUsage {},
    /// The end of a request in flight, which gets the error `CANCELLED`. Requests that run calls of a
    /// manager or dispatcher are not cancelled.
    Cancel {
        /// Id of the request.
        request: Value,
    },
    /// The names, descriptions and JSON Schemas of the tools.
    Tools {},
    /// A call of a tool by a model.
    Call {
        /// Name of the tool, such as `skills_list`.
        tool: String,
        /// Arguments as the model wrote them. The default is `null`.
        #[serde(default)]
        arguments: Value,
    },
    /// The text that describes the skills to a model, or a notice of the changes since a text.
    Instructions {
        /// Maximum size of the text in bytes. The default is 8,000.
        #[serde(default = "default_budget")]
        budget: usize,
        /// Id of the text that the model has. By default the model has none.
        #[serde(default)]
        known: Option<String>,
    },
    /// The files of skills that the model read or was given, the most recently used first.
    UsedSkills {},
    /// The files of `used_skills` again, as fragments for a model that has forgotten them.
    Reinject {
        /// Maximum size of the fragments and the note together in bytes. The default and the maximum
        /// are 32,000.
        #[serde(default = "default_reinject_budget")]
        budget: usize,
    },
    /// The skills that a prompt mentions, as fragments for a model.
    Inject(UserPrompt),
    /// The state of each executor.
    State {},
    /// The state of each source: executors, directories, MCP servers and sites.
    SourceStates {},
    /// The plugins with their components. Empty without `--plugins`.
    Plugins {},
    /// The MCP servers of plugins that the session uses, with their tools. Empty without
    /// `--plugin-servers`.
    PluginServers {},
    /// Another attempt to use the MCP servers that cannot be used, such as after a user logged in. A server that answers
    /// 401 again causes the event `authorize` again.
    RetryServers {},
    /// The outcome of a call of the program by an event with `call`, such as of a tool.
    ToolResult(ToolResultRequest),
    /// The session as JSON, for `restore`.
    Save {},
    /// Continues a saved session.
    Restore {
        /// Result of `save`.
        saved: Value,
    },
    /// The changes of a restored session since its save.
    Changes {},
    /// A new session with the roots and skills of the session, or some of them.
    Fork(ForkRequest),
    /// The end of the session.
    Close {},
    /// A dispatcher that answers the pending calls of a platform in the program. The dispatcher ends with
    /// its session.
    Dispatcher(DispatcherRequest),
    /// Answers a call that the platform pushed.
    Dispatch(Box<DispatchRequest>),
    /// Sends a turn to the platform, and answers pending calls until the turn ends.
    RunTurn(TurnRequest),
    /// The end of a dispatcher.
    CloseDispatcher {
        /// Number of the dispatcher.
        dispatcher: u64,
    },
    /// Answers all pending calls of a dispatcher or of the manager once.
    Drain {
        /// Number of a dispatcher. The default is the manager of `--manager`.
        #[serde(default)]
        dispatcher: Option<u64>,
    },
    /// Answers the calls in the manager's stream of events until the stream or stdin ends.
    Listen {},
    /// Sends a prompt to the manager.
    Send(SendRequest),
}

/// Roots and skills of a new session.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ForkRequest {
    /// Ids of the roots of the new session. The default is all roots of the session.
    pub roots: Option<Vec<String>>,
    /// Only skills of the session for this product, or for every product.
    pub product: Option<String>,
    /// Rules that include skills of the session. The default is all skills.
    pub include: Vec<String>,
    /// Rules that exclude skills.
    pub exclude: Vec<String>,
    /// Further rules of skills that the text never cuts while another skill is in the text.
    pub pin: Vec<String>,
    /// Further rules of skills that the text lists without a description.
    pub name_only: Vec<String>,
    /// Further rules of skills that are hidden from models.
    pub manual: Vec<String>,
    /// Further rules of skills that are offered although they are switched off by default.
    pub enable: Vec<String>,
}

/// File of a skill.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileRequest {
    /// Name or handle of a listed skill.
    pub skill: String,
    /// Path of the file relative to the skill, as its SKILL.md links it. The SKILL.md by default.
    #[serde(default)]
    pub path: String,
    /// Authority of the skill, as `list` returned it. Needed only if several sources have the handle.
    #[serde(default)]
    pub authority: Option<SkillAuthority>,
}

/// Outcome of a call of the program by an event: exactly one of `result`, `error` and `bug`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolResultRequest {
    /// Number of the call in its event.
    pub call: u64,
    /// Result for the model: any JSON value, also `null`.
    #[serde(default, deserialize_with = "read_present_value")]
    result: Option<Value>,
    /// Reason of a failure, for the model.
    #[serde(default)]
    error: Option<String>,
    /// Description of a bug, for the log.
    #[serde(default)]
    bug: Option<String>,
}

/// Dispatcher of the pending calls of a platform in the program. A limit that is missing has its default.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DispatcherRequest {
    /// Id of the thread, as the platform has it. Calls of other threads are ignored.
    pub thread: String,
    /// Calls at once. The default is 16.
    #[serde(default)]
    pub max_in_flight: Option<usize>,
    /// Answers that the platform did not take yet. The default is 1,000.
    #[serde(default)]
    pub max_unsent: Option<usize>,
    /// Time limit of a tool. The default is `2m`.
    #[serde(default)]
    pub answer_timeout: Option<String>,
    /// Time limit of each call of the platform. The default is `10s`.
    #[serde(default)]
    pub manager_timeout: Option<String>,
    /// Time limit of a turn. The default is `10m`.
    #[serde(default)]
    pub turn_timeout: Option<String>,
}

/// Call that the platform pushed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DispatchRequest {
    /// Number of the dispatcher.
    pub dispatcher: u64,
    /// The call.
    pub call: ProgramCall,
}

/// Turn of a platform's thread.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TurnRequest {
    /// Number of the dispatcher.
    pub dispatcher: u64,
    /// Turn for the thread, any JSON. Without a turn, a turn is awaited that was sent before.
    #[serde(default)]
    pub turn: Option<Value>,
    /// Names of the statuses that end the turn.
    pub until: Vec<String>,
}

/// Prompt for the manager.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendRequest {
    /// Text of the prompt.
    pub text: String,
    /// Skills that the user mentioned next to the text.
    #[serde(default)]
    pub mentions: Vec<SkillMention>,
    /// Names that mean a connector, and not a skill, if they stand alone in the text.
    #[serde(default)]
    pub connectors: Vec<String>,
    /// Names of skills that the caller has. A skill of the session takes precedence.
    #[serde(default)]
    pub caller_skills: Vec<String>,
    /// Arguments of the user for the mentioned skills, at most 4,096 bytes.
    #[serde(default)]
    pub arguments: String,
    /// Whether the prompt gets the fragments of the mentioned skills. The default is `true`.
    #[serde(default = "inject_by_default")]
    pub inject: bool,
    /// Statuses of the manager's thread. Calls are answered until the thread has one of them. Empty:
    /// the prompt is only sent.
    #[serde(default)]
    pub until: Vec<String>,
}

impl CallRequest {
    /// Whether the request is answered at once, however many others are in flight: other requests may
    /// wait for it.
    pub fn is_urgent(&self) -> bool {
        matches!(
            self,
            Self::Hello {} | Self::ToolResult(_) | Self::Cancel { .. }
        )
    }

    /// Whether the request runs a manager's calls, which a cancelled request would leave half-done.
    pub fn is_of_manager(&self) -> bool {
        matches!(
            self,
            Self::Drain { .. }
                | Self::Dispatch(_)
                | Self::RunTurn(_)
                | Self::Listen {}
                | Self::Send(_)
        )
    }
}

impl ToolResultRequest {
    /// Returns the outcome of the call.
    pub fn outcome(self) -> Result<ToolOutcome, RequestError> {
        match (self.result, self.error, self.bug) {
            (Some(result), None, None) => Ok(Ok(result)),
            (None, Some(error), None) => Ok(Err(ToolFunctionError::Failed(error))),
            (None, None, Some(bug)) => Ok(Err(ToolFunctionError::Internal(bug))),
            _ => Err(RequestError::invalid(
                "expected one of `result`, `error` and `bug`",
            )),
        }
    }
}

/// Line without a valid request.
pub struct BadLine {
    /// Id of the request, or `null` if the line has none.
    pub id: Value,
    pub error: Box<RequestError>,
}

/// Parses a line of stdin.
pub fn parse_request(line: InputLine) -> Result<RequestLine, BadLine> {
    let mut id = Value::Null;
    let parsed = line.map_err(str::to_owned).and_then(|text| {
        let fields: Map<_, _> =
            serde_json::from_str(&text).context("the line is not a JSON object")?;
        id = fields.get("id").cloned().unwrap_or_default();
        parse_fields(fields)
    });
    parsed.map_err(|message| BadLine {
        id,
        error: Box::new(RequestError::invalid(message)),
    })
}

fn parse_fields(fields: Map<String, Value>) -> Result<RequestLine, String> {
    if !fields.get("method").is_some_and(Value::is_string) {
        return Err("`method` is missing or not text".to_owned());
    }
    serde_json::from_value(Value::Object(fields)).map_err(|error| {
        // serde calls the method a variant.
        let text = error.to_string();
        match text.strip_prefix("unknown variant") {
            Some(rest) => format!("unknown method{rest}"),
            None => text,
        }
    })
}

/// Reads a value that may be `null`.
fn read_present_value<'de, D: Deserializer<'de>>(field: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(field).map(Some)
}

fn read_session_id<'de, D: Deserializer<'de>>(field: D) -> Result<Option<String>, D::Error> {
    match Value::deserialize(field)? {
        Value::String(id) => Ok(Some(id)),
        _ => Err(serde::de::Error::custom("`session` is not text")),
    }
}

fn inject_by_default() -> bool {
    true
}

fn default_budget() -> usize {
    DEFAULT_BUDGET
}

fn default_reinject_budget() -> usize {
    MAX_INJECTED_BYTES
}

#[cfg(test)]
mod tests {
    use super::{BadLine, CallRequest, RequestLine, parse_request};
    use serde_json::{Value, json};

    fn parse(line: &Value) -> Result<RequestLine, BadLine> {
        parse_request(Ok(line.to_string()))
    }

    fn error_of(line: &Value) -> String {
        let Err(bad) = parse(line) else {
            panic!("{line} is a request")
        };
        assert_eq!(bad.id, 7, "{line}");
        bad.error.message
    }

    #[test]
    fn each_error_names_the_field() {
        for (line, message) in [
            (json!({"id": 7}), "`method` is missing or not text"),
            (
                json!({"id": 7, "method": 1}),
                "`method` is missing or not text",
            ),
            (
                json!({"id": 7, "method": "none"}),
                "unknown method `none`, expected one of `hello`, `start`, ",
            ),
            (
                json!({"id": 7, "method": "tools", "more": 1}),
                "unknown field `more`",
            ),
            (json!({"id": 7, "method": "call"}), "missing field `tool`"),
            (
                json!({"id": 7, "method": "instructions", "budge": 1}),
                "unknown field `budge`, expected `budget`",
            ),
            (
                json!({"id": 7, "method": "instructions", "budget": -1}),
                "invalid value: integer `-1`, expected usize",
            ),
            (
                json!({"id": 7, "method": "inject", "text": "a", "until": []}),
                "unknown field `until`, expected one of `text`, ",
            ),
            (
                json!({"id": 7, "method": "tools", "session": 1}),
                "`session` is not text",
            ),
        ] {
            let error = error_of(&line);
            assert!(error.starts_with(message), "{line}: {error}");
        }
    }

    #[test]
    fn a_request_has_its_fields_and_defaults() {
        let line = json!({"id": [1], "method": "instructions", "session": "s"});
        let Ok(line) = parse(&line) else {
            panic!("a request")
        };
        assert_eq!((line.id, line.session.as_deref()), (json!([1]), Some("s")));
        assert!(matches!(
            line.request,
            CallRequest::Instructions {
                budget: 8000,
                known: None
            }
        ));

        let line = json!({"method": "tool_result", "call": 1, "result": null});
        let Ok(RequestLine {
            request: CallRequest::ToolResult(given),
            ..
        }) = parse(&line)
        else {
            panic!("a result")
        };
        let outcome = given.outcome();
        assert!(matches!(outcome, Ok(Ok(Value::Null))));
    }
}
