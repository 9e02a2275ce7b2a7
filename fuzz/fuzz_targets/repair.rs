//! Quoting what authors forget to quote: lines stay where they are, and once is enough.

#![no_main]

use caproot::domain::{repair, yaml};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Some((repaired, quoted)) = yaml_repair::repair(text) else { return };
    let lines = text.split('\n').count();
    assert_eq!(repaired.split('\n').count(), lines);
    assert!(!quoted.is_empty() && quoted.is_sorted_by_key(|(line, _)| *line));
    assert!(
        quoted.iter().all(|(line, key)| (1..=lines).contains(&(*line as usize)) && !key.is_empty())
    );
    // A quote doubles each one inside.
    assert!(repaired.len() <= 2 * text.len() + 2 * quoted.len());
    // Whether it parses now is up to what else is in it.
    let _ = yaml::parse(&repaired);
    assert_eq!(yaml_repair::repair(&repaired), None, "{text:?} {repaired:?}");
});
