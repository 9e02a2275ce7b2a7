//! Start of a session, new or restored.

use crate::callback::CallbackTarget;
use crate::failure::Failure;
use crate::fleet::{Fleet, OpenFleet, PublishedRoots};
use crate::mailbox::{Mailbox, MailboxShared};
use crate::reply::{Reply, to_object};
use crate::selection::{OptionsSpec, parse_roots};
use crate::session::SessionState;
use crate::sources::SourcesSpec;
use crate::store::CallbackStore;
use crate::tools::ToolRegistry;
use caproot_client::Fleet as ClientFleet;
use caproot_client::session::sources::mcp::McpServerList;
use caproot_client::session::{self, Session, SessionOptions, SessionStore};
use caproot_core::proto::caproot::v1::SelectedCapabilityRoot;
use pyo3::prelude::*;
use serde::Deserialize;
use std::sync::Arc;

/// Description of a session.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StartSpec {
    options: OptionsSpec,
    /// JSON text of the selected roots; without it, the published roots.
    roots: Option<String>,
    sources: SourcesSpec,
    /// Number of the store's handler.
    store: Option<u64>,
    /// Saved session to restore, or its id in the store.
    saved: Option<String>,
    stored_id: Option<String>,
    /// Mistakes that Python found.
    mistakes: Vec<String>,
}

/// Checked description of a session.
struct SessionStart {
    fleet: Option<OpenFleet>,
    roots: Option<Vec<SelectedCapabilityRoot>>,
    sources: SourcesSpec,
    servers: McpServerList,
    options: SessionOptions,
    store: Option<Arc<dyn SessionStore>>,
    saved: Option<String>,
    stored_id: Option<String>,
}

/// Starts a session by its description, a JSON text.
#[pyfunction]
#[pyo3(signature = (mailbox, operation, fleet, tools, spec))]
pub fn start_session<'py>(
    py: Python<'py>,
    mailbox: &Mailbox,
    operation: u64,
    fleet: Option<&Fleet>,
    tools: Option<&ToolRegistry>,
    spec: &str,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let shared = mailbox.shared()?;
    let spec: StartSpec = serde_json::from_str(spec)
        .map_err(|error| Failure::config(vec![format!("invalid session: {error}")]))?;
    let registry = tools.map(ToolRegistry::handle).transpose()?;
    let open_fleet = fleet.map(|fleet| fleet.inner.get().cloned()).transpose()?;

    let start = spec.check(registry.unwrap_or_default(), open_fleet, &shared)?;
    let run = start.run(shared.clone());
    let started = shared.operate(operation, async move {
        Ok(Reply::Session(Box::new(run.await?)))
    });
    to_object(py, started)
}

impl StartSpec {
    /// Returns the checked description, or all mistakes.
    fn check(
        self,
        tools: session::ToolRegistry,
        fleet: Option<OpenFleet>,
        mailbox: &Arc<MailboxShared>,
    ) -> Result<SessionStart, Failure> {
        let mut mistakes = self.mistakes;
        let options = self.options.to_options(tools, mailbox, &mut mistakes);
        let roots = parse_roots(self.roots.as_deref(), &mut mistakes);
        let servers = self.sources.parse_servers(mailbox, &mut mistakes);
        if !mistakes.is_empty() {
            return Err(Failure::config(mistakes));
        }

        let store = self.store.map(|handler| {
            let mailbox = mailbox.clone();
            Arc::new(CallbackStore(CallbackTarget { mailbox, handler })) as Arc<dyn SessionStore>
        });
        Ok(SessionStart {
            fleet,
            roots,
            sources: self.sources,
            servers,
            options,
            store,
            saved: self.saved,
            stored_id: self.stored_id,
        })
    }
}

impl SessionStart {
    async fn run(mut self, mailbox: Arc<MailboxShared>) -> Result<SessionState, Failure> {
        let saved = self.load_saved().await?;
        let mut selection = self.select_roots(saved.is_some()).await?;

        let servers = std::mem::take(&mut self.servers);
        let sources = self.sources.start(servers, &self.options).await?;
        let fleet = self.fleet.map_or_else(
            || ClientFleet::from_executors([]),
            |open_fleet| open_fleet.fleet,
        );

        let mut session = match saved {
            None => {
                let started = Session::start_with(&fleet, selection.roots, sources, &self.options);
                let session = started.await?;
                selection.omitted.extend(session.mcp_server_warnings());
                session
            }
            Some(saved) => {
                let restored =
                    Session::restore_with(&fleet, &saved, sources, &self.options).await?;
                selection.omitted.extend(restored.warnings);
                restored.session
            }
        };
        if let Some(store) = self.store {
            session = session.with_store(store);
        }
        let names = self.options.tool_names;
        Ok(SessionState::new(
            session,
            mailbox,
            names,
            selection.omitted,
        ))
    }

    /// Returns the saved session to restore, if there is one.
    async fn load_saved(&mut self) -> Result<Option<String>, Failure> {
        let (Some(id), Some(store)) = (&self.stored_id, &self.store) else {
            return Ok(self.saved.take());
        };
        let stored = store.get(id).await?;
        let missing = format!("the store has no session with the id {id:?}");
        stored.map(Some).ok_or_else(|| Failure::key(missing))
    }

    /// Returns the roots of the program, or the published roots. A restored session has its own.
    async fn select_roots(&mut self, is_restored: bool) -> Result<PublishedRoots, Failure> {
        let roots = self.roots.take();
        let open_fleet = match (&roots, &self.fleet) {
            (None, Some(open_fleet)) if !is_restored => open_fleet,
            _ => {
                return Ok(PublishedRoots {
                    roots: roots.unwrap_or_default(),
                    omitted: Vec::new(),
                });
            }
        };

        let published = open_fleet
            .published_roots(self.options.start_timeout)
            .await?;
        let is_lost = published.roots.is_empty() && !published.omitted.is_empty();
        if is_lost && self.sources.is_empty() {
            return Err(Failure::unavailable(published.omitted.join("; ")));
        }
        Ok(published)
    }
}
