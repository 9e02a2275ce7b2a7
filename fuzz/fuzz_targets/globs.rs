//! Compares the globs of disabled skills with a simple slow matcher. The first line of the input is
//! the glob, and the rest is the package.

#![no_main]

use std::collections::HashMap;

use caproot::daemon::model::ResolvedPath;
use caproot::daemon::model::disabled_skills::{DisableRules, parse_glob};
use caproot_core::wire::{RelPath, RootId};
use libfuzzer_sys::fuzz_target;

/// Maximum size of a glob in the config, in bytes.
const MAX_GLOB_BYTES: usize = 256;

fuzz_target!(|bytes: &[u8]| {
    let Some(end) = bytes
        .iter()
        .position(|b| *b == b'\n')
        .filter(|end| *end <= MAX_GLOB_BYTES)
    else {
        return;
    };
    let (Ok(text), path) = (std::str::from_utf8(&bytes[..end]), &bytes[end + 1..]) else {
        return;
    };
    let (Ok(pattern), Some(package)) = (parse_glob(text), RelPath::new(path)) else {
        return;
    };
    let root = RootId::new("r").expect("an id");
    // Only a glob set that is too large may be rejected.
    let Ok(rules) = DisableRules::new([(root, pattern)], []) else {
        return;
    };
    let resolved = |rel_path| ResolvedPath {
        dir_index: 0,
        rel_path,
    };
    let found = rules
        .resolve_globs(|_| Some(resolved(RelPath::root())))
        .matches_package(&resolved(package.clone()));
    let is_simple = !text.contains(['[', ']', '{', '}', '\\', '!']) && !text.contains("**");
    if is_simple && text.is_ascii() && path.is_ascii() {
        let path = if package.is_root() { b"." } else { path };
        let expected = matches(text.as_bytes(), path, &mut HashMap::new());
        assert_eq!(found, expected, "{text:?} {package:?}");
    }
});

fn matches(glob: &[u8], path: &[u8], known: &mut HashMap<(usize, usize), bool>) -> bool {
    let key = (glob.len(), path.len());
    if let Some(known) = known.get(&key) {
        return *known;
    }
    let found = match (glob.split_first(), path.split_first()) {
        (None, rest) => rest.is_none(),
        (Some((b'*', more)), rest) => {
            matches(more, path, known)
                || rest.is_some_and(|(byte, rest)| *byte != b'/' && matches(glob, rest, known))
        }
        (Some((b'?', more)), Some((byte, rest))) => *byte != b'/' && matches(more, rest, known),
        (Some((wanted, more)), Some((byte, rest))) => wanted == byte && matches(more, rest, known),
        (Some(_), None) => false,
    };
    known.insert(key, found);
    found
}
