//! A lock is valid and is written as a text that parses to the same lock, or has an error with its position.
//! The file of the allowed signers and a signature never panic.

#![no_main]

use caproot_core::lock::{AllowedSigners, Lock};
use caproot_fuzz::{check_message, check_position};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match Lock::parse(bytes) {
        Ok(lock) => {
            let names: Vec<_> = lock.skills().iter().map(|skill| &skill.name).collect();
            assert!(names.is_sorted());
            for skill in lock.skills() {
                assert_eq!(skill.files.content_digest(), skill.content_digest);
                assert!(lock.versions(&skill.name).contains(skill));
            }
            for plugin in lock.plugins() {
                assert_eq!(plugin.files.content_digest(), plugin.content_digest);
                assert!(lock.plugin_versions(&plugin.name).contains(plugin));
                assert!(
                    plugin
                        .withheld
                        .iter()
                        .all(|path| plugin.files.get(path).is_some())
                );
            }
            let text = lock.to_text().expect("a text of at most the limits");
            assert_eq!(Lock::parse(text.as_bytes()).expect("a valid text"), lock);
            assert!(lock.difference(&lock).is_empty());
        }
        Err(error) => {
            check_message(&error.to_string());
            if let Some(at) = error.position {
                check_position(at.line, at.column, bytes);
            }
        }
    }

    let text = String::from_utf8_lossy(bytes);
    let signers = AllowedSigners::parse(&text).unwrap_or_else(|error| {
        check_message(&error.reason);
        AllowedSigners::default()
    });
    let error = Lock::parse_signed(b"", bytes, &signers).expect_err("not signed");
    check_message(&error.to_string());
});
