//! Handles: one spelling for each place, and no place for any other.

#![no_main]

use caproot::domain::limits::MAX_HANDLE_BYTES;
use caproot::domain::{ResourceHandle, RelPath, RootId, handle};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        if let Ok(parsed) = ResourceHandle::parse(text) {
            assert!(text.len() <= MAX_HANDLE_BYTES);
            assert_eq!(handle::print(&parsed.root, &parsed.path), text);
        }
    }
    let root = RootId::new("a root").expect("an id");
    let (one, other) = bytes.split_at(bytes.len() / 2);
    let Some(one) = RelPath::new(one) else { return };
    let text = handle::print(&root, &one);
    assert_eq!(text.len(), handle::printed_len(&root, handle::encoded_len(&one)));
    match ResourceHandle::parse(&text) {
        Ok(parsed) => assert_eq!((parsed.root, &parsed.path), (root, &one)),
        Err(why) => assert!(text.len() > MAX_HANDLE_BYTES, "{text}: {why}"),
    }
    if let Some(other) = RelPath::new(other) {
        let order = handle::encode(&one).cmp(&handle::encode(&other));
        assert_eq!(handle::order(&one, &other), order);
    }
});
