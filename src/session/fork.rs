//! A session of a session, for a thread or a subagent: the same sources, shared, and all of the selection
//! or a named part of it. Never more.

use super::lifecycle::SessionInner;
use super::{SelectionError, Session};
use std::collections::HashSet;
use std::sync::Arc;

/// What a fork takes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForkScope<'a> {
    /// All.
    All,
    /// Only the selected roots with these ids, and the other sources that answer for one of them.
    Only(&'a [&'a str]),
}

/// Why there is no fork. Displays as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForkError {
    /// The session is closed.
    #[error("the session is closed")]
    Closed,
    /// These are not in the session.
    #[error("not in the session, so a fork cannot have it: {0:?}")]
    NotSelected(Vec<String>),
    /// What is left is no selection.
    #[error(transparent)]
    Selection(#[from] SelectionError),
}

impl ForkScope<'_> {
    fn includes(self, id: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(ids) => ids.contains(&id),
        }
    }
}

impl Session {
    /// A session with an id of its own that has what this one has, or a named part of it. It shares the
    /// mirrors and their bounds of calls, so that it costs next to nothing and shows at once what this one
    /// shows. It has metrics of its own, is kept in the same store, and goes on when this one is closed.
    pub fn fork(&self, inherit: ForkScope<'_>) -> Result<Self, ForkError> {
        if self.is_closed() {
            return Err(ForkError::Closed);
        }
        if let ForkScope::Only(ids) = inherit {
            let known: HashSet<&str> = self.authorities.iter().map(|(_, id, _)| &**id).collect();
            let strange = ids.iter().filter(|id| !known.contains(**id));
            let strange: Vec<_> = strange.map(|id| (*id).to_owned()).collect();
            if !strange.is_empty() {
                return Err(ForkError::NotSelected(strange));
            }
        }
        let executors = self.executors.iter().filter_map(|executor| {
            if inherit == ForkScope::All {
                return Some(executor.clone());
            }
            executor.restricted_to(&|id| inherit.includes(id)).map(Arc::new)
        });
        let others = self.sources[self.executors.len()..].iter().filter(|source| {
            inherit == ForkScope::All || source.authorities().iter().any(|id| inherit.includes(id))
        });
        let selection = self.inner.selection.iter().filter(|root| inherit.includes(&root.id));
        let life = SessionInner::fork(&self.inner, selection.cloned().collect());
        let fork = Self::from_sources(executors.collect(), others.cloned().collect(), life)?;
        #[cfg(feature = "handlers")]
        let fork = Self { custom_tools: self.custom_tools.clone(), ..fork };
        Ok(fork)
    }
}
