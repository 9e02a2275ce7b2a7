//! Authorities of a session: the ids by which a model and a user name the sources.

use super::selection::SelectionError;
use super::skill_source::{SkillSource, SourceKind};
use caproot_core::proto::caproot::v1::SelectedCapabilityRoot;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Returns the authorities of all sources, each with the index of its source: sorted by kind, and
/// the authorities of executors in the order of the selection.
pub fn collect_authorities(
    selected: &[SelectedCapabilityRoot],
    sources: &[Arc<dyn SkillSource>],
) -> Result<Vec<(SourceKind, String, usize)>, SelectionError> {
    let mut authorities = Vec::new();
    for (index, source) in sources.iter().enumerate() {
        authorities.extend(
            source
                .authorities()
                .into_iter()
                .map(|id| (source.kind(), id, index)),
        );
    }
    let mut seen = HashSet::new();
    let duplicates = authorities
        .iter()
        .filter(|(kind, id, _)| !seen.insert((*kind, id)));
    let errors: Vec<_> = duplicates
        .map(|(kind, id, _)| {
            format!(
                "two sources answer for the {} authority {id:?}",
                kind.name()
            )
        })
        .collect();
    if !errors.is_empty() {
        return Err(SelectionError(errors));
    }
    let positions: HashMap<&str, usize> = selected
        .iter()
        .enumerate()
        .map(|(position, root)| (root.id.as_str(), position))
        .collect();
    authorities.sort_by_key(|(kind, id, _)| {
        let is_executor = *kind == SourceKind::Executor;
        (
            *kind,
            if is_executor {
                positions.get(id.as_str()).copied()
            } else {
                None
            },
        )
    });
    Ok(authorities)
}
