//! What a daemon's source shows of its mirror: the list of its roots, all of them or a part, and how it is.

use super::DaemonSource;
use crate::client::{Catalog, MirrorState, Snapshot};
use crate::proto::caproot::v1::{RootState, Skill};
use crate::session::source::{Listing, SourceKind};
use serde::Serialize;
use std::sync::{Arc, Mutex};

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

impl DaemonSource {
    /// The same daemon, with the same mirror and the same bound of calls, for a part of the roots; `None`
    /// where no root is left.
    pub(in crate::session) fn narrowed(&self, has: &dyn Fn(&str) -> bool) -> Option<Self> {
        let roots = self.roots.iter().filter(|root| has(&root.id)).cloned();
        let roots: Vec<_> = roots.collect();
        (!roots.is_empty()).then(|| Self {
            kind: self.kind,
            id: self.id.clone(),
            reached: self.reached.clone(),
            grace: self.grace,
            is_part: self.is_part || roots.len() < self.roots.len(),
            listing: Mutex::default(),
            roots,
        })
    }

    /// What its mirror holds; `None` where there is none.
    pub(in crate::session) fn snapshot(&self) -> Option<Snapshot> {
        self.reached.as_ref().ok().map(|reached| reached.mirror.snapshot())
    }

    /// Whether its mirror has roots that it does not show.
    pub(in crate::session) fn is_part(&self) -> bool {
        self.is_part
    }

    fn has(&self, root: &str) -> bool {
        !self.is_part || self.roots.iter().any(|own| own.id == root)
    }

    /// The skills of its roots.
    fn skills<'a>(&'a self, catalog: &'a Catalog) -> impl Iterator<Item = &'a Arc<Skill>> {
        let owner = |skill: &Arc<Skill>| skill.authority.as_ref().map(|owner| owner.id.clone());
        catalog.skills().iter().filter(move |skill| {
            !self.is_part || owner(skill).is_some_and(|owner| self.has(&owner))
        })
    }

    /// A catalog as a list of this kind's.
    pub(super) fn listing(&self, catalog: &Catalog) -> Listing {
        let of_kind = |skill: &Arc<Skill>| {
            if self.kind == SourceKind::Executor {
                return skill.clone();
            }
            let mut skill = Skill::clone(skill);
            if let Some(authority) = &mut skill.authority {
                self.kind.name().clone_into(&mut authority.kind);
            }
            Arc::new(skill)
        };
        let roots = || catalog.roots().iter().filter(|root| self.has(&root.id));
        let unready = roots().filter(|root| root.state() != RootState::Ready);
        Listing {
            skills: self.skills(catalog).map(of_kind).collect(),
            warnings: unready
                .map(|root| format!("root {:?} is not ready: {}", root.id, root.message))
                .collect(),
            truncated: roots().any(|root| root.truncated),
        }
    }

    pub(in crate::session) fn state(&self) -> ExecutorState {
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
                    MirrorState::Failed(why) => ("connecting", Some(why.to_string())),
                };
                (state, why, Some(held))
            }
        };
        ExecutorState {
            environment_id: self.id.clone(),
            state,
            why,
            epoch: held.as_ref().map(|held| held.epoch.to_string()).unwrap_or_default(),
            revision: held.as_ref().map_or(0, |held| held.revision),
            skills: held.as_ref().map_or(0, |held| self.skills(&held.catalog).count()),
        }
    }
}
