//! Pages of the results of a search, in the form of the list.

use crate::skills::result::ResultForm;
use crate::view::list::{SkillListPage, fill_page, page_warnings};
use crate::view::session_view::SessionView;
use crate::view::view_cursor::ViewCursor;
use caproot_core::wire::cursor::Cursor as _;

/// Returns the binding of the cursors of a query. The list has no binding, so that its cursors are no
/// cursors of a search.
pub fn cursor_binding(query: &str) -> String {
    format!("search {query}")
}

/// Part of the results that a page may have.
#[derive(Debug, Clone, Copy)]
pub struct ResultRange {
    /// Number of results before the page.
    pub begin: usize,
    /// Maximum number of results of the page.
    pub limit: usize,
}

/// Returns a page of the found skills, which are positions in the view. The first page has the warnings
/// of the view. The query is the binding of the cursor.
pub fn search_page<'a>(
    view: &'a SessionView,
    found: &[u32],
    range: ResultRange,
    query: &str,
    form: ResultForm,
) -> SkillListPage<'a> {
    let mut warnings = Vec::new();
    if range.begin == 0 {
        warnings = page_warnings(view);
        if found.is_empty() {
            warnings.push(form.names.fill_placeholders(
                "no skill has these words: try other words, such as synonyms, or call {list}",
            ));
        }
    }

    let rest = found.iter().skip(range.begin).take(range.limit);
    let page = fill_page(
        view,
        warnings,
        rest.map(|position| &view.skills[*position as usize]),
        form.max_bytes,
    );

    let end = range.begin + page.taken;
    let next = u32::try_from(end).ok().filter(|_| end < found.len());
    let next_cursor = next.map(|index| {
        let view_id = view.id;
        ViewCursor { view_id, index }.encode(cursor_binding(query).as_bytes())
    });
    page.finish(view, next_cursor)
}
