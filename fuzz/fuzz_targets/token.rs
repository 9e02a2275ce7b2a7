//! Read cursors, page tokens, resume tokens and file list tokens: each decodes to itself, for its own
//! query only, and has one spelling.

#![no_main]

use caproot::fs::package_walk::FileListToken;
use caproot::model::token::{PageToken, ReadCursor, ResumeToken};
use caproot::model::{FileVersion, RelPath, RootId};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    numbers: [u64; 4],
    times: [(i64, u32); 2],
    truncated: bool,
    /// Index of the changed character of a token, and the change.
    change: (u16, u8),
    query: &'a [u8],
    other: &'a [u8],
    path: &'a [u8],
    text: &'a str,
}

fuzz_target!(|input: Input| {
    let [a, b, c, d] = input.numbers;
    let (query, other) = (input.query, input.other);
    let path = RelPath::new(input.path).unwrap_or_default();
    let root = RootId::new("r").expect("an id");

    let version =
        FileVersion { device: a, inode: b, size: c, mtime: input.times[0], ctime: input.times[1] };
    let cursor = ReadCursor { version, offset: d.min(c) };
    let decode = |text: &str| ReadCursor::decode(text, &root, &path);
    check(&input, decode, |cursor| cursor.encode(&root, &path), cursor);

    let page = PageToken { epoch: a, revision: b, root: input.times[0].1, item: input.times[1].1 };
    let decode = |text: &str| PageToken::decode(text, query);
    check(&input, decode, |page| page.encode(query), page);
    assert!(query == other || PageToken::decode(&page.encode(query), other).is_none());

    let resume = ResumeToken::new(a, b, query);
    check(&input, ResumeToken::decode, ResumeToken::encode, resume);

    if !path.is_root() && input.path.len() <= 2_048 {
        let token =
            FileListToken { last_file: path.clone(), entries_seen: a, truncated: input.truncated };
        let decode = |text: &str| FileListToken::decode(text, query);
        check(&input, decode, |token| token.encode(query), token);
    }
});

fn check<T: PartialEq + std::fmt::Debug>(
    input: &Input,
    decode: impl Fn(&str) -> Option<T>,
    encode: impl Fn(&T) -> String,
    token: T,
) {
    let text = encode(&token);
    assert_eq!(decode(&text), Some(token));
    let (at, by) = input.change;
    let mut changed = text.clone().into_bytes();
    let at = usize::from(at) % changed.len();
    changed[at] ^= by & 0x7f;
    let changed = String::from_utf8(changed).expect("ASCII");
    assert!(changed == text || decode(&changed).is_none(), "{changed}");
    if let Some(token) = decode(input.text) {
        assert_eq!(encode(&token), input.text);
    }
}
