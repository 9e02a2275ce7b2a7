//! Position of a mirror in a form that can be stored, and the changes since that position.

use super::{MirrorCatalog, MirrorSnapshot};
use crate::proto::caproot::v1::{RootStatus, Skill};
use prost::Message as _;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hasher as _};

/// Position of a mirror.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResumePoint {
    /// Resume token of the daemon. If it is empty, the daemon cannot be asked for the changes.
    pub token: String,
    /// Start of the daemon.
    pub epoch: String,
    /// Revision of the position.
    pub revision: u64,
    /// Fingerprint of each root's skills, by root id.
    pub fingerprints: BTreeMap<String, String>,
}

/// Changes between a [`ResumePoint`] and the first state of the resumed mirror.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "kind")]
pub enum ChangesSince {
    /// Exact changes, in byte order. Empty lists mean that nothing changed.
    Known {
        /// Revision after the changes.
        revision: u64,
        /// Packages of new or changed skills.
        upserted: Vec<String>,
        /// Packages of removed skills.
        removed: Vec<String>,
        /// Roots whose state or diagnostics changed.
        roots: Vec<String>,
    },
    /// The exact changes are unknown: read the skills of these roots again. Skills of other roots
    /// did not change.
    Unknown {
        /// Reason, in one sentence.
        reason: String,
        /// Roots with changed skills, as selected.
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
            fingerprints: fingerprints(&snapshot.catalog),
        })
    }

    /// Returns the changes that the fingerprints show.
    pub(super) fn compare_fingerprints(
        &self,
        catalog: &MirrorCatalog,
        revision: u64,
        reason: String,
    ) -> ChangesSince {
        let now = fingerprints(catalog);
        let ids = catalog.roots().iter().map(|root| &root.id);
        let roots: Vec<_> =
            ids.filter(|id| self.fingerprints.get(*id) != now.get(*id)).cloned().collect();
        if roots.is_empty() {
            let (upserted, removed) = (Vec::new(), Vec::new());
            return ChangesSince::Known { revision, upserted, removed, roots };
        }
        ChangesSince::Unknown { reason, roots }
    }
}

/// Returns a fingerprint of each root's skills as 32 hex digits. Another build may compute other
/// fingerprints. Then an unchanged root looks changed, and never the other way round.
fn fingerprints(catalog: &MirrorCatalog) -> BTreeMap<String, String> {
    let mut by_root: HashMap<&str, Vec<&Skill>> = HashMap::new();
    for skill in catalog.skills() {
        let id = skill.authority.as_ref().map_or("", |authority| &authority.id);
        by_root.entry(id).or_default().push(skill);
    }
    let of = |root: &RootStatus| {
        let skills = by_root.get(root.id.as_str()).map(Vec::as_slice).unwrap_or_default();
        (root.id.clone(), fingerprint(root, skills))
    };
    catalog.roots().iter().map(of).collect()
}

fn fingerprint(root: &RootStatus, skills: &[&Skill]) -> String {
    let mut hashers = [DefaultHasher::new(), DefaultHasher::new()];
    hashers[1].write_u8(1);
    let mut add = |bytes: &[u8]| {
        for hasher in &mut hashers {
            hasher.write_usize(bytes.len());
            hasher.write(bytes);
        }
    };
    add(&root.state.to_be_bytes());
    add(&root.reason.to_be_bytes());
    for skill in skills {
        // The iteration order of a map is not fixed.
        let metadata: BTreeMap<_, _> = skill.metadata.iter().collect();
        for (key, value) in metadata {
            add(key.as_bytes());
            add(value.as_bytes());
        }
        add(&Skill { metadata: HashMap::new(), ..(*skill).clone() }.encode_to_vec());
    }
    let [first, second] = hashers.map(|hasher| hasher.finish());
    format!("{first:016x}{second:016x}")
}

#[cfg(test)]
mod tests {
    use super::{ChangesSince, MirrorCatalog, ResumePoint, RootStatus, Skill, fingerprints};
    use crate::proto::caproot::v1::Authority;
    use std::sync::Arc;

    fn catalog(skills: &[(&str, &str, &str)]) -> MirrorCatalog {
        let skill = |(root, name, description): &(&str, &str, &str)| {
            let pairs = (0..20).map(|n| (n.to_string(), n.to_string()));
            Arc::new(Skill {
                authority: Some(Authority { kind: "executor".into(), id: (*root).into() }),
                package: format!("skill://{root}/{name}"),
                description: (*description).into(),
                metadata: pairs.collect(),
                ..Skill::default()
            })
        };
        let root = |id: &str| RootStatus { id: id.into(), ..RootStatus::default() };
        let skills: Vec<_> = skills.iter().map(skill).collect();
        let skills = skills.iter().map(|skill| (skill.package.as_str(), skill.clone()));
        MirrorCatalog::new(skills, (vec![], vec![]), vec![root("a"), root("b")], vec![])
    }

    #[test]
    fn fingerprint_covers_all_skills_of_a_root() {
        let before = catalog(&[("a", "x", "one"), ("b", "y", "two")]);
        let point = ResumePoint { fingerprints: fingerprints(&before), ..ResumePoint::default() };
        let changed_roots =
            |now: &MirrorCatalog| match point.compare_fingerprints(now, 7, "why".into()) {
                ChangesSince::Known { upserted, .. } => upserted,
                ChangesSince::Unknown { roots, .. } => roots,
            };
        assert_eq!(changed_roots(&before.clone()), [""; 0], "independent of the order of maps");
        for (now, roots) in [
            (catalog(&[("a", "x", "one"), ("b", "y", "other")]), vec!["b"]),
            (catalog(&[("b", "y", "two")]), vec!["a"]),
            (catalog(&[("a", "x", "one"), ("a", "z", ""), ("b", "y", "two")]), vec!["a"]),
            (catalog(&[]), vec!["a", "b"]),
        ] {
            assert_eq!(changed_roots(&now), roots);
        }
        let nothing = ResumePoint::default();
        assert!(matches!(
            nothing.compare_fingerprints(&before, 7, String::new()),
            ChangesSince::Unknown { .. }
        ));
    }
}
