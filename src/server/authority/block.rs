//! One block of header fields in HPACK, as its bytes come: finds the literals of `:authority` and has
//! them mended. Reads no more than where each field ends, and keeps no table: a field from the
//! table was mended when it came as a literal. Layouts: RFC 7541, sections 5 and 6.

use super::literal::Literal;

/// The field's name, and its place in the static table.
const NAME: &[u8] = b":authority";
const INDEX: u32 = 1;

/// The bytes are not what they should be, or this does not know what they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Doubt;

/// Where in a block the next byte is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Block {
    /// It begins a field.
    #[default]
    Field,
    /// It begins a string, with its length.
    Length(Part),
    /// It goes on an integer that had no room in its first byte.
    Integer { value: u32, shift: u32, of: Integer },
    /// It is of a string, of which so much is left.
    Text { left: usize, text: Text },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Name,
    Value { is_authority: bool },
}

/// What an integer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Integer {
    /// A field that is in a table whole, or the size of a table: nothing follows.
    Whole,
    /// The name of a literal in a table; 0 where the name follows.
    Index,
    /// The length of a string.
    Length { part: Part, huffman: bool },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Text {
    /// A name, and whether it is `:authority` so far.
    Name(bool),
    Value(Option<Literal>),
}

impl Block {
    /// Goes on with the block's next bytes.
    pub(super) fn mend(&mut self, mut bytes: &mut [u8]) -> Result<(), Doubt> {
        while let [first, ..] = *bytes {
            if let Self::Text { left, text } = self {
                let (now, later) = bytes.split_at_mut(bytes.len().min(*left));
                text.mend(now, *left);
                *left -= now.len();
                bytes = later;
                if *left == 0 {
                    *self = text.after();
                }
            } else {
                *self = self.after(first)?;
                bytes = &mut bytes[1..];
            }
        }
        Ok(())
    }

    /// Whether the block may end here.
    pub(super) fn is_whole(&self) -> bool {
        *self == Self::Field
    }

    fn after(&self, byte: u8) -> Result<Self, Doubt> {
        match *self {
            Self::Field if byte & 0b1000_0000 != 0 => Ok(begin(byte, 0b0111_1111, Integer::Whole)),
            Self::Field if byte & 0b0100_0000 != 0 => Ok(begin(byte, 0b0011_1111, Integer::Index)),
            Self::Field if byte & 0b0010_0000 != 0 => Ok(begin(byte, 0b0001_1111, Integer::Whole)),
            Self::Field => Ok(begin(byte, 0b0000_1111, Integer::Index)),
            Self::Length(part) => {
                let huffman = byte & 0b1000_0000 != 0;
                Ok(begin(byte, 0b0111_1111, Integer::Length { part, huffman }))
            }
            // More than 28 bits, which no peer means; and no byte of a text comes here.
            Self::Integer { shift: 28.., .. } | Self::Text { .. } => Err(Doubt),
            Self::Integer { value, shift, of } => {
                let value = value + (u32::from(byte & 0b0111_1111) << shift);
                let goes_on = byte & 0b1000_0000 != 0;
                Ok(if goes_on {
                    Self::Integer { value, shift: shift + 7, of }
                } else {
                    of.after(value)
                })
            }
        }
    }
}

/// The first byte of an integer, which has the bits of `mask`.
fn begin(byte: u8, mask: u8, of: Integer) -> Block {
    let value = u32::from(byte & mask);
    if byte & mask == mask { Block::Integer { value, shift: 0, of } } else { of.after(value) }
}

impl Integer {
    fn after(self, value: u32) -> Block {
        match self {
            Self::Whole => Block::Field,
            Self::Index if value == 0 => Block::Length(Part::Name),
            Self::Index => Block::Length(Part::Value { is_authority: value == INDEX }),
            Self::Length { part, huffman } => {
                let left = value as usize;
                let text = match part {
                    // Who spells the name out does not code it either.
                    Part::Name => Text::Name(!huffman && left == NAME.len()),
                    Part::Value { is_authority } => {
                        Text::Value(is_authority.then(|| Literal::new(huffman)))
                    }
                };
                if left == 0 { text.after() } else { Block::Text { left, text } }
            }
        }
    }
}

impl Text {
    fn mend(&mut self, bytes: &mut [u8], left: usize) {
        match self {
            Self::Name(is_authority) => {
                *is_authority = *is_authority && NAME[NAME.len() - left..].starts_with(bytes);
            }
            Self::Value(Some(literal)) => literal.mend(bytes),
            Self::Value(None) => {}
        }
    }

    fn after(&self) -> Block {
        match *self {
            Self::Name(is_authority) => Block::Length(Part::Value { is_authority }),
            Self::Value(_) => Block::Field,
        }
    }
}
