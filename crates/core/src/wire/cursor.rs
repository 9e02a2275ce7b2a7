//! Codec of cursors and page tokens: opaque to callers, and validated in full when a caller sends
//! one back. A cursor is the unpadded base64url text of: format version, kind, fields, checksum.
//! Cursors are not secret and not signed: their receiver verifies all contents again, so that a
//! forged cursor gains nothing.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Version of the format. Cursors of another version are rejected.
const FORMAT_VERSION: u8 = 1;
/// Maximum characters of a cursor: two URIs and their numbers.
const MAX_CURSOR_CHARS: usize = 12 << 10;
const CHECKSUM_BYTES: usize = 8;

/// Kind of a cursor. A cursor of one kind is rejected as a cursor of another kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum CursorKind {
    /// Position in a file of a daemon.
    File = 1,
    /// Position in the skills or plugins of a daemon.
    Catalog = 2,
    /// Position in a stream of changes.
    Stream = 3,
    /// Position in the files of a package.
    FileList = 4,
    /// Position in the skills of a view of a session, or in the results of a search in the view.
    SessionView = 5,
    /// Position in a file that was fetched whole and verified.
    VerifiedFile = 6,
    /// Position in a list of caproot's MCP server.
    McpList = 7,
    /// Position in the files of a skill of a session.
    SessionFiles = 8,
    /// Instruction text of a session.
    SessionText = 9,
    /// Position in a result of a plugin's MCP server.
    ServerResult = 10,
}

/// Position that a cursor holds.
pub trait Cursor: Sized {
    /// Kind of the cursor.
    const KIND: CursorKind;

    /// Writes the fields of the position.
    fn write_fields(&self, fields: &mut CursorWriter);

    /// Reads the fields in the same order. Returns `None` if a value is invalid.
    fn read_fields(fields: &mut CursorReader<'_>) -> Option<Self>;

    /// Encodes the cursor. A decoder needs the same `binding`, such as the query of a list.
    #[must_use]
    fn encode(&self, binding: &[u8]) -> String {
        let mut writer = CursorWriter(vec![FORMAT_VERSION, Self::KIND as u8]);
        self.write_fields(&mut writer);
        let CursorWriter(mut bytes) = writer;
        let check = checksum([&*bytes, binding]);
        bytes.extend(check.to_be_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Decodes a cursor. Returns `None` if the text is not exactly a cursor of this kind and
    /// binding.
    #[must_use]
    fn decode(text: &str, binding: &[u8]) -> Option<Self> {
        if text.len() > MAX_CURSOR_CHARS {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (body, stated) = bytes.split_last_chunk::<CHECKSUM_BYTES>()?;
        if checksum([body, binding]).to_be_bytes() != *stated {
            return None;
        }
        let mut fields = CursorReader(body.strip_prefix(&[FORMAT_VERSION, Self::KIND as u8])?);
        let cursor = Self::read_fields(&mut fields)?;
        fields.0.is_empty().then_some(cursor)
    }
}

/// Returns a checksum that detects corruption and another binding. The checksum is no signature,
/// so the 64-bit FNV-1a hash is enough.
#[must_use]
pub fn checksum<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let bytes = parts.into_iter().flatten();
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Writer of the fields of a cursor.
#[derive(Debug)]
pub struct CursorWriter(Vec<u8>);

impl CursorWriter {
    /// Writes a number, in seven bits a byte.
    pub fn write_number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }

    /// Writes a signed number, small values in few bytes.
    pub fn write_signed(&mut self, number: i64) {
        self.write_number(((number << 1) ^ (number >> 63)).cast_unsigned());
    }

    /// Writes a number that is as large as any other number, such as a hash.
    pub fn write_hash(&mut self, hash: u64) {
        self.0.extend(hash.to_be_bytes());
    }

    /// Writes bytes with their length.
    pub fn write_bytes(&mut self, bytes: &[u8]) {
        self.write_number(bytes.len() as u64);
        self.0.extend(bytes);
    }
}

/// Reader of the fields of a cursor. Each value has one encoding.
#[derive(Debug)]
pub struct CursorReader<'a>(&'a [u8]);

impl<'a> CursorReader<'a> {
    /// Reads a number.
    pub fn read_number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..u64::BITS).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            // A number with lost bits or with a zero at the end would have a second encoding.
            if bits << shift >> shift != bits || (*byte == 0 && shift > 0) {
                return None;
            }
            number |= bits << shift;
            if *byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// Reads a number of a smaller type.
    pub fn read_small<T: TryFrom<u64>>(&mut self) -> Option<T> {
        T::try_from(self.read_number()?).ok()
    }

    /// Reads a signed number.
    pub fn read_signed(&mut self) -> Option<i64> {
        let number = self.read_number()?;
        Some((number >> 1).cast_signed() ^ -((number & 1).cast_signed()))
    }

    /// Reads a hash.
    pub fn read_hash(&mut self) -> Option<u64> {
        let (hash, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*hash))
    }

    /// Reads bytes with their length.
    pub fn read_bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.read_small()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Reads text with its length.
    pub fn read_text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.read_bytes()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        CHECKSUM_BYTES, Cursor, CursorKind, CursorReader, CursorWriter, FORMAT_VERSION, checksum,
    };
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use proptest::prelude::*;

    #[derive(Debug, PartialEq, Eq)]
    struct AllFields(u64, u32, u64, Vec<u8>, String, i64);

    impl Cursor for AllFields {
        const KIND: CursorKind = CursorKind::File;

        fn write_fields(&self, fields: &mut CursorWriter) {
            fields.write_number(self.0);
            fields.write_number(self.1.into());
            fields.write_hash(self.2);
            fields.write_bytes(&self.3);
            fields.write_bytes(self.4.as_bytes());
            fields.write_signed(self.5);
        }

        fn read_fields(fields: &mut CursorReader<'_>) -> Option<Self> {
            Some(Self(
                fields.read_number()?,
                fields.read_small()?,
                fields.read_hash()?,
                fields.read_bytes()?.to_vec(),
                fields.read_text()?.to_owned(),
                fields.read_signed()?,
            ))
        }
    }

    #[derive(Debug, PartialEq, Eq)]
    struct OtherKind(AllFields);

    impl Cursor for OtherKind {
        const KIND: CursorKind = CursorKind::Catalog;

        fn write_fields(&self, fields: &mut CursorWriter) {
            self.0.write_fields(fields);
        }

        fn read_fields(fields: &mut CursorReader<'_>) -> Option<Self> {
            AllFields::read_fields(fields).map(Self)
        }
    }

    /// Returns the text of a cursor with these fields and a valid checksum.
    fn forge(version: u8, kind: u8, fields: &[u8], binding: &[u8]) -> String {
        let body = [&[version, kind], fields].concat();
        let check = checksum([&*body, binding]).to_be_bytes();
        URL_SAFE_NO_PAD.encode([&*body, &check].concat())
    }

    #[test]
    fn long_and_short_texts_are_rejected() {
        let long = AllFields(0, 0, 0, vec![0; 16 << 10], String::new(), 0);
        for text in [
            "",
            "A",
            "AAAA",
            "=",
            &"A".repeat(1 << 20),
            &long.encode(b""),
        ] {
            assert_eq!(AllFields::decode(text, b""), None);
        }
        let fits = AllFields(0, 0, 0, vec![0; 8 << 10], String::new(), 0);
        assert!(AllFields::decode(&fits.encode(b""), b"").is_some());
    }

    #[test]
    fn a_number_has_one_encoding() {
        let rest = [0_u8; 12];
        for (number, expected) in [
            (&[0x05][..], Some(5)),
            (&[0x80, 0x01], Some(128)),
            (&[0x85, 0x00], None),
            (&[0x80, 0x80, 0x00], None),
            (
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
                Some(u64::MAX),
            ),
            (
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x03],
                None,
            ),
            (&[0xff; 11], None),
        ] {
            let text = forge(FORMAT_VERSION, 1, &[number, &rest[..]].concat(), b"");
            let decoded = AllFields::decode(&text, b"").map(|cursor| cursor.0);
            assert_eq!(decoded, expected, "{number:x?}");
        }
    }

    proptest! {
        /// Law: `decode(encode(cursor)) == cursor`, for the same kind and binding only.
        #[test]
        fn encoded_cursor_is_decoded(
            a: u64, b: u32, c: u64, d: Vec<u8>, e: String, f: i64, binding: Vec<u8>, other: Vec<u8>
        ) {
            let cursor = AllFields(a, b, c, d, e, f);
            let text = cursor.encode(&binding);
            if binding != other {
                prop_assert_eq!(AllFields::decode(&text, &other), None);
            }
            prop_assert_eq!(OtherKind::decode(&text, &binding), None);
            prop_assert_eq!(AllFields::decode(&text, &binding), Some(cursor));
        }

        /// Law: any bytes are no cursor, or are the text of the decoded cursor.
        #[test]
        fn forged_cursor_is_rejected_or_canonical(
            version in 0_u8..3, kind in 0_u8..3, fields in prop::collection::vec(
                prop_oneof![Just(0_u8), Just(1), Just(0x80), any::<u8>()], 0..40
            )
        ) {
            let text = forge(version, kind, &fields, b"q");
            if let Some(cursor) = AllFields::decode(&text, b"q") {
                prop_assert_eq!(cursor.encode(b"q"), text);
            }
        }

        #[test]
        fn corrupted_cursor_is_rejected(a: u64, d: Vec<u8>, at: prop::sample::Index, flip in 1_u8..128) {
            let cursor = AllFields(a, 7, 7, d, String::new(), -7);
            let mut text = cursor.encode(b"q").into_bytes();
            let at = at.index(text.len());
            text[at] = (text[at] ^ flip) & 0x7f;
            let text = String::from_utf8(text).expect("ASCII");
            prop_assert_eq!(AllFields::decode(&text, b"q"), None);
            prop_assert!(text.len() > CHECKSUM_BYTES);
        }

        #[test]
        fn any_text_is_handled(text: String) {
            prop_assert_eq!(AllFields::decode(&text, b""), None);
        }
    }
}
