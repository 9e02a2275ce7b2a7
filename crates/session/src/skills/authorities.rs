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
/// order of the selection.
pub fn collect_authorities(
    selected: &[SelectedCapabilityRoot],
    sources: &[Arc<dyn SkillSource>],
) -> Result<Vec<SessionAuthority>, SelectionError> {
    let mut authorities = Vec::new();
    for (source_index, source) in sources.iter().enumerate() {
        let ids = source.authorities().into_iter();
        authorities.extend(ids.map(|id| SessionAuthority {
            kind: source.kind(),
            id,
            source_index,
        }));
    }
    check_unique(&authorities)?;

    let positions: HashMap<&str, usize> = selected
        .iter()
        .enumerate()
        .map(|(position, root)| (root.id.as_str(), position))
        .collect();

    // The sort is stable: other authorities keep the order of their sources.
    authorities.sort_by_key(|authority| {
        let position = match authority.kind {
            SourceKind::Executor => positions.get(authority.id.as_str()).copied(),
            SourceKind::Local | SourceKind::Mcp | SourceKind::Site => None,
        };
        (authority.kind, position)
    });

    Ok(authorities)
}

/// Checks that no two sources of one kind have an authority with one id.
fn check_unique(authorities: &[SessionAuthority]) -> Result<(), SelectionError> {
    let mut seen = HashSet::new();
    let duplicates = authorities
        .iter()
        .filter(|authority| !seen.insert((authority.kind, &authority.id)));

    let errors: Vec<_> = duplicates
        .map(|SessionAuthority { kind, id, .. }| {
            let kind_name = kind.name();
            format!("two sources answer for the {kind_name} authority {id:?}")
        })
        .collect();

    if errors.is_empty() {
        Ok(())
    } else {
        Err(SelectionError(errors))
    }
}
