//! Sessions of `caproot call`, and the methods of their requests.

use super::answer::{RequestAnswer, RequestError, SavedChanges};
use super::lines::InputLine;
use super::manager::ManagedThread;
use super::request::{BadLine, CallRequest, ForkRequest, RequestLine, parse_request};
use super::tools::ToolCallbacks;
use caproot_client::Fleet;
use caproot_client::session::{ForkScope, Session, SessionOptions, SkillSource};
use caproot_core::sync::Mutex;
use caproot_core::text::quote_value;
use serde_json::Value;
use std::collections::BTreeMap;
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
    pub async fn answer_line(
        &self,
        line: InputLine,
        is_overloaded: bool,
    ) -> serde_json::Result<String> {
        let request = match parse_request(line) {
            Ok(request) => request,
            Err(BadLine { id, error }) => return RequestAnswer::Error(error).to_line(&id),
        };
        let RequestLine {
            id,
            session,
            request,
        } = request;
        if is_overloaded && !matches!(request, CallRequest::ToolResult(_)) {
            return RequestAnswer::Error(RequestError::overloaded()).to_line(&id);
        }

        let answered = self.answer_request(session.as_deref(), request).await;
        answered.unwrap_or_else(RequestAnswer::Error).to_line(&id)
    }

    /// Answers a request. `id` is the session of the request; without an id, the first session is meant.
    async fn answer_request(
        &self,
        id: Option<&str>,
        request: CallRequest,
    ) -> Result<RequestAnswer, RequestError> {
        Ok(match request {
            CallRequest::Tools {} => RequestAnswer::Tools(self.find_session(id)?.dynamic_tools()),
            CallRequest::Call { tool, arguments } => {
                let session = self.find_session(id)?;
                RequestAnswer::Call(session.call(&tool, &arguments).await)
            }
            CallRequest::Instructions { budget } => {
                RequestAnswer::Instructions(self.find_session(id)?.instruction_text(budget))
            }
            CallRequest::Inject(prompt) => {
                RequestAnswer::Inject(self.find_session(id)?.inject(&prompt).await)
            }
            CallRequest::State {} => RequestAnswer::State(self.find_session(id)?.executors()),
            CallRequest::Metrics {} => {
                RequestAnswer::Metrics(Box::new(self.find_session(id)?.metrics()))
            }
            CallRequest::Plugins {} => RequestAnswer::Plugins(self.find_session(id)?.plugins()),
            CallRequest::ToolResult(given) => {
                let call = given.call;
                let accepted = self.callbacks.answer(call, given.outcome()?);
                RequestAnswer::ToolResult { accepted }
            }

            CallRequest::Save {} => {
                let saved = self.find_session(id)?.save();
                RequestAnswer::Save(saved.map_err(|error| RequestError::failed(&error))?)
            }
            CallRequest::Restore { saved } => self.restore(&saved).await?,
            CallRequest::Changes {} => {
                let changes = self.find_session(id)?.changes_since_save();
                RequestAnswer::Changes(changes.iter().map(SavedChanges::from).collect())
            }
            CallRequest::Fork(request) => {
                let session = self.find_session(id)?;
                self.fork(&session, &request)?
            }
            CallRequest::Close {} => {
                let session = self.find_session(id)?;
                self.close(&session).await
            }

            CallRequest::Drain {} => RequestAnswer::Drain(self.manager()?.drain().await?),
            CallRequest::Listen {} => {
                let stdin_ended = self.stdin_ended.subscribe();
                self.manager()?.listen(stdin_ended).await?
            }
            CallRequest::Send(given) => self.manager()?.send(given).await?,
        })
    }

    /// Returns the session with an id, or the first session.
    fn find_session(&self, id: Option<&str>) -> Result<Arc<Session>, RequestError> {
        let Some(id) = id.filter(|id| *id != self.first.id()) else {
            return Ok(self.first.clone());
        };
        self.others().get(id).cloned().ok_or_else(|| {
            let shown = quote_value(id);
            RequestError::invalid(format!("there is no session {shown}; fork or restore one"))
        })
    }

    fn manager(&self) -> Result<&ManagedThread, RequestError> {
        self.manager
            .as_ref()
            .ok_or_else(|| RequestError::invalid("there is no manager; start with --manager"))
    }

    async fn restore(&self, saved: &Value) -> Result<RequestAnswer, RequestError> {
        let text = saved.to_string();
        let sources = self.sources.clone();
        let restored = Session::restore_with(&self.fleet, &text, sources, &self.options)
            .await
            .map_err(|error| RequestError::failed(&error))?;

        let changes = restored.changes_since_save.iter();
        Ok(RequestAnswer::Restore {
            session: self.add_session(restored.session)?,
            changes: changes.map(SavedChanges::from).collect(),
            warnings: restored.warnings,
        })
    }

    fn fork(
        &self,
        session: &Session,
        request: &ForkRequest,
    ) -> Result<RequestAnswer, RequestError> {
        let roots: Option<Vec<&str>> = request
            .roots
            .as_ref()
            .map(|roots| roots.iter().map(String::as_str).collect());
        let scope = roots.as_deref().map_or(ForkScope::All, ForkScope::Only);

        let fork = session
            .fork(scope)
            .map_err(|error| RequestError::failed(&error))?
            .with_narrower_choice(&request.choice())
            .map_err(|error| RequestError::failed(&error))?;

        Ok(RequestAnswer::Session {
            session: self.add_session(fork)?,
        })
    }

    async fn close(&self, session: &Session) -> RequestAnswer {
        // The process has no store, so there is no saved state to delete.
        let _ = session.close(false).await;
        self.others().remove(session.id());

        RequestAnswer::Session {
            session: session.id().to_owned(),
        }
    }

    fn add_session(&self, session: Session) -> Result<String, RequestError> {
        let id = session.id().to_owned();
        let mut others = self.others();
        if id == self.first.id() || others.contains_key(&id) {
            let message = format!("the session {id:?} is open; close it first");
            return Err(RequestError::failed(&message));
        }
        if others.len() >= MAX_SESSIONS {
            let message = format!("there are {MAX_SESSIONS} sessions already; close one first");
            return Err(RequestError::failed(&message));
        }

        others.insert(id.clone(), Arc::new(session));
        Ok(id)
    }
}
