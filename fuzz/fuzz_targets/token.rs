//! Read cursors, page tokens, resume tokens and file list tokens: each decodes to itself, for its own
//! query only, and has one spelling.

#![no_main]

use caproot::daemon::fs::package_walk::FileListToken;
use caproot::daemon::model::FileVersion;
use caproot::daemon::model::token::{PageToken, ReadCursor, ResumeToken};
use caproot_core::wire::RelPath;
use caproot_core::wire::cursor::Cursor;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    numbers: [u64; 4],
    times: [(i64, u32); 2],
    truncated: bool,
    position: (usize, usize),
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

    let version = FileVersion {
        device: a,
        inode: b,
        size: c,
        mtime: input.times[0],
        ctime: input.times[1],
    };
    let cursor = ReadCursor {
        version,
        offset: d.min(c),
    };
    check(&input, cursor);
    let page = PageToken {
        epoch: a,
        revision: b,
        position: input.position,
    };
    check(&input, page);
    assert!(query == other || PageToken::decode(&page.encode(query), other).is_none());
    check(&input, ResumeToken::new(a, b, query));

    if !path.is_root() && input.path.len() <= 2_048 {
        let token = FileListToken {
            last_file: path.clone(),
            entries_seen: a,
            truncated: input.truncated,
        };
        check(&input, token);
    }
});

fn check<C: Cursor + PartialEq + std::fmt::Debug>(input: &Input, cursor: C) {
    let text = cursor.encode(input.query);
    assert_eq!(C::decode(&text, input.query), Some(cursor));
    let (at, by) = input.change;
    let mut changed = text.clone().into_bytes();
    let at = usize::from(at) % changed.len();
    changed[at] ^= by & 0x7f;
    let changed = String::from_utf8(changed).expect("ASCII");
    assert!(
        changed == text || C::decode(&changed, input.query).is_none(),
        "{changed}"
    );
    if let Some(cursor) = C::decode(input.text, input.query) {
        assert_eq!(cursor.encode(input.query), input.text);
    }
}
