//! Lists of many executors at once: their skills and their published roots.

use super::Fleet;
use crate::call::Client;
use crate::selected_roots::{PublishedRootId, published_selection};
use caproot_core::proto::caproot::v1::{
    GetExecutorResponse, ListSkillsRequest, ListSkillsResponse, SelectedCapabilityRoot,
};
use caproot_core::wire::RootId;
use futures_util::{StreamExt as _, stream};
use std::collections::BTreeMap;
use std::time::Duration;
use tower::BoxError;

/// Maximum number of executors that are asked at once.
const MAX_CONCURRENT_EXECUTORS: usize = 64;

/// Progress of one executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListStage {
    /// The executor waits for a free slot, or for its connection.
    Connecting,
    /// Its published roots are being listed.
    ListingRoots,
    /// Its skills are being listed.
    ListingSkills,
    /// It responded.
    Done,
    /// It did not respond.
    Failed,
}

/// Result of one executor.
#[derive(Debug)]
pub struct ExecutorListing {
    /// Environment of the executor.
    pub environment_id: String,
    /// Its skills, or an error in one sentence.
    pub outcome: Result<ListSkillsResponse, String>,
}

/// Published roots of the executors of a fleet.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PublishedSelection {
    /// Published roots in the byte order of the environment ids. Each has the id `ID@ENVIRONMENT`
    /// ([`PublishedRootId`]), so that an id never means a root of another executor, whichever executors
    /// answer.
    pub roots: Vec<SelectedCapabilityRoot>,
    /// Executors whose roots are not in `roots`.
    pub omitted: Vec<OmittedExecutor>,
}

/// Executor whose published roots are unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OmittedExecutor {
    /// Environment of the executor.
    pub environment_id: String,
    /// Reason in one sentence.
    pub reason: String,
    /// Whether the executor did not answer in time.
    pub timed_out: bool,
}

impl Fleet {
    /// Returns the published roots of the executors that the registry can list, to start a session
    /// without a selection. An executor that does not answer within `timeout`, or that has another
    /// environment than its key in the registry, is omitted with the reason.
    pub async fn published_roots(&self, timeout: Duration) -> PublishedSelection {
        let ids = self.environment_ids().into_iter();
        let each = ids.map(|id| async move { list_executor_roots(self, &id, timeout).await });
        let listed: Vec<_> = stream::iter(each)
            .buffered(MAX_CONCURRENT_EXECUTORS)
            .collect()
            .await;

        let mut selection = PublishedSelection::default();
        for outcome in listed {
            match outcome {
                Ok(roots) => selection.roots.extend(roots),
                Err(omitted) => selection.omitted.push(omitted),
            }
        }
        selection
    }

    /// Lists the skills of many executors, in the byte order of their environment ids.
    ///
    /// Each of `roots` is listed by the executor of its environment. `None` means all published
    /// roots of the executors that the registry can list; an executor that has another environment
    /// than its key in the registry is an error. `request` has the other parameters. `on_progress`
    /// receives the progress of each executor.
    pub async fn list_skills(
        &self,
        roots: Option<Vec<SelectedCapabilityRoot>>,
        request: &ListSkillsRequest,
        on_progress: &(dyn Fn(&str, ListStage) + Sync),
    ) -> Vec<ExecutorListing> {
        let requests: BTreeMap<_, _> = match roots {
            None => {
                let ids = self.environment_ids().into_iter();
                ids.map(|id| (id, None)).collect()
            }
            Some(roots) => {
                let by = group_by_environment(roots).into_iter();
                by.map(|(id, roots)| (id, Some(roots))).collect()
            }
        };

        let each = requests
            .into_iter()
            .map(|(environment_id, roots)| async move {
                on_progress(&environment_id, ListStage::Connecting);
                let outcome =
                    list_executor_skills(self, &environment_id, roots, request, on_progress)
                        .await
                        .map_err(|error| error.to_string());
                let stage = if outcome.is_ok() {
                    ListStage::Done
                } else {
                    ListStage::Failed
                };
                on_progress(&environment_id, stage);
                ExecutorListing {
                    environment_id,
                    outcome,
                }
            });

        stream::iter(each)
            .buffered(MAX_CONCURRENT_EXECUTORS)
            .collect()
            .await
    }
}

/// Returns a published root with the id that it has in a selection of many executors.
fn with_environment(
    root: SelectedCapabilityRoot,
    environment_id: &str,
) -> Result<SelectedCapabilityRoot, String> {
    let id = PublishedRootId {
        root_id: root.id,
        environment_id: environment_id.to_owned(),
    };
    let text = id.to_string();
    match RootId::new(&text) {
        Ok(_) => Ok(SelectedCapabilityRoot { id: text, ..root }),
        Err(rule) => Err(format!(
            "the id {text:?} of a published root {rule}; select the roots with ids of your own"
        )),
    }
}

/// Returns the published roots of one executor.
async fn list_executor_roots(
    fleet: &Fleet,
    environment_id: &str,
    timeout: Duration,
) -> Result<Vec<SelectedCapabilityRoot>, OmittedExecutor> {
    let listed = tokio::time::timeout(timeout, async {
        let mut client = fleet.client(environment_id).await?;
        let roots = published_roots(&mut client, environment_id)
            .await?
            .into_iter();
        let named = roots.map(|root| with_environment(root, environment_id));
        Ok::<_, BoxError>(named.collect::<Result<_, _>>()?)
    });

    let (reason, timed_out) = match listed.await {
        Ok(Ok(roots)) => return Ok(roots),
        Ok(Err(error)) => (error.to_string(), false),
        Err(_) => {
            let limit = humantime::format_duration(timeout);
            (format!("no response within {limit}"), true)
        }
    };

    Err(OmittedExecutor {
        environment_id: environment_id.to_owned(),
        reason,
        timed_out,
    })
}

async fn list_executor_skills(
    fleet: &Fleet,
    environment_id: &str,
    roots: Option<Vec<SelectedCapabilityRoot>>,
    request: &ListSkillsRequest,
    on_progress: &(dyn Fn(&str, ListStage) + Sync),
) -> Result<ListSkillsResponse, BoxError> {
    let mut client = fleet.client(environment_id).await?;
    let roots = if let Some(roots) = roots {
        roots
    } else {
        on_progress(environment_id, ListStage::ListingRoots);
        published_roots(&mut client, environment_id).await?
    };

    on_progress(environment_id, ListStage::ListingSkills);
    let request = ListSkillsRequest {
        selected_capability_roots: roots,
        ..request.clone()
    };
    Ok(client.list_skills(&request).await?)
}

/// Groups roots by environment. Roots without a location have the environment id `""`.
#[must_use]
pub fn group_by_environment(
    roots: Vec<SelectedCapabilityRoot>,
) -> BTreeMap<String, Vec<SelectedCapabilityRoot>> {
    let mut by = BTreeMap::<String, Vec<SelectedCapabilityRoot>>::new();
    for root in roots {
        let location = root.location.as_ref();
        let environment = location.map_or_else(String::new, |l| l.environment_id.clone());
        by.entry(environment).or_default().push(root);
    }
    by
}

/// Returns the published roots of an executor as a selection of an environment.
async fn published_roots(
    client: &mut Client,
    environment_id: &str,
) -> Result<Vec<SelectedCapabilityRoot>, BoxError> {
    let published = client.list_roots().await?;
    let selected = published
        .roots
        .iter()
        .filter_map(|root| root.selected_capability_root.as_ref());
    let mut locations = selected.filter_map(|root| root.location.as_ref());

    // A daemon with several environments names its first one in each root.
    if !locations.all(|location| location.environment_id == environment_id) {
        let executor = client.get_executor().await?;
        if let Some(sentence) = wrong_environment(&executor, environment_id) {
            return Err(sentence.into());
        }
    }

    Ok(published_selection(published, Some(environment_id)))
}

/// Returns the error if an executor does not have the environment.
#[must_use]
pub fn wrong_environment(executor: &GetExecutorResponse, environment_id: &str) -> Option<String> {
    if executor
        .environment_ids
        .iter()
        .any(|id| id == environment_id)
    {
        return None;
    }
    let ids: Vec<_> = executor
        .environment_ids
        .iter()
        .map(|id| format!("{id:?}"))
        .collect();
    Some(format!(
        "WRONG_ENVIRONMENT: the executor has the environment {}, and not {environment_id:?}; \
         correct the key in the fleet, or the environment id of the daemon",
        ids.join(", ")
    ))
}
