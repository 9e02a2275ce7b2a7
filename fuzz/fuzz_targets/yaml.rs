//! YAML gives a value of limited size that prints as JSON, or an error with its position.

#![no_main]

use caproot::daemon::model::limits::MAX_ALIAS_BYTES;
use caproot::daemon::parse::{json, yaml};
use caproot_fuzz::{are_alike, check_message, check_position, check_value};
use libfuzzer_sys::fuzz_target;

/// Maximum ratio of wire size to document size: a scalar of one byte takes eleven bytes.
const MAX_WIRE_RATIO: usize = 11;

fuzz_target!(|text: &str| {
    match yaml::parse(text) {
        Ok(value) => {
            check_value(&value);
            assert!(value.wire_size() <= MAX_WIRE_RATIO * (text.len() + MAX_ALIAS_BYTES));
            if !value.is_scalar() {
                let again = json::parse(value.to_text().as_bytes()).expect("printed JSON");
                assert!(are_alike(&value, &again), "{value:?}\n{again:?}");
            }
        }
        Err(error) => {
            check_message(&error.message);
            check_position(error.line, error.column, text.as_bytes());
        }
    }
});
