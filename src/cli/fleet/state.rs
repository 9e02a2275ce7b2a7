//! State of an executor: its health, version and published roots, or why the executor cannot be used.

use super::probe::{ProbeFailure, ProbedExecutor, describe_executor, probe_executor, run_in_time};
use super::target::FleetTarget;
use crate::cli::ask::report::{count_with_noun, root_state_text};
use caproot_client::Client;
use caproot_core::proto::caproot::v1::{
    GetExecutorResponse, ListSkillsRequest, PublishedRoot, RootState, SkillView,
};
use caproot_core::text::{escape_text, truncate_chars};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::{Duration, SystemTime};
use tonic_health::pb::health_check_response::ServingStatus;

/// Feature of a daemon that sends catalog digests.
const DIGEST_FEATURE: &str = "catalog-digests";
/// Length of a digest in a table.
const SHORT_DIGEST_CHARS: usize = 12;

/// State of an executor, and the connection to it.
#[derive(Debug)]
pub struct ProbeOutcome {
    /// `None` if no connection to an executor with the environment could be opened.
    pub connection: Option<ProbedExecutor>,
    pub state: ProbedState,
}

/// State of an executor.
#[derive(Debug, Clone, PartialEq)]
pub enum ProbedState {
    /// The daemon serves.
    Serving(Box<ServingExecutor>),
    /// The daemon answers and does not serve, such as during its shutdown. Has the health.
    NotServing(ServingStatus),
    /// The executor cannot be used.
    Failed(ProbeFailure),
}

/// Daemon that serves, and its published roots.
#[derive(Debug, Clone, PartialEq)]
pub struct ServingExecutor {
    pub description: GetExecutorResponse,
    pub roots: Vec<PublishedRootState>,
}

/// State of a published root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedRootState {
    pub id: String,
    /// State, with the reason if the root is unavailable.
    pub state: String,
    pub is_ready: bool,
    /// Digest of the catalog with every product and plugin; empty if the root is not ready, or if
    /// the daemon is too old.
    pub catalog_digest: String,
}

impl ProbedState {
    /// Name of the state: the health of a daemon that answers, or the code of the failure.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Serving(_) => ServingStatus::Serving.as_str_name(),
            Self::NotServing(health) => health.as_str_name(),
            Self::Failed(failure) => failure.code,
        }
    }

    /// Whether the daemon serves and each of its roots is ready.
    pub fn is_well(&self) -> bool {
        matches!(self, Self::Serving(serving) if serving.roots.iter().all(|root| root.is_ready))
    }

    /// Whether a person or a script sees the same state. Counters and times are not part of it.
    pub fn is_same_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Serving(serving), Self::Serving(other)) => {
                let (description, others) = (&serving.description, &other.description);
                description.epoch == others.epoch
                    && description.version == others.version
                    && serving.roots == other.roots
            }
            _ => self == other,
        }
    }

    /// Returns the state as JSON, with the fields of an executor's identity.
    pub fn to_json(&self, environment_id: &str) -> Value {
        let mut json = json!({ "environmentId": environment_id, "state": self.name() });
        match self {
            Self::Serving(serving) => {
                let ServingExecutor { description, roots } = serving.as_ref();
                json["version"] = description.version.as_str().into();
                json["build"] = description.build.as_str().into();
                json["epoch"] = description.epoch.as_str().into();
                json["startTime"] = description.start_time.map(|time| time.to_string()).into();
                json["roots"] = roots.iter().map(PublishedRootState::to_json).collect();
            }
            Self::NotServing(_) => {}
            Self::Failed(failure) => json["error"] = failure.sentence.as_str().into(),
        }
        json
    }
}

impl ServingExecutor {
    /// Counts the roots, such as `3 roots (1 not ready)`.
    pub fn root_count(&self) -> String {
        let unready = self.roots.iter().filter(|root| !root.is_ready).count();
        let text = count_with_noun(self.roots.len(), "root");
        if unready > 0 {
            format!("{text} ({unready} not ready)")
        } else {
            text
        }
    }

    /// Returns how long ago the daemon started, by the clock of this machine, such as `3d`.
    pub fn age(&self) -> Option<String> {
        let start = SystemTime::try_from(self.description.start_time?).ok()?;
        Some(short_age(start.elapsed().unwrap_or_default()))
    }

    /// Returns the beginnings of the catalog digests in the order of the roots.
    pub fn short_digests(&self) -> String {
        let digests = self.roots.iter().map(|root| {
            let digest = root.catalog_digest.trim_start_matches("sha256:");
            truncate_chars(digest, SHORT_DIGEST_CHARS)
        });
        let digests: Vec<_> = digests.filter(|digest| !digest.is_empty()).collect();
        escape_text(&digests.join(","))
    }

    /// Lines about roots that are not ready.
    pub fn problem_lines(&self, environment_id: &str) -> Vec<String> {
        let id = escape_text(environment_id);
        let unready = self.roots.iter().filter(|root| !root.is_ready);
        let lines = unready.map(|root| {
            let root_id = escape_text(&root.id);
            format!("warning[{}] {id}: root {root_id}", root.state)
        });
        lines.collect()
    }
}

impl PublishedRootState {
    fn to_json(&self) -> Value {
        let mut json = json!({ "id": self.id, "state": self.state });
        if !self.catalog_digest.is_empty() {
            json["catalogDigest"] = self.catalog_digest.as_str().into();
        }
        json
    }
}

/// Connects to an executor and returns its state.
pub async fn find_state(target: &FleetTarget) -> ProbeOutcome {
    let (connection, state) = match run_in_time(target, probe_executor(target)).await {
        Ok(mut connection) => {
            let state = read_state(&mut connection.client, target).await;
            (Some(connection), state)
        }
        Err(failure) => (None, ProbedState::Failed(failure)),
    };
    ProbeOutcome { connection, state }
}

/// Returns the state of an executor through an open connection, within the timeout of the executor.
pub async fn read_state(client: &mut Client, target: &FleetTarget) -> ProbedState {
    let asked = run_in_time(target, ask_state(client, &target.environment_id));
    asked.await.unwrap_or_else(ProbedState::Failed)
}

async fn ask_state(client: &mut Client, id: &str) -> Result<ProbedState, ProbeFailure> {
    let health = client.check_health().await?;
    if health != ServingStatus::Serving {
        return Ok(ProbedState::NotServing(health));
    }

    let description = describe_executor(client, id).await?;
    let listed = client.list_roots().await?;
    let mut digests = catalog_digests(client, &description, &listed.roots).await?;

    let roots = listed
        .roots
        .into_iter()
        .map(|root| PublishedRootState {
            state: root_state_text(root.state(), root.reason),
            is_ready: root.state() == RootState::Ready,
            catalog_digest: digests.remove(&root.id).unwrap_or_default(),
            id: root.id,
        })
        .collect();
    let serving = ServingExecutor { description, roots };
    Ok(ProbedState::Serving(Box::new(serving)))
}

/// Returns the catalog digests of published roots by the ids of the roots. Empty if the daemon does
/// not know digests.
async fn catalog_digests(
    client: &mut Client,
    description: &GetExecutorResponse,
    roots: &[PublishedRoot],
) -> Result<HashMap<String, String>, ProbeFailure> {
    let mut features = description.features.iter();
    if !features.any(|feature| feature == DIGEST_FEATURE) {
        return Ok(HashMap::new());
    }

    let selected: Vec<_> = roots
        .iter()
        .filter_map(|root| root.selected_capability_root.clone())
        .collect();

    // The limit is from the daemon, and `chunks` panics at 0.
    let limits = description.limits.as_ref();
    let max_roots = limits.map_or(1, |limits| limits.max_roots.max(1));

    let mut digests = HashMap::new();
    for part in selected.chunks(max_roots as usize) {
        let request = ListSkillsRequest {
            selected_capability_roots: part.to_vec(),
            view: SkillView::Full.into(),
            ..ListSkillsRequest::default()
        };
        let states = client.list_root_states(&request).await?.into_iter();
        digests.extend(states.map(|root| (root.id, root.catalog_digest)));
    }
    Ok(digests)
}

/// Formats a time in its greatest unit, such as `3d`, `5h`, `12m` or `7s`.
fn short_age(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::short_age;
    use std::time::Duration;

    #[test]
    fn an_age_has_its_greatest_unit() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (7_199, "1h"),
            (172_800, "2d"),
        ] {
            assert_eq!(short_age(Duration::from_secs(seconds)), text);
        }
    }
}
