//! Ids and paths of roots as a platform sends them.

#![no_main]

use caproot::daemon::model::RootPath;
use caproot_core::wire::RootId;
use libfuzzer_sys::fuzz_target;
use std::fmt::Write as _;

fuzz_target!(|text: &str| {
    if let Ok(id) = RootId::new(text) {
        assert_eq!(id.as_str(), text);
        assert!((1..=256).contains(&text.len()) && !text.chars().any(char::is_control));
    }
    match RootPath::parse(text) {
        Some(RootPath::Native(path)) => {
            assert!(path.len() <= 4_096 && path.starts_with(b"/") && !path.contains(&0));
            if text.starts_with('/') {
                assert_eq!(&*path, text.as_bytes());
            }
            let uri = path.iter().fold("file://".to_owned(), |mut uri, byte| {
                let _ = if *byte == b'/' {
                    write!(uri, "/")
                } else {
                    write!(uri, "%{byte:02x}")
                };
                uri
            });
            // With all bytes escaped, the URI may be too long.
            assert!(uri.len() > 4_096 || RootPath::parse(&uri) == Some(RootPath::Native(path)));
        }
        Some(RootPath::Published(id)) => assert_eq!(format!("published:{id}"), text),
        None => assert!(!text.starts_with('/') || text.contains('\0') || text.len() > 4_096),
    }
});
