//! Asks many executors for their skills at once. One that does not answer is an error of its own, and
//! holds up no other.

use super::Fleet;
use crate::client::call::Client;
use crate::proto::caproot::v1::{ListSkillsRequest, ListSkillsResponse, SelectedCapabilityRoot};
use futures_util::{StreamExt as _, stream};
use std::collections::BTreeMap;

/// The most executors that are asked at once.
const MAX_CONCURRENT_EXECUTORS: usize = 64;

/// How far one executor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListStage {
    /// It waits for its turn, or is being connected to.
    Connecting,
    /// Its published roots are being asked for.
    ListingRoots,
    /// Its skills are being listed.
    ListingSkills,
    /// It answered.
    Done,
    /// It did not.
    Failed,
}

/// What one executor answered.
#[derive(Debug)]
pub struct ExecutorListing {
    /// Whose.
    pub environment_id: String,
    /// Its skills, or why there are none: one sentence.
    pub outcome: Result<ListSkillsResponse, String>,
}

impl Fleet {
    /// Lists the skills of many executors, in the byte order of their environment ids. `roots` are asked
    /// of the executors of their environments; `None` stands for whatever each executor of the fleet's
    /// table publishes. `request` says the rest. `told` hears how far each is.
    pub async fn list_skills(
        &self,
        roots: Option<Vec<SelectedCapabilityRoot>>,
        request: &ListSkillsRequest,
        told: &(dyn Fn(&str, ListStage) + Sync),
    ) -> Vec<ExecutorListing> {
        let asked: BTreeMap<String, Option<Vec<SelectedCapabilityRoot>>> = match roots {
            None => self.environment_ids.iter().map(|id| (id.clone(), None)).collect(),
            Some(roots) => {
                let by = group_by_environment(roots).into_iter();
                by.map(|(id, roots)| (id, Some(roots))).collect()
            }
        };
        let each = asked.into_iter().map(|(environment_id, roots)| async move {
            told(&environment_id, ListStage::Connecting);
            let outcome = self.list_executor_skills(&environment_id, roots, request, told).await;
            told(
                &environment_id,
                if outcome.is_ok() { ListStage::Done } else { ListStage::Failed },
            );
            ExecutorListing { environment_id, outcome }
        });
        stream::iter(each).buffered(MAX_CONCURRENT_EXECUTORS).collect().await
    }

    async fn list_executor_skills(
        &self,
        environment_id: &str,
        roots: Option<Vec<SelectedCapabilityRoot>>,
        request: &ListSkillsRequest,
        told: &(dyn Fn(&str, ListStage) + Sync),
    ) -> Result<ListSkillsResponse, String> {
        let mut client = self.client(environment_id).await.map_err(|error| error.to_string())?;
        let roots = if let Some(roots) = roots {
            roots
        } else {
            told(environment_id, ListStage::ListingRoots);
            published_roots(&mut client).await?
        };
        told(environment_id, ListStage::ListingSkills);
        let request = ListSkillsRequest { selected_capability_roots: roots, ..request.clone() };
        client.list_skills(&request).await.map_err(|error| error.to_string())
    }
}

/// Roots by the environments that they are in; those without a location are in one without a name.
pub(crate) fn group_by_environment(
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

/// The roots that an executor publishes, ready to be selected.
async fn published_roots(client: &mut Client) -> Result<Vec<SelectedCapabilityRoot>, String> {
    let roots = client.list_roots().await.map_err(|error| error.to_string())?.roots;
    Ok(roots.into_iter().filter_map(|root| root.selected_capability_root).collect())
}
