//! One value of `:authority`, as its bytes come: what makes it a path is overwritten, in as many
//! bytes. An authority that `h2` takes stays as it is, but for a percent sign in its user name.
//! Plain or in the Huffman code of RFC 7541, appendix B.

/// What a byte that may not stay becomes.
const REPLACEMENT: u8 = b'-';

/// A value in which there may be something to overwrite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AuthorityValue {
    Plain(PlainValueState),
    Huffman(HuffmanValueState),
}

/// What the bytes so far say of the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PlainValueState {
    /// There was none yet.
    Empty,
    /// It may be an authority.
    Name,
    /// There was a percent sign or a slash: whatever else no host's name has goes, too.
    Path,
    /// An IPv6 address, whose zone may have a percent sign.
    Address,
}

/// The bits so far of the character that is not complete yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct HuffmanValueState {
    code: u32,
    bits: usize,
}

impl AuthorityValue {
    pub(super) fn new(huffman: bool) -> Self {
        if huffman {
            Self::Huffman(HuffmanValueState::default())
        } else {
            Self::Plain(PlainValueState::Empty)
        }
    }

    /// Goes on with the value's next bytes.
    pub(super) fn rewrite(&mut self, bytes: &mut [u8]) {
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
        let may_stay = byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
        if *self == Self::Path && !may_stay {
            *byte = REPLACEMENT;
        }
    }
}

impl HuffmanValueState {
    /// One more than the last code of each length; 0 where no code has it. The codes of a length
    /// follow one upon the other, and longer ones begin with more, so that these tell where each
    /// code ends.
    const CODE_ENDS: [u32; 16] =
        [0, 0, 0, 0, 0, 0xa, 0x2e, 0x7c, 0xfe, 0, 0x3fd, 0x7fd, 0xffc, 0x1ffe, 0x3ffe, 0x7fff];

    /// Turns the last two bits of a percent sign (010101) to make it a dot (010111), and the last
    /// of a slash (011000) to make it a three (011001). Of these bits each can be told by what is
    /// before it, so that no byte must wait for the next; a space (010100) becomes a hyphen (010110)
    /// by that, and is no part of an authority either.
    fn rewrite(&mut self, byte: &mut u8) {
        for place in (0..8).rev() {
            let in_question = matches!((self.bits, self.code), (4, 0b0101) | (5, 0b01100));
            if in_question {
                *byte |= 1 << place;
            }
            self.code = self.code << 1 | u32::from(*byte >> place & 1);
            self.bits += 1;
            match Self::CODE_ENDS.get(self.bits) {
                Some(end) if self.code < *end => *self = Self::default(),
                Some(_) => {}
                // No character of a path: from here on nothing is told apart.
                None => *self = Self { code: 0, bits: Self::CODE_ENDS.len() },
            }
        }
    }
}

#[cfg(test)]
mod tests;
