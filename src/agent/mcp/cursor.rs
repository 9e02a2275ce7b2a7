//! Cursors of lists. A cursor has the sort key of the last entry, so that a list that changes
//! between two pages resumes at the same position.

use caproot_core::wire::cursor::{Cursor, CursorKind, CursorReader, CursorWriter};

/// List of a cursor. A cursor of another list is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListKind<'a> {
    Resources,
    Skills,
    Prompts,
    /// Children of the directory at this URI.
    Directory(&'a str),
}

/// Position after an entry: root index, name and package of the entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpListCursor(pub usize, pub String, pub String);

impl ListKind<'_> {
    /// Encodes the cursor after an entry with this sort key.
    pub fn encode_cursor(self, (root, name, package): (usize, &str, &str)) -> String {
        McpListCursor(root, name.to_owned(), package.to_owned()).encode(&self.binding())
    }

    /// Decodes a cursor of this list. Returns `None` if the cursor is invalid.
    pub fn decode_cursor(self, cursor: &str) -> Option<McpListCursor> {
        McpListCursor::decode(cursor, &self.binding())
    }

    fn binding(self) -> Vec<u8> {
        match self {
            Self::Resources => b"resources".into(),
            Self::Skills => b"skills".into(),
            Self::Prompts => b"prompts".into(),
            Self::Directory(uri) => format!("directory {uri}").into(),
        }
    }
}

impl Cursor for McpListCursor {
    const KIND: CursorKind = CursorKind::McpList;

    fn write_fields(&self, fields: &mut CursorWriter) {
        fields.write_number(self.0 as u64);
        fields.write_bytes(self.1.as_bytes());
        fields.write_bytes(self.2.as_bytes());
    }

    fn read_fields(fields: &mut CursorReader<'_>) -> Option<Self> {
        Some(Self(
            fields.read_small()?,
            fields.read_text()?.to_owned(),
            fields.read_text()?.to_owned(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::{ListKind, McpListCursor};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_cursor_is_decoded_by_its_list_only(root: usize, name: String, package: String) {
            let lists = [
                ListKind::Resources,
                ListKind::Skills,
                ListKind::Prompts,
                ListKind::Directory("skill://r/a"),
                ListKind::Directory("skill://r/b"),
            ];
            for list in lists {
                let text = list.encode_cursor((root, &name, &package));
                for other in lists {
                    let cursor = McpListCursor(root, name.clone(), package.clone());
                    prop_assert_eq!(other.decode_cursor(&text), (other == list).then_some(cursor));
                }
            }
        }
    }
}
