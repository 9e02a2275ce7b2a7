//! The estimate of a tree's memory covers each of its values. A list has the entries of its tree.

#![no_main]

use caproot_core::json::{ListEntries, estimate_tree_memory};
use caproot_fuzz::check_message;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// Memory of a value: 32 bytes in each copy, and the strings.
fn memory(value: &Value) -> usize {
    let contents: usize = match value {
        Value::String(text) => 2 * text.len(),
        Value::Array(values) => values.iter().map(memory).sum(),
        Value::Object(fields) => {
            let fields = fields.iter();
            fields
                .map(|(key, value)| 48 + 2 * key.len() + memory(value))
                .sum()
        }
        _ => 0,
    };
    64 + contents
}

fuzz_target!(|bytes: &[u8]| {
    let estimate = estimate_tree_memory(bytes);
    let tree = serde_json::from_slice::<Value>(bytes);
    if let Ok(tree) = &tree {
        assert!(memory(tree) <= estimate, "{} {estimate}", memory(tree));
    }

    match ListEntries::split(bytes, &["skills"], 4) {
        Ok(list) => {
            assert!(list.entries.len() <= 4);
            for entry in &list.entries {
                let _ = entry.text_field("name");
                if let Err(error) = entry.parse::<Value>() {
                    check_message(&error.to_string());
                }
            }
            // A repeated field has its first list here, and its last one in the tree.
            if let Ok(Value::Object(fields)) = &tree
                && bytes
                    .windows(8)
                    .filter(|part| part == b"\"skills\"")
                    .count()
                    == 1
                && let Some(Value::Array(values)) = fields.get("skills")
            {
                assert_eq!(list.entries.len(), values.len().min(4));
                assert_eq!(list.is_cut, values.len() > 4);
            }
        }
        Err(error) => check_message(&error.to_string()),
    }
});
