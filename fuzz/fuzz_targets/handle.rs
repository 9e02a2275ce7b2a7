//! Handles: each path has exactly one valid spelling.

#![no_main]

use caproot_core::wire::limits::MAX_HANDLE_BYTES;
use caproot_core::wire::{RelPath, ResourceHandle, RootId, handle};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        if let Ok(parsed) = ResourceHandle::parse(text) {
            assert!(text.len() <= MAX_HANDLE_BYTES);
            assert_eq!(handle::format_handle(&parsed.root, &parsed.path), text);
        }
    }
    let root = RootId::new("a root").expect("an id");
    let (one, other) = bytes.split_at(bytes.len() / 2);
    let Some(one) = RelPath::new(one) else { return };
    let text = handle::format_handle(&root, &one);
    assert_eq!(
        text.len(),
        handle::formatted_len(&root, handle::encoded_path_len(&one))
    );
    match ResourceHandle::parse(&text) {
        Ok(parsed) => assert_eq!((parsed.root, &parsed.path), (root, &one)),
        Err(error) => assert!(text.len() > MAX_HANDLE_BYTES, "{text}: {error}"),
    }
    if let Some(other) = RelPath::new(other) {
        let order = handle::encode_path(&one).cmp(&handle::encode_path(&other));
        assert_eq!(handle::compare_encoded(&one, &other), order);
    }
});
