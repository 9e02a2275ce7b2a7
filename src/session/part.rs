//! One executor of a session: its mirror, and how many calls it gets at once.

use super::Options;
use super::changes::Watched;
use super::result::{Code, Refusal};
use crate::client::{
    CallError, Catalog, Client, Fleet, FleetError, Mirror, MirrorState, Selection,
};
use crate::proto::caproot::v1::SelectedCapabilityRoot;
use backon::{ExponentialBuilder, Retryable as _};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

/// The most calls that one executor gets at once from a session; others wait.
const CALLS_AT_ONCE: usize = 16;
/// How long a call waits for its turn.
const TURN: Duration = Duration::from_secs(30);

/// One executor.
#[derive(Debug)]
pub(super) struct Part {
    environment_id: String,
    roots: Vec<SelectedCapabilityRoot>,
    /// Or why there is none.
    reached: Result<Reached, String>,
    grace: Duration,
}

#[derive(Debug)]
struct Reached {
    client: Client,
    mirror: Mirror,
    turns: Semaphore,
}

/// The client of an environment, as soon as the registry can say.
async fn found(fleet: &Fleet, environment_id: &str) -> Result<Client, FleetError> {
    let waits = ExponentialBuilder::new()
        .with_jitter()
        .with_min_delay(Duration::from_millis(100))
        .with_max_delay(Duration::from_secs(1))
        .without_max_times();
    let ask = || fleet.client(environment_id);
    ask.retry(waits).when(|error| matches!(error, FleetError::Registry { .. })).await
}

/// How one executor of a session is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecutorState {
    /// Its environment.
    pub environment_id: String,
    /// `live`, `stale`, `connecting`, or `unknown` where no registry names an executor.
    pub state: &'static str,
    /// Why it is not live, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The start of its daemon that the revision belongs to.
    pub epoch: String,
    /// What is held is this revision.
    pub revision: u64,
    /// How many skills are held.
    pub skills: usize,
}

impl Part {
    pub(super) async fn start(
        fleet: &Fleet,
        environment_id: String,
        selection: Selection,
        options: &Options,
    ) -> Self {
        let roots = selection.roots.clone();
        let deadline = Instant::now() + options.patience;
        let reached = match timeout_at(deadline, found(fleet, &environment_id)).await {
            Err(_) => Err("its executor could not be looked up in time".to_owned()),
            Ok(Err(error)) => Err(error.to_string()),
            Ok(Ok(client)) => {
                let mirror = Mirror::start(&client, selection);
                mirror.live(deadline.saturating_duration_since(Instant::now())).await;
                Ok(Reached { client, mirror, turns: Semaphore::new(CALLS_AT_ONCE) })
            }
        };
        Self { environment_id, roots, reached, grace: options.grace }
    }

    pub(super) fn environment_id(&self) -> &str {
        &self.environment_id
    }

    pub(super) fn root(&self, id: &str) -> Option<&SelectedCapabilityRoot> {
        self.roots.iter().find(|root| root.id == id)
    }

    pub(super) fn watched(&self) -> Option<Watched> {
        let mut mirror = self.reached.as_ref().ok()?.mirror.clone();
        mirror.mark_seen();
        let environment_id = self.environment_id.clone();
        Some(Watched { environment_id, mirror, grace: self.grace, told: None })
    }

    /// What may be shown of it, or why nothing may: an executor that is lost shows nothing, once it is
    /// lost for longer than the grace.
    pub(super) fn catalog(&self) -> Result<Arc<Catalog>, String> {
        let held = self.reached.as_ref().map_err(Clone::clone)?.mirror.snapshot();
        match held.state {
            MirrorState::Live => Ok(held.catalog),
            MirrorState::Stale { since, .. } if since.elapsed() < self.grace => Ok(held.catalog),
            MirrorState::Stale { why, .. } | MirrorState::Connecting(Some(why)) => {
                Err(why.to_string())
            }
            MirrorState::Connecting(None) => Err("it does not answer yet".to_owned()),
        }
    }

    /// Its client, as soon as there is a turn.
    pub(super) async fn turn(&self) -> Result<(Client, SemaphorePermit<'_>), Refusal> {
        let reached = self.reached.as_ref().map_err(|why| self.unavailable(why))?;
        let turn = tokio::time::timeout(TURN, reached.turns.acquire()).await;
        match turn {
            Ok(Ok(turn)) => Ok((reached.client.clone(), turn)),
            Ok(Err(_)) | Err(_) => Err(Refusal::new(
                Code::Overloaded,
                "too many calls wait for this executor",
                "Call again later, with fewer calls at once.",
            )),
        }
    }

    /// That nothing can be had from it now.
    pub(super) fn unavailable(&self, why: &str) -> Refusal {
        Refusal::new(
            Code::ExecutorUnavailable,
            &format!("the executor of environment {:?} cannot be used: {why}", self.environment_id),
            "Go on without it, or call again later.",
        )
    }

    /// What a failed call means to a model.
    pub(super) fn refusal(&self, error: &CallError) -> Refusal {
        Refusal::of(error).unwrap_or_else(|| self.unavailable(&error.to_string()))
    }

    pub(super) fn state(&self) -> ExecutorState {
        let (state, why, held) = match &self.reached {
            Err(why) => ("unknown", Some(why.clone()), None),
            Ok(reached) => {
                let held = reached.mirror.snapshot();
                let (state, why) = match &held.state {
                    MirrorState::Live => ("live", None),
                    MirrorState::Stale { why, .. } => ("stale", Some(why.to_string())),
                    MirrorState::Connecting(why) => {
                        ("connecting", why.as_ref().map(ToString::to_string))
                    }
                };
                (state, why, Some(held))
            }
        };
        ExecutorState {
            environment_id: self.environment_id.clone(),
            state,
            why,
            epoch: held.as_ref().map(|held| held.epoch.to_string()).unwrap_or_default(),
            revision: held.as_ref().map_or(0, |held| held.revision),
            skills: held.as_ref().map_or(0, |held| held.catalog.skills().len()),
        }
    }
}
