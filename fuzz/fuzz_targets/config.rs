//! A config file: a configuration that can be used, or mistakes with their places.

#![no_main]

use std::path::Path;

use caproot::config::{Config, ProcessEnv, Flags};
use caproot_fuzz::{check_message, has_place};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // A directory that is not there: what the file names is never found.
    let file = Path::new("/none/caproot.yaml");
    match Config::from_bytes(Flags::default(), file, bytes.to_vec(), &ProcessEnv::default()) {
        Ok(config) => {
            assert!(!config.environment_ids.is_empty() && !config.listeners.is_empty());
            assert!(config.allowed.iter().all(|dir| dir.is_absolute()));
            assert!(config.switched_off.len() <= 1_000);
            assert!(config.published.is_sorted_by_key(|root| (root.scope, root.id.clone())));
        }
        Err(mistakes) => {
            assert!((1..=101).contains(&mistakes.len()));
            let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
            // To YAML, a carriage return alone ends a line, too.
            let lines = String::from_utf8_lossy(text).replace("\r\n", "\n").replace('\r', "\n");
            for mistake in mistakes {
                check_message(&mistake.to_string());
                if let Some(at) = mistake.at {
                    let is_there = |text| has_place(at.line, at.column, text);
                    assert!(is_there(text) || is_there(lines.as_bytes()), "{mistake}");
                }
            }
        }
    }
});
