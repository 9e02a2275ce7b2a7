//! Sessions of `caproot call`, and the methods of their requests.

use super::answer::{
    AcceptedResult, AnswerFields, CancelledRequests, FileText, ProgramState, RequestError,
    SavedChanges, SessionId, StartedSession, WatchedText, result_field, tool_result_fields,
};
use super::dispatchers::ProgramDispatchers;
use super::executors::SessionExecutors;
use super::in_flight::RequestsInFlight;
use super::lines::{InputLine, MAX_LINE_BYTES};
use super::manager::ManagedThread;
use super::own_sources::{ProgramFleet, ProgramFleets, SourcesRequest};
use super::request::{BadLine, CallRequest, FileRequest, ForkRequest, RequestLine, parse_request};
use super::session_request::SessionRequest;
use super::tools::{SessionTools, ToolCallbacks, register_tools};
use super::usage_file::UsageFile;
use super::watched::{SessionEvents, WatchedSession, usage_events};
use crate::cli::agents::session_args::{SessionRoots, SharedSources};
use caproot_client::{Fleet, parse_selected_roots};
use caproot_core::proto::caproot::v1::SelectedCapabilityRoot;
use caproot_core::sync::Mutex;
use caproot_core::text::quote_value;
use caproot_session::{
    ChoiceRule, ForkScope, Session, SessionOptions, SkillChoice, SkillSource, ToolCaller,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

/// Maximum number of requests that are processed at once.
pub const MAX_IN_FLIGHT: usize = 256;
/// Maximum number of whole files that are read at once. Each has up to 16 MiB in memory until its answer
/// is written.
pub const MAX_FILES: usize = 8;
/// Maximum number of open sessions next to the first session.
const MAX_SESSIONS: usize = 1024;

/// Sessions of the process, and what they share.
pub struct CallServer<'a> {
    /// Missing with `--no-session`.
    pub executors: Option<SessionExecutors<'a>>,
    pub options: SessionOptions,
    /// Tools of `--tools`.
    pub tools: SessionTools,
    pub sources: SharedSources,
    /// Missing with `--no-session`.
    pub first: Option<OpenSession>,
    pub callbacks: Arc<ToolCallbacks>,
    pub manager: Option<ManagedThread>,
    pub dispatchers: ProgramDispatchers,
    pub stdin_ended: watch::Sender<bool>,
    /// Sessions whose changes are events from now on.
    pub watched: UnboundedSender<SessionEvents>,
    pub in_flight: RequestsInFlight,
    /// Permits of requests that are processed.
    pub permits: Semaphore,
    /// Permits of whole files that are read.
    pub file_permits: Semaphore,
    /// Started, forked and restored sessions by their ids.
    pub others: Mutex<BTreeMap<String, OpenSession>>,
    /// Executors that requests named.
    pub fleets: ProgramFleets,
    /// File of `--usage`.
    pub usage_file: Option<UsageFile>,
}

/// Session until it is closed.
#[derive(Clone)]
pub struct OpenSession {
    pub session: Arc<Session>,
    /// Whether the session has the plugins of executors.
    pub has_plugins: bool,
    pub closed: CancellationToken,
    /// Executors that the request of the session named.
    fleet: Option<Arc<ProgramFleet>>,
}

/// Executors, roots and other sources of a new session.
struct SessionPlaces {
    fleet: Fleet,
    /// Entry of the fleet, if the request named the executors.
    shared: Option<Arc<ProgramFleet>>,
    selected: SessionRoots,
    sources: Vec<Arc<dyn SkillSource>>,
}

/// Roots of the request `start`.
struct GivenRoots {
    roots: Option<Value>,
    /// Whether the saved session has the roots.
    are_saved: bool,
}

/// Checked options of a new session.
struct CheckedOptions {
    options: SessionOptions,
    tools: SessionTools,
}

impl GivenRoots {
    /// Returns the roots, if the request has some.
    fn parse(&self) -> Result<Option<Vec<SelectedCapabilityRoot>>, RequestError> {
        let Some(roots) = &self.roots else {
            return Ok(None);
        };
        parse_selected_roots(&roots.to_string())
            .map(Some)
            .map_err(|error| RequestError::bad_option(&format!("roots: {error}")))
    }
}

impl OpenSession {
    /// Returns the state of a session that has started.
    pub fn new(session: Session, has_plugins: bool) -> Self {
        Self {
            session: Arc::new(session),
            has_plugins,
            closed: CancellationToken::new(),
            fleet: None,
        }
    }
}

impl CallServer<'_> {
    /// Closes all sessions, and writes the last uses of their skills.
    pub async fn finish(mut self) {
        let Some(file) = self.usage_file.take() else {
            return;
        };
        // The sessions are cloned, because the lock must not be held while one of them closes.
        let others: Vec<_> = self.others.lock().values().cloned().collect();
        for open in self.first.iter().chain(&others) {
            let _ = open.session.close(false).await;
        }
        file.finish().await;
    }

    /// Answers one request line with one response line. If too many requests are in flight, only
    /// urgent requests are accepted.
    pub async fn answer_line(
        &self,
        line: InputLine,
        is_overloaded: bool,
    ) -> serde_json::Result<String> {
        let (id, fields) = match parse_request(line) {
            Ok(RequestLine {
                id,
                session,
                request,
            }) => {
                let answered = self
                    .answer_in_turn(&id, session.as_deref(), request, is_overloaded)
                    .await;
                (id, answered.unwrap_or_else(|error| error.to_field()))
            }
            Err(BadLine { id, error }) => (id, error.to_field()),
        };
        Ok(format!("{{\"id\":{id},{}}}", fields?))
    }

    async fn answer_in_turn(
        &self,
        id: &Value,
        session: Option<&str>,
        request: CallRequest,
        is_overloaded: bool,
    ) -> Result<AnswerFields, RequestError> {
        // Urgent requests take no permit, because the requests that have one may wait for them.
        if request.is_urgent() {
            Box::pin(self.answer_request(session, request)).await
        } else if is_overloaded {
            let message = "256 requests are in flight; answer the calls of your tools first";
            Err(RequestError::new("OVERLOADED", message))
        } else if request.is_of_manager() {
            // A cancelled request would leave the calls of a manager half-done.
            self.answer_permitted(session, request).await
        } else {
            let in_flight = self.in_flight.add(id);
            // The events of own tools name the request.
            let caller = ToolCaller::new(&id.to_string());

            // The wait for a permit is inside, so that a waiting request can be cancelled, too.
            tokio::select! {
                biased;
                () = in_flight.cancelled.cancelled() => {
                    Err(RequestError::new("CANCELLED", "the request was cancelled"))
                }
                answered = caller.run(self.answer_permitted(session, request)) => answered,
            }
        }
    }

    /// Answers a request once fewer than the maximum number of requests are processed.
    async fn answer_permitted(
        &self,
        id: Option<&str>,
        request: CallRequest,
    ) -> Result<AnswerFields, RequestError> {
        let _permit = self.permits.acquire().await?;
        // In a box, because the future of a request is large, and that of a line is moved several times.
        Box::pin(self.answer_request(id, request)).await
    }

    /// Answers a request. `id` is the session of the request; without an id, the first session is meant.
    async fn answer_request(
        &self,
        id: Option<&str>,
        request: CallRequest,
    ) -> Result<AnswerFields, RequestError> {
        // A request without a session ignores the error.
        let open = self.find_open(id);
        Ok(match request {
            CallRequest::Hello {} => result_field(&ProgramState {
                version: env!("CARGO_PKG_VERSION"),
                session: self.first.as_ref().map(|open| open.session.id().to_owned()),
                max_in_flight: MAX_IN_FLIGHT,
                max_line_bytes: MAX_LINE_BYTES,
            }),
            CallRequest::Tools {} => result_field(&open?.session.flat_tools()),
            CallRequest::Call { tool, arguments } => {
                tool_result_fields(&open?.session.call(&tool, &arguments).await)
            }
            CallRequest::List {} => result_field(&open?.session.listed_skills()?),
            CallRequest::Read(FileRequest {
                skill,
                path,
                authority,
            }) => {
                let session = open?.session;
                let _permit = self.file_permits.acquire().await?;
                let text = session.read_file(&skill, authority.as_ref(), &path).await?;
                result_field(&FileText { text })
            }
            CallRequest::Instructions { budget, known } => {
                result_field(&open?.session.instruction_update(known.as_deref(), budget))
            }
            CallRequest::UsedSkills {} => result_field(&open?.session.used_skills().await),
            CallRequest::Reinject { budget } => result_field(&open?.session.reinject(budget).await),
            CallRequest::Watch { budget } => result_field(&self.watch(&open?, budget)),
            CallRequest::WatchUsage {} => result_field(&self.watch_usage(&open?)),
            CallRequest::Inject(prompt) => result_field(&open?.session.inject(&prompt).await),
            CallRequest::State {} => result_field(&open?.session.executors()),
            CallRequest::SourceStates {} => result_field(&open?.session.source_states()),
            CallRequest::Plugins {} => result_field(&open?.session.plugins()),
            CallRequest::PluginServers {} => result_field(&open?.session.mcp_servers()),
            CallRequest::RetryServers {} => {
                let session = open?.session;
                session.retry_servers().await;
                result_field(&session.mcp_servers())
            }
            CallRequest::ToolResult(given) => {
                let accepted = self.callbacks.answer(given.call, given.outcome()?);
                result_field(&AcceptedResult { accepted })
            }
            CallRequest::Cancel { request } => result_field(&CancelledRequests {
                cancelled: self.in_flight.cancel(&request),
            }),

            CallRequest::Start(request) => result_field(&self.start(*request).await?),
            // The saved session is JSON already.
            CallRequest::Save {} => Ok(format!("\"result\":{}", open?.session.save()?)),
            CallRequest::Restore { saved } => {
                let request = SessionRequest {
                    saved: Some(saved),
                    ..SessionRequest::default()
                };
                result_field(&self.start(request).await?)
            }
            CallRequest::Changes {} => {
                let changes = open?.session.changes_since_save();
                let changes = changes.iter().map(SavedChanges::from);
                result_field(&changes.collect::<Vec<_>>())
            }
            CallRequest::Fork(request) => result_field(&self.fork(&open?, &request)?),
            CallRequest::Close {} => result_field(&self.close(&open?).await),

            CallRequest::Dispatcher(request) => {
                result_field(&self.dispatchers.add(&open?, &request)?)
            }
            CallRequest::CloseDispatcher { dispatcher } => {
                result_field(&self.dispatchers.remove(dispatcher)?)
            }
            CallRequest::Dispatch(request) => {
                result_field(&self.dispatchers.dispatch(*request).await?)
            }
            CallRequest::RunTurn(request) => {
                result_field(&self.dispatchers.run_turn(request).await?)
            }

            CallRequest::Drain { dispatcher } => result_field(&match dispatcher {
                None => self.manager()?.drain().await?,
                Some(number) => self.dispatchers.drain(number).await?,
            }),
            CallRequest::Listen {} => {
                result_field(&self.manager()?.listen(self.stdin_ended.subscribe()).await?)
            }
            CallRequest::Send(given) => result_field(&self.manager()?.send(given).await?),
        })
    }

    /// Returns the session with an id, or the first session.
    fn find_open(&self, id: Option<&str>) -> Result<OpenSession, RequestError> {
        let first = self.first.as_ref();
        let named = first.filter(|open| id.is_none_or(|id| open.session.id() == id));
        if let Some(open) = named {
            return Ok(open.clone());
        }
        let Some(id) = id else {
            let message = "there is no first session; name a session that `start` returned";
            return Err(RequestError::invalid(message));
        };

        self.others.lock().get(id).cloned().ok_or_else(|| {
            let shown = quote_value(id);
            RequestError::invalid(format!(
                "there is no session {shown}; start, fork or restore one"
            ))
        })
    }

    fn manager(&self) -> Result<&ManagedThread, RequestError> {
        self.manager
            .as_ref()
            .ok_or_else(|| RequestError::invalid("there is no manager; start with --manager"))
    }

    /// Returns the text and the tools of a session, and prints its changes from now on.
    fn watch(&self, open: &OpenSession, budget: usize) -> WatchedText {
        // The watch starts before the texts are made, so that no change between them is lost.
        let mut watched = WatchedSession::new(open);
        let texts = watched.follow_texts(budget);
        // The receiver ends with the process.
        drop(self.watched.send(watched.into_events()));
        texts
    }

    /// Prints the uses of a session's skills from now on.
    fn watch_usage(&self, open: &OpenSession) -> SessionId {
        // The receiver ends with the process.
        drop(self.watched.send(usage_events(&open.session)));
        SessionId {
            session: open.session.id().to_owned(),
        }
    }

    /// Starts a session, or restores a saved session with options.
    async fn start(&self, mut request: SessionRequest) -> Result<StartedSession, RequestError> {
        let saved = request.saved.take();
        if saved.is_some() && request.has_selection() {
            return Err(RequestError::invalid(
                "`saved` has the id, product, choice and roots of the session: leave out \
                 `session_id`, `product`, `roots`, and the rules such as `include`",
            ));
        }
        let given = GivenRoots {
            roots: request.roots.take(),
            are_saved: saved.is_some(),
        };
        let own = request.sources.take();

        let mut mistakes = Vec::new();
        let mut checked = self.check_options(request, &mut mistakes);
        let places = if let Some(own) = own {
            let options = &mut checked.options;
            self.own_places(&own, &given, options, mistakes).await?
        } else {
            RequestError::refuse(mistakes)?;
            self.shared_places(&given, checked.options.start_timeout)
                .await?
        };

        let options = &mut checked.options;
        let mut changes = Vec::new();
        let mut warnings;
        let session = if let Some(saved) = saved {
            let text = saved.to_string();
            let restored =
                Session::restore_with(&places.fleet, &text, places.sources, options).await?;
            changes.extend(restored.changes_since_save.iter().map(SavedChanges::from));
            warnings = restored.warnings;
            restored.session
        } else {
            let selected = places.selected;
            options.published_roots = selected.are_published;
            let session =
                Session::start_with(&places.fleet, selected.roots, places.sources, options).await?;
            warnings = selected.messages;
            warnings.extend(session.mcp_server_warnings());
            session
        };

        let mut open = OpenSession::new(session, options.plugins);
        open.fleet = places.shared;
        let session = self.add_session(open)?;
        // The tools of `--tools` belong to the session that started first.
        let _ = checked.tools.owner.set(session.clone());
        Ok(StartedSession {
            session,
            changes,
            warnings,
        })
    }

    /// Returns the executors, roots and other sources of the command line.
    async fn shared_places(
        &self,
        given: &GivenRoots,
        timeout: Duration,
    ) -> Result<SessionPlaces, RequestError> {
        let Some(executors) = &self.executors else {
            let message = "with --no-session, each session has its own `sources`";
            return Err(RequestError::invalid(message));
        };
        let sources = self.sources.clone().await;
        let selected = if given.are_saved {
            SessionRoots::default()
        } else {
            let has_other_source = !sources.is_empty();
            executors
                .select_roots(given.parse()?, has_other_source, timeout)
                .await?
        };
        Ok(SessionPlaces {
            fleet: executors.fleet.clone(),
            shared: None,
            selected,
            sources,
        })
    }

    /// Opens the executors and sources that a request names. All mistakes are one error.
    async fn own_places(
        &self,
        own: &SourcesRequest,
        given: &GivenRoots,
        options: &mut SessionOptions,
        mut mistakes: Vec<String>,
    ) -> Result<SessionPlaces, RequestError> {
        own.set_options(options, &self.callbacks, &mut mistakes);
        let servers = own.parse_servers(&self.callbacks, &mut mistakes);
        let roots = given.parse().unwrap_or_else(|error| {
            mistakes.extend(error.mistakes);
            None
        });

        let mut shared = None;
        if let Some(executors) = &own.executors {
            match self.fleets.open(executors, &self.callbacks).await {
                Ok(opened) => shared = Some(opened),
                Err(error) if !error.mistakes.is_empty() => mistakes.extend(error.mistakes),
                // The mistakes come first: the next request tries the executors again.
                Err(error) if !mistakes.is_empty() => drop(error),
                // Nothing of the request names an executor.
                Err(error)
                    if executors.optional
                        && error.is_unavailable()
                        && !own.has_only_executors() => {}
                Err(error) => return Err(error),
            }
        }
        RequestError::refuse(mistakes)?;

        let selected = match (roots, &shared) {
            (None, Some(shared)) if !given.are_saved => {
                shared.published_roots(options.start_timeout).await?
            }
            (roots, _) => SessionRoots::given(roots.unwrap_or_default()),
        };
        if selected.is_lost() && own.has_only_executors() {
            return Err(RequestError::unavailable(selected.messages.join("; ")));
        }
        Ok(SessionPlaces {
            fleet: match &shared {
                Some(shared) => shared.fleet.clone(),
                None => Fleet::from_executors([]),
            },
            sources: own.start(servers, options).await?,
            shared,
            selected,
        })
    }

    /// Returns the options of the command line with those of a request, and adds the mistakes.
    fn check_options(&self, request: SessionRequest, mistakes: &mut Vec<String>) -> CheckedOptions {
        let mut options = self.options.clone();
        request.apply(&mut options, mistakes);

        let mut tools = self.tools.clone();
        if let Some(definitions) = request.tools {
            match register_tools(definitions, &self.callbacks) {
                Ok(registered) => tools = registered,
                Err(found) => mistakes.extend(found),
            }
        }
        options.tools = tools.registry.clone();
        CheckedOptions { options, tools }
    }

    fn fork(&self, open: &OpenSession, request: &ForkRequest) -> Result<SessionId, RequestError> {
        let mut mistakes = Vec::new();
        let mut parse = |rules: &[String]| ChoiceRule::parse_all(rules, &mut mistakes);
        let narrower = SkillChoice {
            include: parse(&request.include),
            exclude: parse(&request.exclude),
            pin: parse(&request.pin),
            name_only: parse(&request.name_only),
            manual: parse(&request.manual),
            enable: parse(&request.enable),
            product: request.product.clone().unwrap_or_default(),
            within: None,
        };
        RequestError::refuse(mistakes)?;

        let roots: Vec<_> = request.roots.iter().flatten().map(String::as_str).collect();
        let scope = match request.roots {
            Some(_) => ForkScope::Only(&roots),
            None => ForkScope::All,
        };
        let fork = open.session.fork(scope)?.with_narrower_choice(&narrower)?;

        let mut fork = OpenSession::new(fork, open.has_plugins);
        fork.fleet.clone_from(&open.fleet);
        Ok(SessionId {
            session: self.add_session(fork)?,
        })
    }

    async fn close(&self, open: &OpenSession) -> SessionId {
        // The process has no store, so there is no saved state to delete.
        let _ = open.session.close(false).await;
        open.closed.cancel();

        let id = open.session.id().to_owned();
        self.dispatchers.remove_session(&id);
        // The id is free only now: a new session with the id would lose its dispatchers above.
        self.others.lock().remove(&id);
        SessionId { session: id }
    }

    fn add_session(&self, open: OpenSession) -> Result<String, RequestError> {
        let id = open.session.id().to_owned();
        let first = self.first.as_ref();
        let is_first = first.is_some_and(|first| first.session.id() == id);

        let mut others = self.others.lock();
        if is_first || others.contains_key(&id) {
            let message = format!("the session {id:?} is open; close it first");
            return Err(RequestError::failed(&message));
        }
        if others.len() >= MAX_SESSIONS {
            let message = format!("there are {MAX_SESSIONS} sessions already; close one first");
            return Err(RequestError::failed(&message));
        }

        if let Some(file) = &self.usage_file {
            file.follow(&open.session);
        }
        others.insert(id.clone(), open);
        Ok(id)
    }
}
