//! Requests of `caproot call`: one JSON object in, one JSON object out.

use super::lines::InputLine;
use super::manager::ManagedThread;
use super::tools::{ToolCallbacks, ToolOutcome};
use caproot_client::session::{
    DEFAULT_BUDGET, ExecutorChanges, ForkScope, Session, SessionOptions, SkillSource,
    ToolFunctionError, UserPrompt,
};
use caproot_client::{ChangesSince, Fleet};
use caproot_core::sync::Mutex;
use caproot_core::text::quote_value;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, MutexGuard};
use tokio::sync::watch;

/// Maximum number of open sessions next to the first session.
const MAX_SESSIONS: usize = 256;

/// Sessions of the process, and what they share.
pub struct CallServer {
    pub fleet: Fleet,
    pub options: SessionOptions,
    pub sources: Vec<Arc<dyn SkillSource>>,
    pub first: Arc<Session>,
    pub callbacks: Arc<ToolCallbacks>,
    pub manager: Option<ManagedThread>,
    pub stdin_ended: watch::Sender<bool>,
    /// Forks and restored sessions by their ids.
    pub others: Mutex<BTreeMap<String, Arc<Session>>>,
}

/// Error of a request.
pub struct RequestError {
    code: &'static str,
    message: String,
}

/// Result of a request.
enum RequestOutcome {
    Value(Value),
    /// JSON that is written as it is.
    Json(String),
    /// JSON of a tool's result: the limit of the result counts exactly these bytes.
    Tool {
        success: bool,
        external_context: bool,
        json: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoParams {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallParams {
    tool: String,
    #[serde(default)]
    arguments: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InstructionsParams {
    #[serde(default)]
    budget: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolResultParams {
    call: u64,
    #[serde(default, deserialize_with = "present_value")]
    result: Option<Value>,
    /// Reason of a failure, for the model.
    #[serde(default)]
    error: Option<String>,
    /// Description of a bug, for the log.
    #[serde(default)]
    bug: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RestoreParams {
    saved: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ForkParams {
    #[serde(default)]
    roots: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct SendParams {
    #[serde(flatten)]
    prompt: Map<String, Value>,
    #[serde(default = "inject_by_default")]
    inject: bool,
    #[serde(default)]
    until: Vec<String>,
}

/// Reads a value that may be `null`.
fn present_value<'de, D: Deserializer<'de>>(field: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(field).map(Some)
}

fn inject_by_default() -> bool {
    true
}

impl RequestError {
    /// Returns the error of a valid request that failed.
    pub fn failed(error: &dyn fmt::Display) -> Self {
        Self {
            code: "FAILED",
            message: error.to_string(),
        }
    }

    fn invalid(message: impl Into<String>) -> Self {
        Self {
            code: "BAD_REQUEST",
            message: message.into(),
        }
    }

    fn to_line(&self, id: &Value) -> String {
        let error = json!({ "code": self.code, "message": self.message });
        json!({ "id": id, "error": error }).to_string()
    }
}

impl CallServer {
    fn others(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Session>>> {
        self.others.lock()
    }

    /// Ends everything that waits for a line of stdin.
    pub fn end_input(&self) {
        self.stdin_ended.send_replace(true);
        self.callbacks.close();
    }

    /// Answers one request line with one response line. If too many requests are in flight, only
    /// the result of a tool is accepted.
    pub async fn answer_line(&self, line: InputLine, is_overloaded: bool) -> String {
        let (id, outcome) = match parse_line(line) {
            Err(error) => (Value::Null, Err(error)),
            Ok(mut request) => {
                let id = request.remove("id").unwrap_or_default();
                (id, self.answer_request(request, is_overloaded).await)
            }
        };
        match outcome {
            Err(error) => error.to_line(&id),
            Ok(RequestOutcome::Value(result)) => json!({ "id": id, "result": result }).to_string(),
            Ok(RequestOutcome::Json(json)) => format!("{{\"id\":{id},\"result\":{json}}}"),
            Ok(RequestOutcome::Tool {
                success,
                external_context,
                json,
            }) => format!(
                "{{\"id\":{id},\"success\":{success},\"externalContext\":{external_context},\"result\":{json}}}"
            ),
        }
    }

    async fn answer_request(
        &self,
        mut request: Map<String, Value>,
        is_overloaded: bool,
    ) -> Result<RequestOutcome, RequestError> {
        let method = request.remove("method");
        let Some(method) = method.as_ref().and_then(Value::as_str) else {
            return Err(RequestError::invalid("`method` is missing or not text"));
        };
        let session = self.session_of(request.remove("session"));
        let params = Value::Object(request);
        if is_overloaded && method != "tool_result" {
            let message = "256 requests are in flight; answer the calls of your tools first";
            return Err(RequestError {
                code: "OVERLOADED",
                message: message.to_owned(),
            });
        }
        let value = match method {
            "tools" => {
                let NoParams {} = parse_params(params)?;
                session?.dynamic_tools()
            }
            "state" => {
                let NoParams {} = parse_params(params)?;
                json!(session?.executors())
            }
            "plugins" => {
                let NoParams {} = parse_params(params)?;
                json!(session?.plugins())
            }
            "metrics" => {
                let NoParams {} = parse_params(params)?;
                json!(session?.metrics())
            }
            "instructions" => {
                let InstructionsParams { budget } = parse_params(params)?;
                json!(session?.instruction_text(budget.unwrap_or(DEFAULT_BUDGET)))
            }
            "inject" => {
                let prompt: UserPrompt = parse_params(params)?;
                json!(session?.inject(&prompt).await)
            }
            "call" => {
                let CallParams { tool, arguments } = parse_params(params)?;
                let result = session?.call(&tool, &arguments).await;
                return Ok(RequestOutcome::Tool {
                    success: result.success,
                    external_context: result.external_context,
                    json: result.json,
                });
            }
            "tool_result" => {
                let (call, outcome) = tool_outcome(parse_params(params)?)?;
                json!({ "accepted": self.callbacks.answer(call, outcome) })
            }
            "save" => {
                let NoParams {} = parse_params(params)?;
                let saved = session?
                    .save()
                    .map_err(|error| RequestError::failed(&error))?;
                return Ok(RequestOutcome::Json(saved));
            }
            "changes" => {
                let NoParams {} = parse_params(params)?;
                changes_json(&session?.changes_since_save())
            }
            "restore" => self.restore(parse_params(params)?).await?,
            "fork" => self.fork(&*session?, &parse_params(params)?)?,
            "close" => {
                let NoParams {} = parse_params(params)?;
                let session = session?;
                // The process has no store, so there is no saved state to delete.
                let _ = session.close(false).await;
                self.others().remove(session.id());
                json!({ "session": session.id() })
            }
            "drain" => {
                let NoParams {} = parse_params(params)?;
                self.manager()?.drain().await?
            }
            "listen" => {
                let NoParams {} = parse_params(params)?;
                self.manager()?.listen(self.stdin_ended.subscribe()).await?
            }
            "send" => {
                let SendParams {
                    prompt,
                    inject,
                    until,
                } = parse_params(params)?;
                let prompt = parse_params(Value::Object(prompt))?;
                self.manager()?.send(prompt, inject, until).await?
            }
            other => {
                let message = format!(
                    "unknown method {}; see caproot help call",
                    quote_value(other)
                );
                return Err(RequestError::invalid(message));
            }
        };
        Ok(RequestOutcome::Value(value))
    }

    /// Returns the session that a request names, or the first session.
    fn session_of(&self, id: Option<Value>) -> Result<Arc<Session>, RequestError> {
        match id {
            None => Ok(self.first.clone()),
            Some(Value::String(id)) if id == self.first.id() => Ok(self.first.clone()),
            Some(Value::String(id)) => self.others().get(&id).cloned().ok_or_else(|| {
                let shown = quote_value(&id);
                RequestError::invalid(format!("there is no session {shown}; fork or restore one"))
            }),
            Some(_) => Err(RequestError::invalid("`session` is not text")),
        }
    }

    fn manager(&self) -> Result<&ManagedThread, RequestError> {
        let missing = || RequestError::invalid("there is no manager; start with --manager");
        self.manager.as_ref().ok_or_else(missing)
    }

    async fn restore(&self, params: RestoreParams) -> Result<Value, RequestError> {
        let saved = params.saved.to_string();
        let sources = self.sources.clone();
        let restored = Session::restore_with(&self.fleet, &saved, sources, &self.options).await;
        let restored = restored.map_err(|error| RequestError::failed(&error))?;
        let changes = changes_json(&restored.changes_since_save);
        let id = self.add_session(restored.session)?;
        Ok(json!({ "session": id, "changes": changes, "warnings": restored.warnings }))
    }

    fn fork(&self, session: &Session, params: &ForkParams) -> Result<Value, RequestError> {
        let roots: Option<Vec<&str>> = params
            .roots
            .as_ref()
            .map(|roots| roots.iter().map(String::as_str).collect());
        let scope = roots.as_deref().map_or(ForkScope::All, ForkScope::Only);
        let fork = session
            .fork(scope)
            .map_err(|error| RequestError::failed(&error))?;
        Ok(json!({ "session": self.add_session(fork)? }))
    }

    fn add_session(&self, session: Session) -> Result<String, RequestError> {
        let id = session.id().to_owned();
        let mut others = self.others();
        if id == self.first.id() || others.contains_key(&id) {
            return Err(RequestError::failed(&format!(
                "the session {id:?} is open; close it first"
            )));
        }
        if others.len() >= MAX_SESSIONS {
            let message = format!("there are {MAX_SESSIONS} sessions already; close one first");
            return Err(RequestError::failed(&message));
        }
        others.insert(id.clone(), Arc::new(session));
        Ok(id)
    }
}

fn parse_line(line: InputLine) -> Result<Map<String, Value>, RequestError> {
    match line {
        InputLine::Text(text) => serde_json::from_str(&text).map_err(|error| {
            RequestError::invalid(format!("the line is not a JSON object: {error}"))
        }),
        InputLine::TooLong => Err(RequestError::invalid("the line is over 5 MiB")),
        InputLine::NotUtf8 => Err(RequestError::invalid("the line is not UTF-8")),
    }
}

fn parse_params<T: DeserializeOwned>(params: Value) -> Result<T, RequestError> {
    serde_json::from_value(params).map_err(|error| RequestError::invalid(error.to_string()))
}

/// Returns the call and its outcome. Exactly one of the three fields must be set.
fn tool_outcome(params: ToolResultParams) -> Result<(u64, ToolOutcome), RequestError> {
    let outcome = match params {
        ToolResultParams {
            result: Some(result),
            error: None,
            bug: None,
            ..
        } => Ok(result),
        ToolResultParams {
            result: None,
            error: Some(error),
            bug: None,
            ..
        } => Err(ToolFunctionError::Failed(error)),
        ToolResultParams {
            result: None,
            error: None,
            bug: Some(bug),
            ..
        } => Err(ToolFunctionError::Internal(bug)),
        _ => {
            return Err(RequestError::invalid(
                "expected one of `result`, `error` and `bug`",
            ));
        }
    };
    Ok((params.call, outcome))
}

/// Returns the changes of each executor since the save.
fn changes_json(changes: &[ExecutorChanges]) -> Value {
    let change = |executor: &ExecutorChanges| {
        let changes = match executor.changes.as_deref() {
            None => json!({ "state": "waiting" }),
            Some(ChangesSince::Known {
                upserted, removed, ..
            }) => {
                json!({ "state": "known", "upserted": upserted, "removed": removed })
            }
            Some(ChangesSince::Unknown { reason, roots }) => {
                json!({ "state": "unknown", "reason": reason, "roots": roots })
            }
        };
        json!({
            "environmentId": executor.environment_id,
            "changes": changes,
            "changedAgain": executor.changed_again,
        })
    };
    changes.iter().map(change).collect()
}
