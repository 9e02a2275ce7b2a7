//! Cursors, page tokens, resume tokens and bookmarks: each comes back as it was made, for its own
//! question only, and in one spelling.

#![no_main]

use caproot::domain::package_walk::FileListToken;
use caproot::domain::token::{ReadCursor, PageToken, ResumeToken};
use caproot::domain::{RelPath, RootId, FileVersion};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    numbers: [u64; 4],
    times: [(i64, u32); 2],
    truncated: bool,
    /// Which character of a token is changed, and by what.
    slip: (u16, u8),
    question: &'a [u8],
    other: &'a [u8],
    path: &'a [u8],
    text: &'a str,
}

fuzz_target!(|input: Input| {
    let [a, b, c, d] = input.numbers;
    let (question, other) = (input.question, input.other);
    let path = RelPath::new(input.path).unwrap_or_default();
    let root = RootId::new("r").expect("an id");

    let version =
        FileVersion { device: a, inode: b, size: c, mtime: input.times[0], ctime: input.times[1] };
    let cursor = ReadCursor { version, offset: d.min(c) };
    let parse = |text: &str| ReadCursor::parse(text, &root, &path);
    check(&input, parse, |cursor| cursor.print(&root, &path), cursor);

    let page = PageToken { epoch: a, revision: b, root: input.times[0].1, skill: input.times[1].1 };
    let parse = |text: &str| PageToken::parse(text, question);
    check(&input, parse, |page| page.print(question), page);
    assert!(question == other || PageToken::parse(&page.print(question), other).is_none());

    let resume = ResumeToken::new(a, b, question);
    check(&input, ResumeToken::parse, ResumeToken::print, resume);

    if !path.is_root() && input.path.len() <= 2_048 {
        let bookmark = FileListToken { last: path.clone(), seen: a, truncated: input.truncated };
        let parse = |text: &str| FileListToken::parse(text, question);
        check(&input, parse, |bookmark| bookmark.print(question), bookmark);
    }
});

fn check<T: PartialEq + std::fmt::Debug>(
    input: &Input,
    parse: impl Fn(&str) -> Option<T>,
    print: impl Fn(&T) -> String,
    token: T,
) {
    let text = print(&token);
    assert_eq!(parse(&text), Some(token));
    let (at, by) = input.slip;
    let mut slipped = text.clone().into_bytes();
    let at = usize::from(at) % slipped.len();
    slipped[at] ^= by & 0x7f;
    let slipped = String::from_utf8(slipped).expect("ASCII");
    assert!(slipped == text || parse(&slipped).is_none(), "{slipped}");
    if let Some(token) = parse(input.text) {
        assert_eq!(print(&token), input.text);
    }
}
