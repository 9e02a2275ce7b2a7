//! Position in the results of a search.

use caproot_core::wire::cursor::{Cursor, CursorKind, CursorReader, CursorWriter};

/// Position in the results of a search in a view. The query is the binding of the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchCursor {
    /// Id of the view.
    pub view_id: u64,
    /// Number of results before the page.
    pub index: u32,
}

impl Cursor for SearchCursor {
    const KIND: CursorKind = CursorKind::SessionSearch;

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
