//! Tests of plain and Huffman-coded values. The tests have their own Huffman coder. Rewritten
//! values must be valid for the parser that `h2` uses.

use super::AuthorityValue;
use http::uri::Authority;
use proptest::prelude::*;

/// Length of codes, first code of this length, and characters in the order of their codes.
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
    let code = |c| {
        codes()
            .find(|(known, _)| *known == c)
            .expect("a character with a code")
            .1
    };
    let bits: String = text.chars().map(code).collect();
    let padded = bits.len().next_multiple_of(8);
    let bits = format!("{bits:1<padded$}");
    bits.as_bytes()
        .chunks(8)
        .map(|byte| u8::from_str_radix(std::str::from_utf8(byte).expect("bits"), 2).expect("bits"))
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
    assert!(
        rest.len() < 8 && !rest.contains('0'),
        "padding: {rest:?} after {text:?}"
    );
    text
}

fn plain(value: &str) -> String {
    let mut bytes = value.as_bytes().to_vec();
    AuthorityValue::new(false).rewrite(&mut bytes);
    String::from_utf8(bytes).expect("text")
}

fn huffman(value: &str) -> String {
    let mut bytes = encode(value);
    AuthorityValue::new(true).rewrite(&mut bytes);
    decode(&bytes)
}

#[test]
fn paths_become_valid_authorities() {
    assert_eq!(
        plain("run%2Fcaproot%2Fa-b.c%20d.sock"),
        "run-2Fcaproot-2Fa-b.c-20d.sock"
    );
    assert_eq!(
        plain("/run/a@b:c:[d]/ü.sock"),
        "-run-a-b-c--d---".to_owned() + "-.sock"
    );
    assert_eq!(
        huffman("run%2Fcaproot%2Fa-b.c%20d.sock"),
        "run.2Fcaproot.2Fa-b.c.20d.sock"
    );
    assert_eq!(huffman("/run/~a b.sock"), "3run3~a-b.sock");
}

#[test]
fn valid_authorities_stay_unchanged() {
    for value in [
        "localhost",
        "localhost:80",
        "[::1]:50051",
        "[fe80::1%25eth0]",
        "me@host:1",
    ] {
        assert_eq!(plain(value), value);
    }
    for value in [
        "localhost",
        "localhost:80",
        "[::1]:50051",
        "me@host:1",
        "~!$&'()*+,;=_",
    ] {
        assert_eq!(huffman(value), value);
    }
}

#[test]
fn decoding_stops_at_an_unknown_code() {
    // The code of a backslash has 19 bits.
    let mut bytes = [&[0xff, 0xfe, 0x1f], encode("%2F%2F").as_slice()].concat();
    let before = bytes.clone();
    AuthorityValue::new(true).rewrite(&mut bytes);
    assert_eq!(bytes, before);
}

proptest! {
    /// Uses the percent-encoding of grpcio.
    #[test]
    fn every_encoded_path_becomes_valid(path in r"/[a-zA-Z0-9 ._~%é漢-]{1,20}(/[\PC&&[^/]]{1,20}){1,4}") {
        const BARE: percent_encoding::AsciiSet = percent_encoding::NON_ALPHANUMERIC
            .remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'!').remove(b'$')
            .remove(b'&').remove(b'\'').remove(b'(').remove(b')').remove(b'*').remove(b'+')
            .remove(b',').remove(b';').remove(b'=').remove(b':').remove(b'[').remove(b']')
            .remove(b'@');
        let value = percent_encoding::utf8_percent_encode(&path[1..], &BARE).to_string();
        let rewritten = plain(&value);
        prop_assert!(rewritten.parse::<Authority>().is_ok(), "{value} became {rewritten}");
        prop_assert!(plain(&path).parse::<Authority>().is_ok(), "{path}");
    }

    #[test]
    fn every_plain_path_becomes_valid_in_huffman_code(path in "(%2F|/)([a-zA-Z0-9 ._~%-]{1,20}(%2F|/)){1,4}") {
        let rewritten = huffman(&path);
        prop_assert!(rewritten.parse::<Authority>().is_ok(), "{path} became {rewritten}");
    }

    /// Valid authorities stay unchanged. The pattern omits percent signs, which are valid in user
    /// names.
    #[test]
    fn random_valid_authorities_stay_unchanged(value in "[a-z0-9.:@\\[\\]!$&'()*+,;=_~-]{1,20}") {
        if value.parse::<Authority>().is_ok() {
            prop_assert_eq!(plain(&value), value.clone());
            prop_assert_eq!(huffman(&value), value);
        }
    }

    #[test]
    fn pieces_do_not_matter(bytes: Vec<u8>, coded: bool, cuts: Vec<u8>) {
        let mut whole = bytes.clone();
        AuthorityValue::new(coded).rewrite(&mut whole);
        let (mut parts, mut literal) = (bytes, AuthorityValue::new(coded));
        let mut rest = parts.as_mut_slice();
        for cut in cuts {
            let (now, later) = rest.split_at_mut(usize::from(cut).min(rest.len()));
            literal.rewrite(now);
            rest = later;
        }
        literal.rewrite(rest);
        prop_assert_eq!(parts, whole);
    }
}
