//! Session of a Python program.

use crate::dispatch::Dispatcher;
use crate::failure::Failure;
use crate::mailbox::{MailboxShared, Outcome};
use crate::origin::CallOrigin;
use crate::process_bound::ProcessBound;
use crate::reply::{Reply, to_object};
use crate::results::{Skill, ToolResult};
use crate::selection::ChoiceSpec;
use caproot_client::session::{
    self, ForkScope, PluginWatch, SessionWatch, SkillAuthority, ToolNames, UsageWatch, UserPrompt,
};
use pyo3::prelude::*;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

/// Session, and the mailbox of its event loop.
#[derive(Debug, Clone)]
pub struct SessionState {
    session: Arc<session::Session>,
    mailbox: Arc<MailboxShared>,
    names: ToolNames,
    /// Sentences about executors and saved parts that the session starts without.
    warnings: Vec<String>,
    /// Cancelled when the session is closed.
    closed: CancellationToken,
}

/// Session of a Python program.
#[pyclass(frozen)]
pub struct Session {
    state: ProcessBound<SessionState>,
}

/// Watch for changes of the sources.
#[pyclass(frozen)]
pub struct ChangeWatch {
    inner: ProcessBound<WatchState<SessionWatch>>,
}

/// Watch for changes of the plugins.
#[pyclass(frozen)]
pub struct PluginChangeWatch {
    inner: ProcessBound<WatchState<PluginWatch>>,
}

/// Watch for uses of skills.
#[pyclass(frozen)]
pub struct UsageEventWatch {
    inner: ProcessBound<WatchState<UsageWatch>>,
}

/// Watch of one session.
#[derive(Debug)]
struct WatchState<T> {
    watch: Arc<Mutex<T>>,
    mailbox: Arc<MailboxShared>,
    closed: CancellationToken,
}

impl SessionState {
    /// Returns the state of a started session.
    pub fn new(
        session: session::Session,
        mailbox: Arc<MailboxShared>,
        names: ToolNames,
        warnings: Vec<String>,
    ) -> Self {
        Self {
            session: Arc::new(session),
            mailbox,
            names,
            warnings,
            closed: CancellationToken::new(),
        }
    }

    /// Returns the session, or the error of a closed session.
    fn open_session(&self) -> Result<&session::Session, Failure> {
        if self.session.is_closed() {
            Err(Failure::closed())
        } else {
            Ok(&self.session)
        }
    }

    /// Returns all listed skills.
    fn list_skills(&self) -> Outcome {
        let listed = self.session.listed_skills();
        let skills = listed.map_err(|error| Failure::from_tool_error(&error))?;
        Ok(Reply::Skills(skills.into_iter().map(Skill::from).collect()))
    }

    /// Returns a whole file.
    async fn read_file(
        &self,
        skill: &str,
        authority: Option<&SkillAuthority>,
        path: &str,
    ) -> Outcome {
        let text = self.session.read_file(skill, authority, path).await;
        let text = text.map_err(|error| Failure::from_tool_error(&error))?;
        Ok(Reply::Text(Some(text)))
    }

    /// Starts an operation with a copy of the state.
    fn operate<'py, F, W>(
        &self,
        py: Python<'py>,
        operation: u64,
        work: F,
    ) -> PyResult<Option<Bound<'py, PyAny>>>
    where
        F: FnOnce(Self) -> W,
        W: Future<Output = Outcome> + Send + 'static,
    {
        to_object(py, self.mailbox.operate(operation, work(self.clone())))
    }
}

impl Session {
    /// Returns the Python object of a session.
    pub fn new(state: SessionState) -> Self {
        Self {
            state: ProcessBound::new(state),
        }
    }
}

#[pymethods]
impl Session {
    #[getter]
    fn id(&self) -> PyResult<String> {
        Ok(self.state.get()?.session.id().to_owned())
    }

    #[getter]
    fn is_closed(&self) -> PyResult<bool> {
        Ok(self.state.get()?.session.is_closed())
    }

    #[getter]
    fn warnings(&self) -> PyResult<Vec<String>> {
        Ok(self.state.get()?.warnings.clone())
    }

    /// Returns the tools as a JSON text.
    fn tools(&self) -> PyResult<String> {
        Ok(self.state.get()?.session.dynamic_tools().to_string())
    }

    /// Returns the instruction text with its counts, or the notice since a text, as a JSON text.
    fn instruction_text(&self, budget: usize, known: Option<&str>) -> PyResult<String> {
        let state = self.state.get()?;
        to_json(&state.open_session()?.instruction_update(known, budget))
    }

    /// Returns the instruction text of the usual budget.
    fn text(&self) -> PyResult<String> {
        let text = self
            .state
            .get()?
            .open_session()?
            .instruction_text(session::DEFAULT_BUDGET);
        Ok(text.text)
    }

    /// Returns the state of the executors as a JSON text.
    fn executors(&self) -> PyResult<String> {
        to_json(&self.state.get()?.session.executors())
    }

    /// Returns the counters as a JSON text.
    fn metrics(&self) -> PyResult<String> {
        to_json(&self.state.get()?.session.metrics())
    }

    /// Returns the plugins as a JSON text.
    fn plugins(&self) -> PyResult<String> {
        to_json(&self.state.get()?.open_session()?.plugins())
    }

    /// Returns the MCP servers of plugins as a JSON text.
    fn plugin_servers(&self) -> PyResult<String> {
        to_json(&self.state.get()?.open_session()?.mcp_servers())
    }

    /// Returns the saved session, a JSON text.
    fn save(&self) -> PyResult<String> {
        let saved = self.state.get()?.session.save();
        Ok(saved.map_err(Failure::from)?)
    }

    /// Returns the changes since the save as a JSON text.
    fn changes_since_save(&self) -> PyResult<String> {
        let changes = self.state.get()?.session.changes_since_save();
        let changes: Vec<_> = changes
            .iter()
            .map(|executor| {
                json!({
                    "environmentId": executor.environment_id,
                    "changes": executor.changes.as_deref(),
                    "changedAgain": executor.changed_again,
                })
            })
            .collect();
        to_json(&changes)
    }

    /// Returns a fork with all roots, or with the roots of these ids, and with the rules of a JSON text.
    fn fork(&self, roots: Option<Vec<String>>, rules: &str) -> PyResult<Self> {
        let state = self.state.get()?;
        let rules: ChoiceSpec = serde_json::from_str(rules).map_err(Failure::from)?;
        let mut mistakes = Vec::new();
        let choice = rules.parse(&mut mistakes);
        if !mistakes.is_empty() {
            return Err(Failure::config(mistakes).into());
        }

        let ids: Option<Vec<&str>> = roots
            .as_ref()
            .map(|roots| roots.iter().map(String::as_str).collect());
        let scope = ids
            .as_ref()
            .map_or(ForkScope::All, |ids| ForkScope::Only(ids));
        let fork = state.session.fork(scope).map_err(Failure::from)?;
        let fork = fork.with_narrower_choice(&choice).map_err(Failure::from)?;
        Ok(Self::new(SessionState::new(
            fork,
            state.mailbox.clone(),
            state.names,
            Vec::new(),
        )))
    }

    /// Calls a tool with arguments as a JSON text. A text that is not JSON is an invalid argument.
    fn call<'py>(
        &self,
        py: Python<'py>,
        operation: u64,
        context: u64,
        name: String,
        arguments: &str,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let state = self.state.get()?;
        let arguments: Value =
            serde_json::from_str(arguments).unwrap_or_else(|_| Value::String(arguments.to_owned()));
        // Without own tools, no tool needs the origin.
        let span = (context != 0).then(|| {
            let mailbox = state.mailbox.clone();
            CallOrigin { mailbox, context }.to_span()
        });

        state.operate(py, operation, |state| async move {
            let call = state.session.call(&name, &arguments);
            let result = match span {
                Some(span) => call.instrument(span).await,
                None => call.await,
            };
            Ok(Reply::Result(ToolResult::from(result)))
        })
    }

    /// Returns all listed skills.
    fn list<'py>(&self, py: Python<'py>, operation: u64) -> PyResult<Option<Bound<'py, PyAny>>> {
        let state = self.state.get()?;
        state.operate(py, operation, |state| async move { state.list_skills() })
    }

    /// Returns a whole file.
    fn read<'py>(
        &self,
        py: Python<'py>,
        operation: u64,
        authority: Option<(String, String)>,
        skill: String,
        path: String,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let authority = authority.map(|(kind, id)| SkillAuthority { kind, id });

        let state = self.state.get()?;
        state.operate(py, operation, |state| async move {
            state.read_file(&skill, authority.as_ref(), &path).await
        })
    }

    /// Returns the skills that a prompt mentions, as a JSON text.
    fn inject<'py>(
        &self,
        py: Python<'py>,
        operation: u64,
        prompt: &str,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let state = self.state.get()?;
        state.open_session()?;
        let prompt: UserPrompt = serde_json::from_str(prompt)
            .map_err(|error| Failure::value(format!("invalid prompt: {error}")))?;
        state.operate(py, operation, |state| async move {
            let injected = state.session.inject(&prompt).await;
            json_reply(&injected)
        })
    }

    /// Returns the files of skills that the model read or was given, as a JSON text.
    fn used_skills<'py>(
        &self,
        py: Python<'py>,
        operation: u64,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let state = self.state.get()?;
        state.open_session()?;
        state.operate(py, operation, |state| async move {
            json_reply(&state.session.used_skills().await)
        })
    }

    /// Returns the fragments of these files, as a JSON text.
    fn reinject<'py>(
        &self,
        py: Python<'py>,
        operation: u64,
        budget: usize,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let state = self.state.get()?;
        state.open_session()?;
        state.operate(py, operation, move |state| async move {
            json_reply(&state.session.reinject(budget).await)
        })
    }

    /// Saves the session in its store.
    fn persist<'py>(&self, py: Python<'py>, operation: u64) -> PyResult<Option<Bound<'py, PyAny>>> {
        let state = self.state.get()?;
        state.operate(py, operation, |state| async move {
            state.session.persist().await?;
            Ok(Reply::Done)
        })
    }

    /// Closes the session, and deletes its saved state if `delete` is set.
    fn close<'py>(
        &self,
        py: Python<'py>,
        operation: u64,
        delete: bool,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let state = self.state.get()?;
        state.operate(py, operation, |state| async move {
            state.closed.cancel();
            let outcome = state.session.close(delete).await;
            match outcome.error {
                Some(error) => Err(error.into()),
                None => Ok(Reply::Done),
            }
        })
    }

    /// Returns the dispatcher of a thread, whose platform is the handler with this number.
    fn dispatcher(&self, thread_id: &str, handler: u64, limits: &str) -> PyResult<Dispatcher> {
        let state = self.state.get()?;
        state.open_session()?;
        let session = state.session.clone();
        let mailbox = state.mailbox.clone();
        Ok(Dispatcher::new(
            session, mailbox, thread_id, handler, limits,
        )?)
    }

    /// Returns a watch for changes from now on.
    fn watch(&self) -> PyResult<ChangeWatch> {
        let state = self.state.get()?;
        let watch = state.open_session()?.watch();
        Ok(ChangeWatch {
            inner: ProcessBound::new(WatchState::new(state, watch)),
        })
    }

    /// Returns a watch for changes of the plugins from now on.
    fn watch_plugins(&self) -> PyResult<PluginChangeWatch> {
        let state = self.state.get()?;
        let watch = state.open_session()?.watch_plugins();
        Ok(PluginChangeWatch {
            inner: ProcessBound::new(WatchState::new(state, watch)),
        })
    }

    /// Returns a watch for uses of skills from now on.
    fn watch_usage(&self) -> PyResult<UsageEventWatch> {
        let state = self.state.get()?;
        let watch = state.open_session()?.watch_usage();
        Ok(UsageEventWatch {
            inner: ProcessBound::new(WatchState::new(state, watch)),
        })
    }
}

#[pymethods]
impl ChangeWatch {
    /// Waits for the next change, and returns its source as a JSON text; `False` at the end.
    fn next<'py>(&self, py: Python<'py>, operation: u64) -> PyResult<Option<Bound<'py, PyAny>>> {
        let state = self.inner.get()?;
        let watch = state.watch.clone();
        let closed = state.closed.clone();
        let next = state.mailbox.operate(operation, async move {
            let next = async {
                let changed = watch.lock().await.next().await;
                json_reply(&json!({ "kind": changed.kind.name(), "id": changed.id }))
            };
            closed
                .run_until_cancelled(next)
                .await
                .unwrap_or(Ok(Reply::Text(None)))
        });
        to_object(py, next)
    }
}

#[pymethods]
impl PluginChangeWatch {
    /// Waits for the next changes, and returns them as a JSON text; `False` at the end.
    fn next<'py>(&self, py: Python<'py>, operation: u64) -> PyResult<Option<Bound<'py, PyAny>>> {
        let state = self.inner.get()?;
        let watch = state.watch.clone();
        let closed = state.closed.clone();
        let next = state.mailbox.operate(operation, async move {
            let next = async {
                let changes = watch.lock().await.next().await;
                json_reply(&changes)
            };
            closed
                .run_until_cancelled(next)
                .await
                .unwrap_or(Ok(Reply::Text(None)))
        });
        to_object(py, next)
    }
}

#[pymethods]
impl UsageEventWatch {
    /// Waits for the next use, and returns it as a JSON text; `False` at the end.
    fn next<'py>(&self, py: Python<'py>, operation: u64) -> PyResult<Option<Bound<'py, PyAny>>> {
        let state = self.inner.get()?;
        let watch = state.watch.clone();
        let next = state.mailbox.operate(operation, async move {
            // The watch ends with its session.
            match watch.lock().await.next().await {
                Some(event) => json_reply(&event),
                None => Ok(Reply::Text(None)),
            }
        });
        to_object(py, next)
    }
}

impl<T> WatchState<T> {
    fn new(state: &SessionState, watch: T) -> Self {
        Self {
            watch: Arc::new(Mutex::new(watch)),
            mailbox: state.mailbox.clone(),
            closed: state.closed.clone(),
        }
    }
}

fn to_json(value: &impl Serialize) -> PyResult<String> {
    Ok(serde_json::to_string(value).map_err(Failure::from)?)
}

fn json_reply(value: &impl Serialize) -> Outcome {
    Ok(Reply::Text(Some(serde_json::to_string(value)?)))
}
