//! One block of header fields in HPACK, as its bytes come: finds the literals of `:authority` and has
//! them mended. Reads no more than where each field ends, and keeps no table: a field from the
//! table was mended when it came as a literal. Layouts: RFC 7541, sections 5 and 6.

use super::authority_value::AuthorityValue;

/// The field's name, and its place in the static table.
const AUTHORITY_NAME: &[u8] = b":authority";
const AUTHORITY_INDEX: u32 = 1;

/// The bytes are not what they should be, or this does not know what they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Http2ParseError;

/// Where in a block the next byte is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum HeaderBlockState {
    /// It begins a field.
    #[default]
    FieldStart,
    /// It begins a string, with its length.
    StringLength(StringRole),
    /// It goes on an integer that had no room in its first byte.
    Integer { value: u32, shift: u32, of: IntegerRole },
    /// It is of a string, of which so much is left.
    StringBytes { left: usize, text: HeaderString },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StringRole {
    Name,
    Value { is_authority: bool },
}

/// What an integer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IntegerRole {
    /// A field that is in a table whole, or the size of a table: nothing follows.
    NothingFollows,
    /// The name of a literal in a table; 0 where the name follows.
    NameIndex,
    /// The length of a string.
    StringLength { part: StringRole, huffman: bool },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HeaderString {
    /// A name, and whether it is `:authority` so far.
    Name(bool),
    Value(Option<AuthorityValue>),
}

impl HeaderBlockState {
    /// Goes on with the block's next bytes.
    pub(super) fn rewrite(&mut self, mut bytes: &mut [u8]) -> Result<(), Http2ParseError> {
        while let [first, ..] = *bytes {
            if let Self::StringBytes { left, text } = self {
                let (now, later) = bytes.split_at_mut(bytes.len().min(*left));
                text.rewrite(now, *left);
                *left -= now.len();
                bytes = later;
                if *left == 0 {
                    *self = text.next_state();
                }
            } else {
                *self = self.next_state(first)?;
                bytes = &mut bytes[1..];
            }
        }
        Ok(())
    }

    /// Whether the block may end here.
    pub(super) fn is_complete(&self) -> bool {
        *self == Self::FieldStart
    }

    fn next_state(&self, byte: u8) -> Result<Self, Http2ParseError> {
        match *self {
            Self::FieldStart if byte & 0b1000_0000 != 0 => {
                Ok(start_integer(byte, 0b0111_1111, IntegerRole::NothingFollows))
            }
            Self::FieldStart if byte & 0b0100_0000 != 0 => {
                Ok(start_integer(byte, 0b0011_1111, IntegerRole::NameIndex))
            }
            Self::FieldStart if byte & 0b0010_0000 != 0 => {
                Ok(start_integer(byte, 0b0001_1111, IntegerRole::NothingFollows))
            }
            Self::FieldStart => Ok(start_integer(byte, 0b0000_1111, IntegerRole::NameIndex)),
            Self::StringLength(part) => {
                let huffman = byte & 0b1000_0000 != 0;
                Ok(start_integer(byte, 0b0111_1111, IntegerRole::StringLength { part, huffman }))
            }
            // More than 28 bits, which no peer means; and no byte of a text comes here.
            Self::Integer { shift: 28.., .. } | Self::StringBytes { .. } => Err(Http2ParseError),
            Self::Integer { value, shift, of } => {
                let value = value + (u32::from(byte & 0b0111_1111) << shift);
                let goes_on = byte & 0b1000_0000 != 0;
                Ok(if goes_on {
                    Self::Integer { value, shift: shift + 7, of }
                } else {
                    of.next_state(value)
                })
            }
        }
    }
}

/// The first byte of an integer, which has the bits of `mask`.
fn start_integer(byte: u8, mask: u8, of: IntegerRole) -> HeaderBlockState {
    let value = u32::from(byte & mask);
    if byte & mask == mask {
        HeaderBlockState::Integer { value, shift: 0, of }
    } else {
        of.next_state(value)
    }
}

impl IntegerRole {
    fn next_state(self, value: u32) -> HeaderBlockState {
        match self {
            Self::NothingFollows => HeaderBlockState::FieldStart,
            Self::NameIndex if value == 0 => HeaderBlockState::StringLength(StringRole::Name),
            Self::NameIndex => HeaderBlockState::StringLength(StringRole::Value {
                is_authority: value == AUTHORITY_INDEX,
            }),
            Self::StringLength { part, huffman } => {
                let left = value as usize;
                let text = match part {
                    // Who spells the name out does not code it either.
                    StringRole::Name => {
                        HeaderString::Name(!huffman && left == AUTHORITY_NAME.len())
                    }
                    StringRole::Value { is_authority } => {
                        HeaderString::Value(is_authority.then(|| AuthorityValue::new(huffman)))
                    }
                };
                if left == 0 {
                    text.next_state()
                } else {
                    HeaderBlockState::StringBytes { left, text }
                }
            }
        }
    }
}

impl HeaderString {
    fn rewrite(&mut self, bytes: &mut [u8], left: usize) {
        match self {
            Self::Name(is_authority) => {
                *is_authority = *is_authority
                    && AUTHORITY_NAME[AUTHORITY_NAME.len() - left..].starts_with(bytes);
            }
            Self::Value(Some(literal)) => literal.rewrite(bytes),
            Self::Value(None) => {}
        }
    }

    fn next_state(&self) -> HeaderBlockState {
        match *self {
            Self::Name(is_authority) => {
                HeaderBlockState::StringLength(StringRole::Value { is_authority })
            }
            Self::Value(_) => HeaderBlockState::FieldStart,
        }
    }
}
