//! Overwrites the characters that make a value of `:authority` a path, without changing its length.
//! Values arrive in pieces, plain or in the Huffman code of RFC 7541, appendix B. Authorities that
//! `h2` accepts stay unchanged, except for a percent sign in the user name.

/// Replacement of characters that no host name has.
const REPLACEMENT: u8 = b'-';

/// Value of `:authority` that arrives in pieces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthorityValue {
    Plain(PlainValueState),
    Huffman(HuffmanValueState),
}

/// Kind of a plain value, as far as its bytes so far tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlainValueState {
    /// No byte arrived yet.
    Empty,
    /// Possibly a valid authority.
    Name,
    /// Path: a percent sign or a slash arrived. All other characters that no host name has are
    /// overwritten, too.
    Path,
    /// IPv6 address, whose zone may contain a percent sign.
    Address,
}

/// Bits of an incomplete Huffman code.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HuffmanValueState {
    code: u32,
    bits: usize,
}

impl AuthorityValue {
    pub fn new(huffman: bool) -> Self {
        if huffman {
            Self::Huffman(HuffmanValueState::default())
        } else {
            Self::Plain(PlainValueState::Empty)
        }
    }

    /// Rewrites the next bytes of the value.
    pub fn rewrite(&mut self, bytes: &mut [u8]) {
        match self {
            Self::Plain(plain) => bytes.iter_mut().for_each(|byte| plain.rewrite(byte)),
            Self::Huffman(huffman) => bytes.iter_mut().for_each(|byte| huffman.rewrite(byte)),
        }
    }
}

impl PlainValueState {
    fn rewrite(&mut self, byte: &mut u8) {
        *self = match (&*self, *byte) {
            (Self::Address, _) | (Self::Empty, b'[') => Self::Address,
            (Self::Path, _) | (_, b'%' | b'/') => Self::Path,
            (Self::Empty | Self::Name, _) => Self::Name,
        };
        let is_host_char = byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
        if *self == Self::Path && !is_host_char {
            *byte = REPLACEMENT;
        }
    }
}

impl HuffmanValueState {
    /// Exclusive end of the codes of each length; 0 if no code has the length. The codes of one
    /// length are consecutive, and longer codes start with larger bits. So a code below the end is
    /// complete.
    const CODE_ENDS: [u32; 16] = [
        0, 0, 0, 0, 0, 0xa, 0x2e, 0x7c, 0xfe, 0, 0x3fd, 0x7fd, 0xffc, 0x1ffe, 0x3ffe, 0x7fff,
    ];

    /// Sets a bit in the code of a percent sign (010101), which becomes a dot (010111), and in the
    /// code of a slash (011000), which becomes a three (011001). The preceding bits identify both,
    /// so no byte has to wait for the next one. The code of a space (010100), which is also invalid
    /// in an authority, becomes a hyphen (010110).
    fn rewrite(&mut self, byte: &mut u8) {
        for bit in (0..8).rev() {
            let is_invalid = matches!((self.bits, self.code), (4, 0b0101) | (5, 0b01100));
            if is_invalid {
                *byte |= 1 << bit;
            }

            self.code = self.code << 1 | u32::from(*byte >> bit & 1);
            self.bits += 1;

            match Self::CODE_ENDS.get(self.bits) {
                Some(end) if self.code < *end => *self = Self::default(),
                Some(_) => {}
                // No character of a path has a code this long. Stop decoding.
                None => {
                    *self = Self {
                        code: 0,
                        bits: Self::CODE_ENDS.len(),
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
