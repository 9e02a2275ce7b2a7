//! `skills.search`: pages of the skills that fit keywords.

use crate::search::{ResultRange, SearchQuery, cursor_binding, search_page};
use crate::skills::result::{ToolError, ToolErrorCode, ToolResult};
use crate::state::Session;
use crate::uses::usage::UsageKind;
use crate::view::arguments::{
    DEFAULT_SEARCH_LIMIT, MAX_QUERY_CHARS, MAX_SEARCH_LIMIT, parse_arguments, read_number,
    read_text, read_words,
};
use crate::view::session_view::SessionView;
use crate::view::view_cursor::ViewCursor;
use caproot_core::proto::caproot::v1::Skill;
use caproot_core::sync::run_blocking;
use caproot_core::wire::cursor::Cursor as _;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

/// Arguments of `skills.search`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchArguments {
    #[serde(deserialize_with = "read_words")]
    query: String,
    #[serde(default, deserialize_with = "read_number")]
    limit: Option<u32>,
    #[serde(default, deserialize_with = "read_text")]
    cursor: Option<String>,
}

impl Session {
    /// Returns the listed skills that fit keywords or a name, the best first; at most `limit`, and at
    /// most 100. A model gets the same skills by the tool `skills.search`. Needs a tokio runtime.
    ///
    /// Write keywords, and not a whole sentence: the action, the object, the file type, and the names of
    /// products.
    ///
    /// The error is [`ToolErrorCode::InvalidArguments`] if the query has over 400 characters or no word to
    /// search for, and [`ToolErrorCode::SessionClosed`] once the session is closed.
    pub async fn search_skills(
        &self,
        query: &str,
        limit: usize,
    ) -> Result<Vec<Arc<Skill>>, ToolError> {
        let view = self.current_view();
        let ranking = self.rank_skills(&view, query);
        let positions = self.inner.run_until_closed(ranking).await??;
        let found: Vec<_> = positions
            .into_iter()
            .take(limit)
            .map(|position| view.skills[position as usize].clone())
            .collect();

        self.inner.usage.record(UsageKind::Searched, &found);
        Ok(found)
    }

    /// Returns the result of the tool for these arguments.
    pub(crate) async fn call_search(&self, arguments: &Value) -> Result<ToolResult, ToolError> {
        let SearchArguments {
            query,
            limit,
            cursor,
        } = parse_arguments(arguments)?;
        if limit == Some(0) {
            return Err(ToolError::with_hint(
                ToolErrorCode::InvalidArguments,
                &format!("`limit` is 0; expected 1 to {MAX_SEARCH_LIMIT}"),
                "Call {search} again with a limit in the range, or without a limit.",
            ));
        }
        // A page may have fewer skills than requested in any case.
        let limit = limit.unwrap_or(DEFAULT_SEARCH_LIMIT).min(MAX_SEARCH_LIMIT);
        let mut range = ResultRange {
            begin: 0,
            limit: limit as usize,
        };

        let form = self.inner.options.result_form();
        let view = match cursor {
            None => self.current_view(),
            Some(cursor) => {
                let cursor = ViewCursor::decode(&cursor, cursor_binding(&query).as_bytes());
                let cursor = cursor.ok_or_else(|| {
                    let message = "{search} returned no such cursor for this query";
                    let message = form.names.fill_placeholders(message);
                    ToolError::from_code(ToolErrorCode::InvalidCursor, &message)
                })?;
                range.begin = cursor.index as usize;
                let hint = "Call {search} again without `cursor`, from the start.";
                self.find_cached_view(cursor.view_id, hint)?
            }
        };

        let positions = self.rank_skills(&view, &query).await?;
        let page = search_page(&view, &positions, range, &query, form);
        self.inner
            .usage
            .record(UsageKind::Searched, page.shared_skills());
        Ok(ToolResult::from_outcome(Ok(&page), form))
    }

    /// Returns the positions of the found skills in a view, the best first.
    async fn rank_skills(
        &self,
        view: &Arc<SessionView>,
        query: &str,
    ) -> Result<Vec<u32>, ToolError> {
        let Some(query) = SearchQuery::parse(query) else {
            let message = format!("the query has over {MAX_QUERY_CHARS} characters");
            return Err(invalid_query(&message));
        };
        let has_terms = !query.terms.is_empty();

        // The first search of a large catalog takes too long for a thread of the runtime.
        let search = self.search.clone();
        let view = view.clone();
        let ranked = run_blocking(move || search.find(&view, &query)).await;
        let ranked = ranked.map_err(|error| {
            let message = format!("the search did not run: {error}");
            ToolError::from_code(ToolErrorCode::Overloaded, &message)
        })?;

        // A name may consist of words that are no terms.
        if ranked.is_empty() && !has_terms {
            return Err(invalid_query("the query has no word to search for"));
        }
        Ok(ranked)
    }
}

fn invalid_query(message: &str) -> ToolError {
    let hint = "Call {search} again with 3 to 8 keywords, such as `pdf form fill extract`.";
    ToolError::with_hint(ToolErrorCode::InvalidArguments, message, hint)
}
