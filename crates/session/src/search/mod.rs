//! Search in the listed skills of a session, by the words of names and descriptions. The first
//! search numbers the words of each skill, and a search after a change those of the changed skills. Each
//! search compares all numbers. Skills that the view does not list have no effect on results and scores.
//!
//! Begin with `view_index`. `query` has the words that a model searches, and `ranking` the order of the skills.

mod listing_terms;
mod misspelled_text;
mod page;
mod query;
mod ranking;
mod stop_words;
#[cfg(test)]
mod tests;
mod view_index;
mod words;

pub use page::{ResultRange, cursor_binding, search_page};
pub use query::SearchQuery;

use crate::view::session_view::SessionView;
use caproot_core::sync::Mutex;
use ranking::rank_skills;
use std::sync::Arc;
use view_index::ViewIndex;

/// Index of the view that a session searched last.
#[derive(Debug, Default)]
pub struct SessionSearch(Mutex<Option<Arc<ViewIndex>>>);

impl SessionSearch {
    /// Returns the positions of the found skills in a view, the best first; at most 100. Makes the
    /// index of the view if there is none, which takes long for a large catalog.
    pub fn find(&self, view: &SessionView, query: &SearchQuery) -> Vec<u32> {
        rank_skills(view, &self.index_of(view), query)
    }

    fn index_of(&self, view: &SessionView) -> Arc<ViewIndex> {
        // The lock is held while the index is made, so that concurrent searches make it once.
        let mut latest = self.0.lock();
        if let Some(index) = latest.as_ref().filter(|index| index.view_id == view.id) {
            return index.clone();
        }

        let index = Arc::new(ViewIndex::build(view, latest.as_deref()));
        *latest = Some(index.clone());
        index
    }
}
