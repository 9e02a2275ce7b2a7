//! Position of a mirror in a form that can be stored, and the changes since that position.

use super::{MirrorCatalog, MirrorSnapshot};
use caproot_core::proto::caproot::v1::{RootState, SkillView};
use serde::Serialize;
use std::collections::BTreeMap;

/// Position of a mirror.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResumePoint {
    /// Resume token of the daemon. If it is empty, the daemon cannot be asked for the changes.
    pub token: String,
    /// Start of the daemon.
    pub epoch: String,
    /// Revision of the position.
    pub revision: u64,
    /// Digest of the catalog of each root that was ready, by root id.
    pub catalog_digests: BTreeMap<String, String>,
    /// View of the mirror at the position. `Unspecified` is the view of the mirror that resumes.
    pub view: SkillView,
}

/// Changes between a [`ResumePoint`] and the first state of the resumed mirror.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    tag = "kind"
)]
pub enum ChangesSince {
    /// Exact changes, in byte order. Empty lists mean that nothing changed.
    Known {
        /// Revision after the changes.
        revision: u64,
        /// Packages of new or changed skills.
        upserted: Vec<String>,
        /// Packages of removed skills.
        removed: Vec<String>,
        /// Roots whose skills, plugins, state or diagnostics changed.
        roots: Vec<String>,
    },
    /// The exact changes are unknown: read the skills of these roots again. Skills of other roots
    /// did not change.
    Unknown {
        /// Reason, in one sentence.
        reason: String,
        /// Roots with changed skills, plugins or diagnostics, as selected.
        roots: Vec<String>,
    },
}

impl ResumePoint {
    /// Returns the position of a snapshot, or `None` before the first state.
    #[must_use]
    pub fn from_snapshot(snapshot: &MirrorSnapshot) -> Option<Self> {
        (!snapshot.epoch.is_empty()).then(|| Self {
            token: snapshot.resume_token.to_string(),
            epoch: snapshot.epoch.to_string(),
            revision: snapshot.revision,
            catalog_digests: catalog_digests(&snapshot.catalog),
            view: SkillView::Unspecified,
        })
    }

    /// Returns the changes up to a snapshot that its digests by root id show.
    pub(super) fn compare_digests(
        &self,
        snapshot: &MirrorSnapshot,
        now: &BTreeMap<String, String>,
        reason: String,
    ) -> ChangesSince {
        let ids = snapshot.catalog.roots().iter().map(|root| &root.id);
        let changed = ids.filter(|id| self.catalog_digests.get(*id) != now.get(*id));
        let roots: Vec<_> = changed.cloned().collect();
        if roots.is_empty() {
            return ChangesSince::Known {
                revision: snapshot.revision,
                upserted: Vec::new(),
                removed: Vec::new(),
                roots,
            };
        }
        ChangesSince::Unknown { reason, roots }
    }
}

/// Returns the digest of each ready root. The digests of the daemon are not used: they would hide a
/// change if another daemon sent a wrong digest.
pub(super) fn catalog_digests(catalog: &MirrorCatalog) -> BTreeMap<String, String> {
    let ready = catalog
        .roots()
        .iter()
        .filter(|root| root.state() == RootState::Ready);
    ready
        .filter_map(|root| {
            let digest = catalog.root(&root.id)?.contents.digest();
            Some((root.id.clone(), digest.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{ChangesSince, MirrorCatalog, MirrorSnapshot, ResumePoint, catalog_digests};
    use crate::mirror::MirrorState;
    use crate::mirror::catalog::CatalogRoot;
    use crate::mirror::root_contents::RootContents;
    use caproot_core::proto::caproot::v1::{Authority, RootState, RootStatus, Skill};
    use std::sync::Arc;

    fn catalog(skills: &[(&str, &str, &str)]) -> MirrorCatalog {
        let skill = |(root, name, description): &(&str, &str, &str)| {
            let pairs = (0..20).map(|n| (n.to_string(), n.to_string()));
            Skill {
                authority: Some(Authority {
                    kind: "executor".into(),
                    id: (*root).into(),
                }),
                package: format!("skill://{root}/{name}"),
                description: (*description).into(),
                metadata: pairs.collect(),
                ..Skill::default()
            }
        };
        let state = RootState::Ready.into();
        let root = |id: &str| RootStatus {
            id: id.into(),
            state,
            ..RootStatus::default()
        };
        let contents = |id: &str| {
            let mut contents = RootContents::default();
            for part in skills.iter().filter(|(root, ..)| *root == id) {
                contents.insert_skill(skill(part));
            }
            CatalogRoot {
                id: id.into(),
                contents: Arc::new(contents),
                readiness: Arc::default(),
            }
        };
        MirrorCatalog {
            statuses: vec![root("a"), root("b")],
            roots: vec![contents("a"), contents("b")],
        }
    }

    #[test]
    fn digests_cover_all_skills_of_a_root() {
        let before = catalog(&[("a", "x", "one"), ("b", "y", "two")]);
        let point = ResumePoint {
            catalog_digests: catalog_digests(&before),
            ..ResumePoint::default()
        };
        let compare = |point: &ResumePoint, now: &MirrorCatalog| {
            let snapshot = MirrorSnapshot {
                catalog: Arc::new(now.clone()),
                ..MirrorSnapshot::without_catalog(MirrorState::Live)
            };
            point.compare_digests(&snapshot, &catalog_digests(now), "why".into())
        };
        let changed_roots = |now: &MirrorCatalog| match compare(&point, now) {
            ChangesSince::Known { upserted, .. } => upserted,
            ChangesSince::Unknown { roots, .. } => roots,
        };
        assert_eq!(
            changed_roots(&before.clone()),
            [""; 0],
            "independent of the order of maps"
        );
        for (now, roots) in [
            (
                catalog(&[("a", "x", "one"), ("b", "y", "other")]),
                vec!["b"],
            ),
            (catalog(&[("b", "y", "two")]), vec!["a"]),
            (
                catalog(&[("a", "x", "one"), ("a", "z", ""), ("b", "y", "two")]),
                vec!["a"],
            ),
            (catalog(&[]), vec!["a", "b"]),
        ] {
            assert_eq!(changed_roots(&now), roots);
        }
        let nothing = ResumePoint::default();
        assert!(matches!(
            compare(&nothing, &before),
            ChangesSince::Unknown { .. }
        ));
    }
}
