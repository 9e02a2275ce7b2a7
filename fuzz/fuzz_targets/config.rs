//! A config file gives a usable configuration, or errors with their positions.

#![no_main]

use std::path::Path;

use caproot::daemon::config::{Config, ProcessEnv, ServeFlags};
use caproot_fuzz::{check_message, has_position};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The directory is missing, so no path in the file exists.
    let file = Path::new("/none/caproot.yaml");
    match Config::from_bytes(
        ServeFlags::default(),
        file,
        bytes.to_vec(),
        &ProcessEnv::default(),
    ) {
        Ok(config) => {
            assert!(!config.environment_ids.is_empty() && !config.listeners.is_empty());
            assert!(config.allowed_dirs.iter().all(|dir| dir.is_absolute()));
            assert!(config.disabled_skills.len() <= 1_000);
            assert!(
                config
                    .published_roots
                    .is_sorted_by_key(|root| (root.scope, root.id.clone()))
            );
        }
        Err(errors) => {
            assert!((1..=101).contains(&errors.len()));
            let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
            // In YAML, a carriage return alone ends a line as well.
            let lines = String::from_utf8_lossy(text)
                .replace("\r\n", "\n")
                .replace('\r', "\n");
            for error in errors {
                check_message(&error.to_string());
                if let Some(at) = error.position {
                    let exists = |text| has_position(at.line, at.column, text);
                    assert!(exists(text) || exists(lines.as_bytes()), "{error}");
                }
            }
        }
    }
});
