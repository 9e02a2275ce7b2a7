//! What a daemon's source shows of its mirror: the list of its roots, all of them or a part, and how it is.

use super::DaemonSource;
use crate::client::{MirrorCatalog, MirrorSnapshot, MirrorState};
use crate::proto::caproot::v1::{RootState, Skill};
use crate::session::source::{SkillListing, SourceKind};
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
    pub reason: Option<String>,
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
    pub(in crate::session) fn restricted_to(&self, has: &dyn Fn(&str) -> bool) -> Option<Self> {
        let roots = self.roots.iter().filter(|root| has(&root.id)).cloned();
        let roots: Vec<_> = roots.collect();
        (!roots.is_empty()).then(|| Self {
            kind: self.kind,
            id: self.id.clone(),
            connection: self.connection.clone(),
            grace: self.grace,
            is_partial: self.is_partial || roots.len() < self.roots.len(),
            cached_listing: Mutex::default(),
            roots,
        })
    }

    /// What its mirror holds; `None` where there is none.
    pub(in crate::session) fn mirror_snapshot(&self) -> Option<MirrorSnapshot> {
        self.connection.as_ref().ok().map(|reached| reached.mirror.snapshot())
    }

    /// Whether its mirror has roots that it does not show.
    pub(in crate::session) fn is_partial(&self) -> bool {
        self.is_partial
    }

    fn includes_root(&self, root: &str) -> bool {
        !self.is_partial || self.roots.iter().any(|own| own.id == root)
    }

    /// The skills of its roots.
    fn selected_skills<'a>(
        &'a self,
        catalog: &'a MirrorCatalog,
    ) -> impl Iterator<Item = &'a Arc<Skill>> {
        let owner = |skill: &Arc<Skill>| skill.authority.as_ref().map(|owner| owner.id.clone());
        catalog.skills().iter().filter(move |skill| {
            !self.is_partial || owner(skill).is_some_and(|owner| self.includes_root(&owner))
        })
    }

    /// A catalog as a list of this kind's.
    pub(super) fn build_listing(&self, catalog: &MirrorCatalog) -> SkillListing {
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
        let roots = || catalog.roots().iter().filter(|root| self.includes_root(&root.id));
        let unready = roots().filter(|root| root.state() != RootState::Ready);
        SkillListing {
            skills: self.selected_skills(catalog).map(of_kind).collect(),
            warnings: unready
                .map(|root| format!("root {:?} is not ready: {}", root.id, root.message))
                .collect(),
            truncated: roots().any(|root| root.truncated),
        }
    }

    pub(in crate::session) fn state(&self) -> ExecutorState {
        let (state, why, held) = match &self.connection {
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
            reason: why,
            epoch: held.as_ref().map(|held| held.epoch.to_string()).unwrap_or_default(),
            revision: held.as_ref().map_or(0, |held| held.revision),
            skills: held.as_ref().map_or(0, |held| self.selected_skills(&held.catalog).count()),
        }
    }
}
