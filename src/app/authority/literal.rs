//! One value of `:authority`, as its bytes come: what makes it a path is overwritten, in as many
//! bytes. An authority that `h2` takes stays as it is, but for a percent sign in its user name.
//! Plain or in the Huffman code of RFC 7541, appendix B.

/// What a byte that may not stay becomes.
const INSTEAD: u8 = b'-';

/// A value in which there may be something to overwrite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Literal {
    Plain(Plain),
    Huffman(Huffman),
}

/// What the bytes so far say of the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Plain {
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
pub(super) struct Huffman {
    code: u32,
    bits: usize,
}

impl Literal {
    pub(super) fn new(huffman: bool) -> Self {
        if huffman { Self::Huffman(Huffman::default()) } else { Self::Plain(Plain::Empty) }
    }

    /// Goes on with the value's next bytes.
    pub(super) fn mend(&mut self, bytes: &mut [u8]) {
        match self {
            Self::Plain(plain) => bytes.iter_mut().for_each(|byte| plain.mend(byte)),
            Self::Huffman(huffman) => bytes.iter_mut().for_each(|byte| huffman.mend(byte)),
        }
    }
}

impl Plain {
    fn mend(&mut self, byte: &mut u8) {
        *self = match (&*self, *byte) {
            (Self::Address, _) | (Self::Empty, b'[') => Self::Address,
            (Self::Path, _) | (_, b'%' | b'/') => Self::Path,
            (Self::Empty | Self::Name, _) => Self::Name,
        };
        let may_stay = byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
        if *self == Self::Path && !may_stay {
            *byte = INSTEAD;
        }
    }
}

impl Huffman {
    /// One more than the last code of each length; 0 where no code has it. The codes of a length
    /// follow one upon the other, and longer ones begin with more, so that these tell where each
    /// code ends.
    const ENDS: [u32; 16] =
        [0, 0, 0, 0, 0, 0xa, 0x2e, 0x7c, 0xfe, 0, 0x3fd, 0x7fd, 0xffc, 0x1ffe, 0x3ffe, 0x7fff];

    /// Turns the last two bits of a percent sign (010101) to make it a dot (010111), and the last
    /// of a slash (011000) to make it a three (011001). Of these bits each can be told by what is
    /// before it, so that no byte must wait for the next; a space (010100) becomes a hyphen (010110)
    /// by that, and is no part of an authority either.
    fn mend(&mut self, byte: &mut u8) {
        for place in (0..8).rev() {
            let in_question = matches!((self.bits, self.code), (4, 0b0101) | (5, 0b01100));
            if in_question {
                *byte |= 1 << place;
            }
            self.code = self.code << 1 | u32::from(*byte >> place & 1);
            self.bits += 1;
            match Self::ENDS.get(self.bits) {
                Some(end) if self.code < *end => *self = Self::default(),
                Some(_) => {}
                // No character of a path: from here on nothing is told apart.
                None => *self = Self { code: 0, bits: Self::ENDS.len() },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Literal;
    use http::uri::Authority;
    use proptest::prelude::*;

    /// The characters of each length of code, and the first code of that length.
    const CODES: &[(usize, u32, &str)] = &[
        (5, 0x0, "012aceiost"),
        (6, 0x14, " %-./3456789=A_bdfghlmnpru"),
        (7, 0x5c, ":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
        (8, 0xf8, "&*,;XZ"),
        (10, 0x3f8, "!\"()?"),
        (11, 0x7fa, "'+|"),
        (12, 0xffa, "#>"),
        (13, 0x1ff8, "\0$@[]~"),
        (14, 0x3ffc, "^}"),
        (15, 0x7ffc, "<`{"),
    ];

    fn codes() -> impl Iterator<Item = (char, String)> {
        CODES.iter().flat_map(|(bits, first, chars)| {
            let code = move |(c, code): (char, u32)| (c, format!("{code:0bits$b}"));
            chars.chars().zip(*first..).map(code)
        })
    }

    fn encode(text: &str) -> Vec<u8> {
        let code = |c| codes().find(|(known, _)| *known == c).expect("a character with a code").1;
        let bits: String = text.chars().map(code).collect();
        let padded = bits.len().next_multiple_of(8);
        let bits = format!("{bits:1<padded$}");
        bits.as_bytes()
            .chunks(8)
            .map(|byte| {
                u8::from_str_radix(std::str::from_utf8(byte).expect("bits"), 2).expect("bits")
            })
            .collect()
    }

    fn decode(bytes: &[u8]) -> String {
        let bits: Vec<_> = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
        let bits = bits.concat();
        let (mut rest, mut text) = (bits.as_str(), String::new());
        while let Some((c, code)) = codes().find(|(_, code)| rest.starts_with(code.as_str())) {
            text.push(c);
            rest = &rest[code.len()..];
        }
        assert!(rest.len() < 8 && !rest.contains('0'), "padding: {rest:?} after {text:?}");
        text
    }

    fn plain(value: &str) -> String {
        let mut bytes = value.as_bytes().to_vec();
        Literal::new(false).mend(&mut bytes);
        String::from_utf8(bytes).expect("text")
    }

    fn huffman(value: &str) -> String {
        let mut bytes = encode(value);
        Literal::new(true).mend(&mut bytes);
        decode(&bytes)
    }

    #[test]
    fn paths_become_names() {
        assert_eq!(plain("run%2Fcaproot%2Fa-b.c%20d.sock"), "run-2Fcaproot-2Fa-b.c-20d.sock");
        assert_eq!(plain("/run/a@b:c:[d]/ü.sock"), "-run-a-b-c--d---".to_owned() + "-.sock");
        assert_eq!(huffman("run%2Fcaproot%2Fa-b.c%20d.sock"), "run.2Fcaproot.2Fa-b.c.20d.sock");
        assert_eq!(huffman("/run/~a b.sock"), "3run3~a-b.sock");
    }

    #[test]
    fn authorities_stay() {
        for value in ["localhost", "localhost:80", "[::1]:50051", "[fe80::1%25eth0]", "me@host:1"] {
            assert_eq!(plain(value), value);
        }
        for value in ["localhost", "localhost:80", "[::1]:50051", "me@host:1", "~!$&'()*+,;=_"] {
            assert_eq!(huffman(value), value);
        }
    }

    #[test]
    fn an_unknown_code_ends_the_search() {
        // A backslash has 19 bits.
        let mut bytes = [&[0xff, 0xfe, 0x1f], encode("%2F%2F").as_slice()].concat();
        let before = bytes.clone();
        Literal::new(true).mend(&mut bytes);
        assert_eq!(bytes, before);
    }

    proptest! {
        /// As grpcio encodes the path of a socket.
        #[test]
        fn every_encoded_path_is_taken(path in r"/[a-zA-Z0-9 ._~%é漢-]{1,20}(/[\PC&&[^/]]{1,20}){1,4}") {
            const BARE: percent_encoding::AsciiSet = percent_encoding::NON_ALPHANUMERIC
                .remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'!').remove(b'$')
                .remove(b'&').remove(b'\'').remove(b'(').remove(b')').remove(b'*').remove(b'+')
                .remove(b',').remove(b';').remove(b'=').remove(b':').remove(b'[').remove(b']')
                .remove(b'@');
            let value = percent_encoding::utf8_percent_encode(&path[1..], &BARE).to_string();
            let mended = plain(&value);
            prop_assert!(mended.parse::<Authority>().is_ok(), "{value} became {mended}");
            prop_assert!(plain(&path).parse::<Authority>().is_ok(), "{path}");
        }

        #[test]
        fn every_plain_path_is_taken_in_huffman(path in "(%2F|/)([a-zA-Z0-9 ._~%-]{1,20}(%2F|/)){1,4}") {
            let mended = huffman(&path);
            prop_assert!(mended.parse::<Authority>().is_ok(), "{path} became {mended}");
        }

        /// Whoever sends what is taken is not touched, but for a percent sign in a user name.
        #[test]
        fn what_is_taken_stays(value in "[a-z0-9.:@\\[\\]!$&'()*+,;=_~-]{1,20}") {
            if value.parse::<Authority>().is_ok() {
                prop_assert_eq!(plain(&value), value.clone());
                prop_assert_eq!(huffman(&value), value);
            }
        }

        #[test]
        fn parts_do_not_matter(bytes: Vec<u8>, coded: bool, cuts: Vec<u8>) {
            let mut whole = bytes.clone();
            Literal::new(coded).mend(&mut whole);
            let (mut parts, mut literal) = (bytes, Literal::new(coded));
            let mut rest = parts.as_mut_slice();
            for cut in cuts {
                let (now, later) = rest.split_at_mut(usize::from(cut).min(rest.len()));
                literal.mend(now);
                rest = later;
            }
            literal.mend(rest);
            prop_assert_eq!(parts, whole);
        }
    }
}
