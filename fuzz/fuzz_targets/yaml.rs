//! YAML to a value: bounded, printable as JSON, or a message with its place.

#![no_main]

use caproot::domain::limits::MAX_ALIAS_BYTES;
use caproot::domain::{json, yaml};
use caproot_fuzz::{are_alike, check_message, check_place, check_value};
use libfuzzer_sys::fuzz_target;

/// On the wire, for each byte that a document may cost: a scalar of one byte takes eleven.
const MAX_WEIGHT: usize = 11;

fuzz_target!(|text: &str| {
    match yaml::parse(text) {
        Ok(value) => {
            check_value(&value);
            assert!(value.weight() <= MAX_WEIGHT * (text.len() + MAX_ALIAS_BYTES));
            if !value.is_scalar() {
                let again = json::parse(value.printed().as_bytes()).expect("what was printed");
                assert!(are_alike(&value, &again), "{value:?}\n{again:?}");
            }
        }
        Err(error) => {
            check_message(&error.message);
            check_place(error.line, error.column, text.as_bytes());
        }
    }
});
