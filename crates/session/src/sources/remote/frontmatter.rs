//! Comparison of the frontmatter of a SKILL.md with the frontmatter in the server's list, field by
//! field. The comparison is lenient, as YAML and JSON spell some values differently.

use caproot_core::document::{self, DocumentNode, DocumentValue as Yaml};
use caproot_core::text::{fences, quote_value};
use serde_json::{Map, Value};
use std::collections::HashSet;

/// Returns the first difference as the end of a sentence about the file, or `None`. If the list has
/// not all fields, the file may have more.
pub fn find_difference(
    text: &str,
    listed: &Map<String, Value>,
    has_all_fields: bool,
) -> Option<String> {
    let fenced = fences::find_fenced_text(text.as_bytes()).filter(|fenced| fenced.is_closed);
    let Some(frontmatter) = fenced.and_then(|fenced| str::from_utf8(fenced.text).ok()) else {
        return Some("it has no frontmatter".to_owned());
    };
    let node = match document::parse(frontmatter) {
        Ok(node) => node,
        Err(error) => return Some(format!("its frontmatter cannot be read: {}", error.reason)),
    };
    let Yaml::Map(entries) = &node.value else {
        return Some("its frontmatter is not a mapping".to_owned());
    };

    let mut seen = HashSet::new();
    for entry in entries {
        let field = quote_value(&entry.key);
        if !seen.insert(&*entry.key) {
            return Some(format!("its field {field} is duplicated"));
        }
        match listed.get(&*entry.key) {
            // Some JSON writers omit null values.
            None if entry.node.value == Yaml::Null => {}
            None if !has_all_fields => {}
            None => return Some(format!("the list does not have its field {field}")),
            Some(value) if is_same_value(&entry.node, value) => {}
            Some(_) => return Some(format!("the list has another value of its field {field}")),
        }
    }

    listed
        .iter()
        .find(|(key, value)| !value.is_null() && !seen.contains(key.as_str()))
        .map(|(key, _)| format!("it does not have the list's field {}", quote_value(key)))
}

fn is_same_value(node: &DocumentNode, value: &Value) -> bool {
    match (&node.value, value) {
        (Yaml::Null, Value::Null) => true,
        (Yaml::Null, Value::String(text)) => text.is_empty(),

        (Yaml::Bool(truth), Value::Bool(listed)) => truth == listed,
        // YAML 1.1 has more words for booleans, and some readers return every scalar as text.
        (Yaml::Bool(truth), Value::String(listed)) => {
            listed.eq_ignore_ascii_case(&truth.to_string())
        }
        (Yaml::Text(text), Value::Bool(listed)) => {
            let words = if *listed {
                ["yes", "on"]
            } else {
                ["no", "off"]
            };
            words.iter().any(|word| text.eq_ignore_ascii_case(word))
        }

        (Yaml::Number(number), Value::Number(listed)) => {
            **number == *listed.to_string() || number.parse::<f64>().ok() == listed.as_f64()
        }
        (Yaml::Number(text) | Yaml::Text(text), Value::String(listed)) => {
            text.trim_end() == listed.trim_end()
        }

        (Yaml::List(items), Value::Array(listed)) => {
            items.len() == listed.len()
                && items.iter().zip(listed).all(|(a, b)| is_same_value(a, b))
        }
        (Yaml::Map(entries), Value::Object(listed)) => {
            entries.len() == listed.len()
                && entries.iter().all(|entry| {
                    listed
                        .get(&*entry.key)
                        .is_some_and(|value| is_same_value(&entry.node, value))
                })
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::find_difference;
    use serde_json::json;

    #[test]
    fn differences_are_found() {
        let listed = json!({
            "name": "a", "description": "Does a.", "version": 1.5, "on": true,
            "list": ["x", 2], "meta": {"k": "v"}, "date": "2026-01-02",
            "nothing": null,
        });
        let listed = listed.as_object().expect("an object");
        let good = "---\nname: a\ndescription: >-\n  Does\n  a.\nversion: 1.50\non: yes\n\
            list: [x, 2]\nmeta:\n  k: v\ndate: 2026-01-02\nempty:\n---\nBody.\n";
        assert_eq!(find_difference(good, listed, true), None);
        let more = good.replace("name: a", "name: a\nmore: 1");
        assert_eq!(find_difference(&more, listed, false), None);
        assert_eq!(
            find_difference(
                &format!("\u{feff}{}", good.replace('\n', "\r\n")),
                listed,
                true
            ),
            None
        );
        for (from, to) in [
            ("Does\n  a.", "Steals\n  a."),
            ("name: a", "name: b"),
            ("1.50", "1.51"),
            ("k: v", "k: w"),
            ("k: v", "k: v\n  l: m"),
            ("[x, 2]", "[x, 2, 3]"),
            ("date: 2026-01-02\n", ""),
            ("name: a", "name: a\nmore: 1"),
            ("empty:", "empty: x"),
            ("name: a", "name: a\nname: a"),
            ("name: a", "name: [a"),
            ("---\nname", "name"),
            ("---\nBody", "Body"),
        ] {
            let bad = good.replacen(from, to, 1);
            assert_ne!(bad, good);
            assert!(find_difference(&bad, listed, true).is_some(), "{bad}");
        }
    }
}
