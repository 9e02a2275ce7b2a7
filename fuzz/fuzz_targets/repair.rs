//! Repair of unquoted values: line numbers stay the same, and a second repair changes nothing.

#![no_main]

use caproot::daemon::parse::{yaml, yaml_repair};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Some((repaired, quoted)) = yaml_repair::quote_broken_values(text) else {
        return;
    };
    let lines = text.split('\n').count();
    assert_eq!(repaired.split('\n').count(), lines);
    assert!(!quoted.is_empty() && quoted.is_sorted_by_key(|(line, _)| *line));
    assert!(
        quoted
            .iter()
            .all(|(line, key)| (1..=lines).contains(&(*line as usize)) && !key.is_empty())
    );
    // Each quote inside a quoted value is doubled.
    assert!(repaired.len() <= 2 * text.len() + 2 * quoted.len());
    // Other errors in the text may remain.
    let _ = yaml::parse(&repaired);
    assert_eq!(
        yaml_repair::quote_broken_values(&repaired),
        None,
        "{text:?} {repaired:?}"
    );
});
