//! Selection of roots of a session, and its errors.

use caproot_core::proto::caproot::v1::SelectedCapabilityRoot;
use caproot_core::wire::RootId;
use std::collections::HashMap;

/// Invalid selection of roots, sources or tools. Displays as sentences.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct SelectionError(pub(crate) Vec<String>);

impl SelectionError {
    /// Returns all mistakes, one sentence each.
    #[must_use]
    pub fn sentences(&self) -> &[String] {
        &self.0
    }
}

/// Returns the selected roots without duplicates, or all errors of the selection.
pub fn check_selection(
    selection: Vec<SelectedCapabilityRoot>,
) -> Result<Vec<SelectedCapabilityRoot>, SelectionError> {
    let mut errors = Vec::new();
    let mut seen: HashMap<String, SelectedCapabilityRoot> = HashMap::new();
    let mut roots = Vec::new();

    for root in selection {
        let id = root.id.as_str();
        if let Err(reason) = RootId::new(id) {
            errors.push(format!("the root id {id:?} {reason}"));
        } else if let Some(before) = seen.get(id) {
            if *before != root {
                errors.push(format!(
                    "two roots with different locations have the id {id:?}"
                ));
            }
        } else {
            seen.insert(id.to_owned(), root.clone());
            roots.push(root);
        }
    }

    if errors.is_empty() {
        Ok(roots)
    } else {
        Err(SelectionError(errors))
    }
}
