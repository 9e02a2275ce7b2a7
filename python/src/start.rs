//! Start of a session, new or restored.

use crate::callback::CallbackTarget;
use crate::failure::Failure;
use crate::fleet::{Fleet, OpenFleet};
use crate::mailbox::{Mailbox, MailboxShared};
use crate::reply::{Reply, to_object};
use crate::selection::{OptionsSpec, parse_roots};
use crate::session::SessionState;
use crate::sources::SourcesSpec;
use crate::store::CallbackStore;
use crate::tools::ToolRegistry;
use caproot_client::Fleet as ClientFleet;
use caproot_client::session::sources::mcp::McpServerList;
use caproot_client::session::{Session, SessionOptions, SessionStore};
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
    let mailbox = mailbox.shared()?;
    let spec: StartSpec = serde_json::from_str(spec)
        .map_err(|error| Failure::config(vec![format!("invalid session: {error}")]))?;
    let tools = tools.map(ToolRegistry::handle).transpose()?;
    let fleet = fleet.map(|fleet| fleet.inner.get().cloned()).transpose()?;

    let mut mistakes = spec.mistakes;
    let options = spec
        .options
        .to_options(tools.unwrap_or_default(), &mut mistakes);
    let roots = parse_roots(spec.roots.as_deref(), &mut mistakes);
    let servers = spec.sources.parse_servers(&mailbox, &mut mistakes);
    if !mistakes.is_empty() {
        return Err(Failure::config(mistakes).into());
    }

    let store = spec.store.map(|handler| {
        let mailbox = mailbox.clone();
        Arc::new(CallbackStore(CallbackTarget { mailbox, handler })) as Arc<dyn SessionStore>
    });
    let start = SessionStart {
        fleet,
        roots,
        sources: spec.sources,
        servers,
        options,
        store,
        saved: spec.saved,
        stored_id: spec.stored_id,
    };
    let shared = mailbox.clone();
    let started = mailbox.operate(operation, async move {
        let state = start.run(shared).await?;
        Ok(Reply::Session(Box::new(state)))
    });
    to_object(py, started)
}

impl SessionStart {
    async fn run(mut self, mailbox: Arc<MailboxShared>) -> Result<SessionState, Failure> {
        let mut warnings = Vec::new();
        let is_restored = self.saved.is_some() || self.stored_id.is_some();
        let roots = match (self.roots.take(), &self.fleet) {
            (Some(roots), _) => roots,
            (None, Some(fleet)) if !is_restored => {
                let published = fleet.published_roots(self.options.start_timeout).await?;
                let (roots, omitted) = published;
                if roots.is_empty() && !omitted.is_empty() && self.sources.is_empty() {
                    return Err(Failure::unavailable(omitted.join("; ")));
                }
                warnings.extend(omitted);
                roots
            }
            (None, _) => Vec::new(),
        };
        let servers = std::mem::take(&mut self.servers);
        let sources = self.sources.start(servers, &self.options).await?;
        let no_executors = || ClientFleet::from_executors([]);
        let fleet = self.fleet.map_or_else(no_executors, |open| open.fleet);

        let names = self.options.tool_names.clone();
        let saved = match (self.saved, self.stored_id, &self.store) {
            (Some(saved), _, _) => Some(saved),
            (None, Some(id), Some(store)) => {
                let stored = store.get(&id).await?;
                let missing =
                    || Failure::key(format!("the store has no session with the id {id:?}"));
                Some(stored.ok_or_else(missing)?)
            }
            _ => None,
        };
        let session = match saved {
            None => Session::start_with(&fleet, roots, sources, &self.options).await?,
            Some(saved) => {
                let restored =
                    Session::restore_with(&fleet, &saved, sources, &self.options).await?;
                warnings.extend(restored.warnings);
                restored.session
            }
        };
        let session = match self.store {
            Some(store) => session.with_store(store),
            None => session,
        };
        Ok(SessionState::new(session, mailbox, names, warnings))
    }
}
