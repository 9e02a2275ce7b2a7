//! JSON gives a value that prints and parses to itself, and plugin.json gives a name. Invalid input
//! gives an error.

#![no_main]

use caproot::daemon::model::{DiagnosticCode, Severity};
use caproot::daemon::parse::{json, manifest};
use caproot_fuzz::{are_alike, check_message, check_position, check_problems, check_value};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match json::parse(bytes) {
        Ok(value) => {
            check_value(&value);
            if !value.is_scalar() {
                let again = json::parse(value.to_text().as_bytes()).expect("printed JSON");
                assert!(are_alike(&value, &again), "{value:?}\n{again:?}");
            }
        }
        Err(error) => {
            check_message(&error.message);
            check_position(error.line, error.column, bytes);
        }
    }
    for dir_name in [None, Some(&b"dir"[..]), Some(bytes)] {
        let (found, problems) = manifest::read(bytes, dir_name);
        check_problems(&problems, 67, bytes);
        let is_broken = problems
            .iter()
            .filter(|p| p.severity == Severity::Error)
            .any(|p| {
                matches!(
                    p.code,
                    DiagnosticCode::ManifestInvalid | DiagnosticCode::NotUtf8
                )
            });
        assert_eq!(found.is_none(), is_broken, "{problems:?}");
        if let Some(found) = found {
            let length = found.name.chars().count();
            assert!((1..=64).contains(&length) && !found.name.chars().any(char::is_control));
            assert!(found.version.chars().count() <= 64);
        }
    }
});
