//! Authorities of a session: the ids by which a model and a user name the sources.

use super::selection::SelectionError;
use super::skill_source::{SkillSource, SourceKind};
use caproot_core::proto::caproot::v1::SelectedCapabilityRoot;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Authority of a session.
#[derive(Debug)]
pub struct SessionAuthority {
    pub kind: SourceKind,
    pub id: String,
    /// Index of the source in the sources of the session.
    pub source_index: usize,
}

/// Returns the authorities of all sources: sorted by kind, and the authorities of executors in the
/// order of the selection. No two sources of one kind may have an authority with one id.
pub fn collect_authorities(
    selected: &[SelectedCapabilityRoot],
    sources: &[Arc<dyn SkillSource>],
) -> Result<Vec<SessionAuthority>, SelectionError> {
    let mut authorities = Vec::new();
    for (source_index, source) in sources.iter().enumerate() {
        authorities.extend(source.authorities().into_iter().map(|id| SessionAuthority {
            kind: source.kind(),
            id,
            source_index,
        }));
    }

    let mut seen = HashSet::new();
    let errors: Vec<_> = authorities
        .iter()
        .filter(|authority| !seen.insert((authority.kind, &authority.id)))
        .map(|SessionAuthority { kind, id, .. }| {
            let kind_name = kind.name();
            format!("two sources answer for the {kind_name} authority {id:?}")
        })
        .collect();
    if !errors.is_empty() {
        return Err(SelectionError(errors));
    }

    let positions: HashMap<_, _> = selected
        .iter()
        .map(|root| root.id.as_str())
        .zip(0_usize..)
        .collect();

    // The sort is stable: other authorities keep the order of their sources.
    authorities.sort_by_key(|authority| {
        (
            authority.kind,
            positions
                .get(authority.id.as_str())
                .filter(|_| authority.kind == SourceKind::Executor)
                .copied(),
        )
    });

    Ok(authorities)
}
