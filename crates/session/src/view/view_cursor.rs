//! Position in a view where a page begins.

use caproot_core::wire::cursor::{Cursor, CursorKind, CursorReader, CursorWriter};

/// Position in the skills of a view, or in the results of a search in the view. A cursor of results is
/// bound to its query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewCursor {
    /// Id of the view.
    pub view_id: u64,
    /// Number of skills before the page.
    pub index: u32,
}

impl ViewCursor {
    /// Maximum characters of an encoded cursor.
    pub const MAX_CHARS: usize = 31;
}

impl Cursor for ViewCursor {
    const KIND: CursorKind = CursorKind::SessionView;

    fn write_fields(&self, fields: &mut CursorWriter) {
        fields.write_hash(self.view_id);
        fields.write_number(self.index.into());
    }

    fn read_fields(fields: &mut CursorReader<'_>) -> Option<Self> {
        Some(Self {
            view_id: fields.read_hash()?,
            index: fields.read_small()?,
        })
    }
}
