//! Cursors and page tokens of the daemon.

use super::FileVersion;
use caproot_core::wire::RelPath;
use caproot_core::wire::cursor::{Cursor, CursorKind, CursorReader, CursorWriter, checksum};

/// Position in a paged read: a file version and a byte offset. Bound to the handle of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadCursor {
    /// Version of the file that the earlier pages were read from.
    pub version: FileVersion,
    /// Offset of the first byte of the next page.
    pub offset: u64,
}

impl Cursor for ReadCursor {
    const KIND: CursorKind = CursorKind::File;

    fn write_fields(&self, fields: &mut CursorWriter) {
        let FileVersion {
            device,
            inode,
            size,
            mtime,
            ctime,
        } = self.version;
        for number in [device, inode, size, self.offset] {
            fields.write_number(number);
        }
        for (seconds, nanos) in [mtime, ctime] {
            fields.write_signed(seconds);
            fields.write_number(nanos.into());
        }
    }

    fn read_fields(fields: &mut CursorReader<'_>) -> Option<Self> {
        let device = fields.read_number()?;
        let inode = fields.read_number()?;
        let size = fields.read_number()?;
        let offset = fields.read_number()?;
        let mut time = || Some((fields.read_signed()?, fields.read_small()?));
        let version = FileVersion {
            device,
            inode,
            size,
            mtime: time()?,
            ctime: time()?,
        };
        (offset <= size).then_some(Self { version, offset })
    }
}

/// Position in a paged list: a revision of one daemon and an item. Bound to the query of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageToken {
    /// Epoch of the daemon.
    pub epoch: u64,
    /// Revision that all pages show.
    pub revision: u64,
    /// Index of the next root in the request, and of the next item in the root's catalog.
    pub position: (usize, usize),
}

impl Cursor for PageToken {
    const KIND: CursorKind = CursorKind::Catalog;

    fn write_fields(&self, fields: &mut CursorWriter) {
        let (root, item) = self.position;
        fields.write_hash(self.epoch);
        fields.write_number(self.revision);
        fields.write_number(root as u64);
        fields.write_number(item as u64);
    }

    fn read_fields(fields: &mut CursorReader<'_>) -> Option<Self> {
        Some(Self {
            epoch: fields.read_hash()?,
            revision: fields.read_number()?,
            position: (fields.read_small()?, fields.read_small()?),
        })
    }
}

/// Position in a stream: a revision of one daemon and a checksum of the query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResumeToken {
    /// Epoch of the daemon.
    pub epoch: u64,
    /// Revision that the caller has.
    pub revision: u64,
    /// Checksum of the request's query. The caller may resume with a different query, which is no
    /// error.
    pub query_checksum: u64,
}

impl ResumeToken {
    /// Creates a token for a query, given the bytes that identify the query.
    #[must_use]
    pub fn new(epoch: u64, revision: u64, query: &[u8]) -> Self {
        Self {
            epoch,
            revision,
            query_checksum: checksum([query]),
        }
    }
}

impl Cursor for ResumeToken {
    const KIND: CursorKind = CursorKind::Stream;

    fn write_fields(&self, fields: &mut CursorWriter) {
        fields.write_hash(self.epoch);
        fields.write_number(self.revision);
        fields.write_hash(self.query_checksum);
    }

    fn read_fields(fields: &mut CursorReader<'_>) -> Option<Self> {
        Some(Self {
            epoch: fields.read_hash()?,
            revision: fields.read_number()?,
            query_checksum: fields.read_hash()?,
        })
    }
}

/// Position in a paged list of files. Bound to the query of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileListToken {
    /// Last listed file, below the package.
    pub last_file: RelPath,
    /// How many entries were visited up to the last file.
    pub entries_seen: u64,
    /// Whether a limit omitted an entry up to the last file.
    pub truncated: bool,
}

impl Cursor for FileListToken {
    const KIND: CursorKind = CursorKind::FileList;

    fn write_fields(&self, fields: &mut CursorWriter) {
        fields.write_number(self.truncated.into());
        fields.write_number(self.entries_seen);
        fields.write_bytes(self.last_file.as_bytes());
    }

    fn read_fields(fields: &mut CursorReader<'_>) -> Option<Self> {
        let truncated = fields.read_small::<u8>().filter(|flag| *flag <= 1)? == 1;
        let entries_seen = fields.read_number()?;
        let last_file = RelPath::new(fields.read_bytes()?).filter(|last| !last.is_root())?;
        Some(Self {
            last_file,
            entries_seen,
            truncated,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{FileListToken, PageToken, ReadCursor, ResumeToken};
    use crate::daemon::model::FileVersion;
    use caproot_core::wire::RelPath;
    use caproot_core::wire::cursor::Cursor;
    use proptest::prelude::*;

    fn check_round_trip<C: Cursor + PartialEq + std::fmt::Debug>(cursor: &C) {
        let text = cursor.encode(b"q");
        assert_eq!(C::decode(&text, b"q").as_ref(), Some(cursor));
        assert!(C::decode(&text, b"p").is_none());
        let decoded = [
            ReadCursor::decode(&text, b"q").is_some(),
            PageToken::decode(&text, b"q").is_some(),
            ResumeToken::decode(&text, b"q").is_some(),
            FileListToken::decode(&text, b"q").is_some(),
        ];
        assert_eq!(
            decoded.iter().filter(|is_some| **is_some).count(),
            1,
            "of one kind"
        );
    }

    #[test]
    fn an_offset_after_the_end_is_rejected() {
        let version = FileVersion {
            device: 1,
            inode: 2,
            size: 3,
            mtime: (4, 5),
            ctime: (6, 7),
        };
        for (offset, is_valid) in [(3, true), (4, false)] {
            let text = ReadCursor { version, offset }.encode(b"q");
            assert_eq!(ReadCursor::decode(&text, b"q").is_some(), is_valid);
        }
    }

    #[test]
    fn a_read_cursor_has_a_maximum_length() {
        let time = (i64::MIN, u32::MAX);
        let (device, inode, size) = (u64::MAX, u64::MAX, u64::MAX);
        let version = FileVersion {
            device,
            inode,
            size,
            mtime: time,
            ctime: time,
        };
        assert_eq!(
            ReadCursor {
                version,
                offset: size
            }
            .encode(b"q")
            .len(),
            107
        );
    }

    proptest! {
        #[test]
        fn read_cursors_round_trip(device: u64, inode: u64, size: u64, cut: u64, s: i64, n: u32) {
            let version = FileVersion { device, inode, size, mtime: (s, n), ctime: (!s, !n) };
            check_round_trip(&ReadCursor { version, offset: cut.min(size) });
        }

        #[test]
        fn file_list_tokens_round_trip(
            raw in proptest::collection::vec(any::<u8>(), 1..2_048), seen: u64, truncated: bool
        ) {
            if let Some(last_file) = RelPath::new(&raw) {
                check_round_trip(&FileListToken { last_file, entries_seen: seen, truncated });
            }
        }

        #[test]
        fn page_and_resume_tokens_round_trip(epoch: u64, revision: u64, position: (usize, usize), query: Vec<u8>) {
            check_round_trip(&PageToken { epoch, revision, position });
            check_round_trip(&ResumeToken::new(epoch, revision, &query));
        }
    }
}
