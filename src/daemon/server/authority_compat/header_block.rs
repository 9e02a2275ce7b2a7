//! Incremental parser of HPACK header blocks that rewrites literals of `:authority`. The parser
//! only tracks where fields end. A dynamic table is not needed, because each field in the table was
//! rewritten as a literal before. Layouts: RFC 7541, sections 5 and 6.

use super::authority_value::AuthorityValue;

/// Name of the field, and its index in the static table.
const AUTHORITY_NAME: &[u8] = b":authority";
const AUTHORITY_INDEX: u32 = 1;

/// Header block that arrives in pieces.
#[derive(Debug, Default)]
pub struct HeaderBlock(HeaderBlockState);

/// Meaning of the next byte.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum HeaderBlockState {
    /// First byte of a field.
    #[default]
    FieldStart,
    /// First byte of a string, with its length.
    StringLength(StringRole),
    /// Continuation byte of an integer.
    Integer {
        value: u32,
        shift: u32,
        role: IntegerRole,
    },
    /// Byte of a string.
    StringBytes {
        remaining: usize,
        string: HeaderString,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StringRole {
    Name,
    Value { is_authority: bool },
}

/// Meaning of an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IntegerRole {
    /// Index of a whole field, or size of the table. A new field follows.
    NothingFollows,
    /// Index of the name of a literal; 0 if the name follows as a string.
    NameIndex,
    /// Length of a string.
    StringLength { role: StringRole, huffman: bool },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HeaderString {
    /// Name, and whether its bytes so far match `:authority`.
    Name(bool),
    Value(Option<AuthorityValue>),
}

impl HeaderBlock {
    /// Parses and rewrites the next bytes of the block. Returns `None` for invalid or unsupported bytes.
    pub fn rewrite(&mut self, mut bytes: &mut [u8]) -> Option<()> {
        while let [first, ..] = *bytes {
            if let HeaderBlockState::StringBytes { remaining, string } = &mut self.0 {
                let (now, later) = bytes.split_at_mut(bytes.len().min(*remaining));
                string.rewrite(now, *remaining);
                *remaining -= now.len();
                bytes = later;
                if *remaining == 0 {
                    self.0 = string.next_state();
                }
            } else {
                self.0 = self.0.next_state(first)?;
                bytes = &mut bytes[1..];
            }
        }
        Some(())
    }

    /// Whether the block may end here.
    pub fn is_complete(&self) -> bool {
        self.0 == HeaderBlockState::FieldStart
    }
}

impl HeaderBlockState {
    fn next_state(&self, byte: u8) -> Option<Self> {
        use IntegerRole::{NameIndex, NothingFollows, StringLength};
        match *self {
            Self::FieldStart => Some(if byte & 0b1000_0000 != 0 {
                start_integer(byte, 0b0111_1111, NothingFollows)
            } else if byte & 0b0100_0000 != 0 {
                start_integer(byte, 0b0011_1111, NameIndex)
            } else if byte & 0b0010_0000 != 0 {
                start_integer(byte, 0b0001_1111, NothingFollows)
            } else {
                start_integer(byte, 0b0000_1111, NameIndex)
            }),

            Self::StringLength(role) => {
                let huffman = byte & 0b1000_0000 != 0;
                Some(start_integer(
                    byte,
                    0b0111_1111,
                    StringLength { role, huffman },
                ))
            }

            // Integers of more than 28 bits are not supported. `rewrite` consumes the bytes of
            // strings.
            Self::Integer { shift: 28.., .. } | Self::StringBytes { .. } => None,
            Self::Integer { value, shift, role } => {
                let sum = value + (u32::from(byte & 0b0111_1111) << shift);
                let continues = byte & 0b1000_0000 != 0;
                Some(if continues {
                    Self::Integer {
                        value: sum,
                        shift: shift + 7,
                        role,
                    }
                } else {
                    role.next_state(sum)
                })
            }
        }
    }
}

/// Parses the first byte of an integer, whose bits are those of `mask`.
fn start_integer(byte: u8, mask: u8, role: IntegerRole) -> HeaderBlockState {
    let value = u32::from(byte & mask);
    if byte & mask == mask {
        HeaderBlockState::Integer {
            value,
            shift: 0,
            role,
        }
    } else {
        role.next_state(value)
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
            Self::StringLength { role, huffman } => {
                let remaining = value as usize;
                let string = match role {
                    // No known client sends the name `:authority` in Huffman code.
                    StringRole::Name => {
                        HeaderString::Name(!huffman && remaining == AUTHORITY_NAME.len())
                    }
                    StringRole::Value { is_authority } => {
                        HeaderString::Value(is_authority.then(|| AuthorityValue::new(huffman)))
                    }
                };

                if remaining == 0 {
                    string.next_state()
                } else {
                    HeaderBlockState::StringBytes { remaining, string }
                }
            }
        }
    }
}

impl HeaderString {
    fn rewrite(&mut self, bytes: &mut [u8], remaining: usize) {
        match self {
            Self::Name(is_authority) => {
                *is_authority = *is_authority
                    && AUTHORITY_NAME[AUTHORITY_NAME.len() - remaining..].starts_with(bytes);
            }
            Self::Value(Some(value)) => value.rewrite(bytes),
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
