//! Tests with generated HTTP/2 connections. Each byte is generated together with the expected byte.

use super::{AuthorityRewriter, CONTINUATION, END_HEADERS, HEADERS, PADDED, PREFACE, PRIORITY};
use proptest::collection::vec;
use proptest::prelude::*;

/// Sent bytes and expected bytes, of the same length.
#[derive(Debug, Clone, Default)]
struct RewriteCase {
    sent: Vec<u8>,
    expected: Vec<u8>,
}

impl RewriteCase {
    fn unchanged(bytes: &[u8]) -> Self {
        Self {
            sent: bytes.to_vec(),
            expected: bytes.to_vec(),
        }
    }

    fn push(&mut self, other: &Self) {
        self.sent.extend(&other.sent);
        self.expected.extend(&other.expected);
    }

    fn slice(&self, range: std::ops::Range<usize>) -> Self {
        Self {
            sent: self.sent[range.clone()].to_vec(),
            expected: self.expected[range].to_vec(),
        }
    }

    /// Rewrites the bytes in pieces of these sizes, and the rest in one piece.
    fn rewritten(&self, cuts: &[usize]) -> Vec<u8> {
        let (mut bytes, mut rewriter) = (self.sent.clone(), AuthorityRewriter::default());
        let mut rest = bytes.as_mut_slice();
        for cut in cuts {
            let (now, later) = rest.split_at_mut((*cut).min(rest.len()));
            rewriter.rewrite(now);
            rest = later;
        }
        rewriter.rewrite(rest);
        bytes
    }
}

fn integer(bits: u32, head: u8, value: usize) -> Vec<u8> {
    let most = (1 << bits) - 1;
    if value < most {
        return vec![head | u8::try_from(value).expect("below a byte")];
    }
    let mut bytes = vec![head | u8::try_from(most).expect("at most a byte")];
    let mut rest = value - most;
    while rest >= 128 {
        bytes.push(u8::try_from(rest % 128).expect("below a byte") | 0x80);
        rest /= 128;
    }
    bytes.push(u8::try_from(rest).expect("below a byte"));
    bytes
}

fn string(huffman: bool, bytes: &[u8]) -> Vec<u8> {
    [
        integer(7, if huffman { 0x80 } else { 0 }, bytes.len()),
        bytes.to_vec(),
    ]
    .concat()
}

/// First byte of a literal for each kind of indexing, and the bits of the index in this byte.
fn literal() -> impl Strategy<Value = (u8, u32)> {
    prop_oneof![Just((0x40, 6)), Just((0x00, 4)), Just((0x10, 4))]
}

fn path() -> impl Strategy<Value = String> {
    "[a-z0-9._-]{0,9}(%2F|/)[a-zA-Z0-9@:._~!%/-]{0,200}"
}

/// Rewrites a path, implemented independently of the tested code.
fn name_of(path: &str) -> String {
    let at = path.find(['%', '/']).expect("a path");
    let stays = |c: char| c.is_ascii_alphanumeric() || ['-', '.', '_', '~'].contains(&c);
    let (before, after) = path.split_at(at);
    before
        .chars()
        .chain(after.chars().map(|c| if stays(c) { c } else { '-' }))
        .collect()
}

fn authority() -> impl Strategy<Value = RewriteCase> {
    (literal(), any::<bool>(), path()).prop_map(|((head, bits), spelled, path)| {
        let name = if spelled {
            [vec![head], string(false, b":authority")].concat()
        } else {
            integer(bits, head, 1)
        };
        let mut bytes = RewriteCase::unchanged(&name);
        bytes.push(&RewriteCase {
            sent: string(false, path.as_bytes()),
            expected: string(false, name_of(&path).as_bytes()),
        });
        bytes
    })
}

/// Any field except a literal of `:authority`. The value may look like a path.
fn other_field() -> impl Strategy<Value = RewriteCase> {
    let value = || {
        prop_oneof![
            vec(any::<u8>(), 0..300),
            path().prop_map(String::into_bytes)
        ]
    };
    prop_oneof![
        (1_usize..5_000).prop_map(|index| RewriteCase::unchanged(&integer(7, 0x80, index))),
        (0_usize..5_000).prop_map(|size| RewriteCase::unchanged(&integer(5, 0x20, size))),
        (literal(), 2_usize..5_000, any::<bool>(), value()).prop_map(
            |((head, bits), name, h, v)| {
                RewriteCase::unchanged(&[integer(bits, head, name), string(h, &v)].concat())
            }
        ),
        (
            literal(),
            "(:?[a-z-]{0,20}|:authoritz|:authority.)",
            any::<bool>(),
            any::<bool>(),
            value()
        )
            .prop_filter("another name", |(_, name, huffman, ..)| *huffman
                || name != ":authority")
            .prop_map(|((head, _), name, coded, h, v)| {
                RewriteCase::unchanged(
                    &[vec![head], string(coded, name.as_bytes()), string(h, &v)].concat(),
                )
            }),
    ]
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &RewriteCase) -> RewriteCase {
    let length = u32::try_from(payload.sent.len())
        .expect("a frame")
        .to_be_bytes();
    let mut bytes =
        RewriteCase::unchanged(&[&length[1..], &[kind, flags, 0, 0, 0, stream]].concat());
    bytes.push(payload);
    bytes
}

/// Header block in one or more frames, of which the first may have padding and a priority.
fn headers() -> impl Strategy<Value = RewriteCase> {
    let fields = vec(prop_oneof![2 => other_field(), 1 => authority()], 0..6);
    let flags = (any::<bool>(), any::<bool>(), 0_usize..20, 1_u8..9);
    (fields, flags, vec(0_usize..400, 0..4)).prop_map(|(fields, flags, cuts)| {
        let (padded, priority, padding, stream) = flags;
        let mut block = RewriteCase::default();
        for field in &fields {
            block.push(field);
        }
        let mut parts = Vec::new();
        let mut at = 0;
        for cut in cuts {
            let end = (at + cut).min(block.sent.len());
            parts.push(block.slice(at..end));
            at = end;
        }
        parts.push(block.slice(at..block.sent.len()));
        let last = parts.len() - 1;
        let mut all = RewriteCase::default();
        for (n, part) in parts.iter().enumerate() {
            let ends = if n == last { END_HEADERS } else { 0 };
            if n > 0 {
                all.push(&frame(CONTINUATION, ends, stream, part));
                continue;
            }
            let mut payload = RewriteCase::default();
            if padded {
                payload.push(&RewriteCase::unchanged(&[
                    u8::try_from(padding).expect("short")
                ]));
            }
            if priority {
                payload.push(&RewriteCase::unchanged(b"%/%/%"));
            }
            payload.push(part);
            if padded {
                payload.push(&RewriteCase::unchanged(&vec![b'%'; padding]));
            }
            let flags =
                ends | if padded { PADDED } else { 0 } | if priority { PRIORITY } else { 0 };
            all.push(&frame(HEADERS, flags, stream, &payload));
        }
        all
    })
}

fn connection() -> impl Strategy<Value = RewriteCase> {
    let kind = prop_oneof![Just(0_u8), 2..=4_u8, 6..=8_u8, 10..=255_u8];
    let other_field = (kind, any::<u8>(), 0_u8..9, vec(any::<u8>(), 0..50)).prop_map(
        |(kind, flags, stream, payload)| {
            frame(kind, flags, stream, &RewriteCase::unchanged(&payload))
        },
    );
    vec(prop_oneof![headers(), other_field], 0..6).prop_map(|frames| {
        let mut all = RewriteCase::unchanged(PREFACE);
        for frame in &frames {
            all.push(frame);
        }
        all
    })
}

proptest! {
    #[test]
    fn only_authorities_are_rewritten(bytes in connection(), cuts in vec(0_usize..60, 0..40)) {
        prop_assert_eq!(bytes.rewritten(&cuts), bytes.expected);
    }

    /// Shows that invalid bytes are handled equally in any pieces.
    #[test]
    fn pieces_of_invalid_bytes_do_not_matter(
        bytes in connection(),
        at: prop::sample::Index,
        garbage in vec(any::<u8>(), 0..30),
        cuts in vec(0_usize..60, 0..40),
    ) {
        let mut sent = bytes.sent;
        let at = at.index(sent.len());
        sent.splice(at..(at + garbage.len() / 2).min(sent.len()), garbage);
        let broken = RewriteCase::unchanged(&sent);
        let whole = broken.rewritten(&[]);
        prop_assert_eq!(whole.len(), sent.len());
        prop_assert_eq!(&whole[..at], &bytes.expected[..at]);
        prop_assert_eq!(RewriteCase::unchanged(&whole).rewritten(&[]), &whole[..], "rewritten twice");
        prop_assert_eq!(broken.rewritten(&cuts), &whole[..]);
        prop_assert_eq!(broken.rewritten(&vec![1; sent.len()]), whole);
    }

    #[test]
    fn other_protocols_stay_unchanged(bytes: Vec<u8>) {
        prop_assume!(!bytes.starts_with(PREFACE));
        prop_assert_eq!(RewriteCase::unchanged(&bytes).rewritten(&[]), bytes);
    }
}

/// Request with a path as authority, after `prefix`.
fn request_after(prefix: &[u8]) -> RewriteCase {
    let block = [&[0x41], string(false, b"run%2Fs").as_slice()].concat();
    let request = frame(HEADERS, END_HEADERS, 1, &RewriteCase::unchanged(&block));
    RewriteCase::unchanged(&[PREFACE, prefix, &request.sent].concat())
}

#[test]
fn parsing_stops_at_unexpected_frames() {
    let untouched = |prefix: &RewriteCase| {
        let bytes = request_after(&prefix.sent);
        assert_eq!(bytes.rewritten(&[]), bytes.sent, "{prefix:?}");
    };
    let good = request_after(&frame(4, 0, 0, &RewriteCase::unchanged(&[0; 6])).sent);
    assert!(good.rewritten(&[]).ends_with(b"run-2Fs"));
    let headers =
        |flags, payload: &[u8]| frame(HEADERS, flags, 1, &RewriteCase::unchanged(payload));
    // Too large frame, push from a client, block without a continuation, continuation without a
    // block.
    untouched(&frame(0, 0, 1, &RewriteCase::unchanged(&vec![0; 16_385])));
    untouched(&frame(5, END_HEADERS, 1, &RewriteCase::unchanged(&[0; 4])));
    untouched(&headers(0, &[0x82]));
    untouched(&frame(
        CONTINUATION,
        END_HEADERS,
        1,
        &RewriteCase::unchanged(&[0x82]),
    ));
    // Continuation on another stream.
    let mut stray = headers(0, &[0x82]);
    stray.push(&frame(
        CONTINUATION,
        END_HEADERS,
        3,
        &RewriteCase::unchanged(&[0x82]),
    ));
    untouched(&stray);
    // Padding longer than the frame, no space for the priority, incomplete field, integer without
    // an end.
    untouched(&headers(END_HEADERS | PADDED, &[3, 0x82]));
    untouched(&headers(END_HEADERS | PADDED, &[]));
    untouched(&headers(END_HEADERS | PRIORITY, &[0; 4]));
    untouched(&headers(END_HEADERS, &[0x41, 0x05, b'a']));
    untouched(&headers(
        END_HEADERS,
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00],
    ));
}
