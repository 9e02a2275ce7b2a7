//! View of a session: the skills of all sources that the session lists, with their precedence, and
//! the pages of `skills.list`.
//!
//! Begin with `session_view`, which makes one list of the snapshots of the sources.

pub mod arguments;
pub mod list;
pub mod session_view;
pub mod view_cursor;
