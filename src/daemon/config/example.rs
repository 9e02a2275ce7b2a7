//! Documented example of a config file: every key with its default.

use super::keys::{ConfigKey, KeyDefault, KeyValue};
use super::top_keys;
use caproot_core::text::wrap_words;
use std::fmt::Write as _;

/// Width of comment lines.
const MAX_COLUMNS: usize = 100;

const HEAD: &str = "Config file of caproot. Start the daemon with `caproot serve --config FILE`; check a \
    file with `caproot config check FILE`. The file lists every key with its default. The default of \
    keys with `#key:` depends on the machine, or the key has none. Relative paths start at the directory \
    of this file. A reload applies the keys that say so; a change of another key needs a restart.";

/// Returns the text of the file.
#[must_use]
pub fn example_file() -> String {
    let mut text = String::new();
    push_comment(&mut text, "", HEAD);
    for key in &top_keys::KEYS {
        text.push('\n');
        let mark = if is_active(key) { "" } else { "#" };
        push_comment(&mut text, "", &comment(key));
        write_value(&mut text, key, mark, "", "");
    }
    text
}

/// Whether the file sets the key, instead of showing it in a comment.
fn is_active(key: &ConfigKey) -> bool {
    matches!(key.default, KeyDefault::Value(_) | KeyDefault::Section)
}

fn comment(key: &ConfigKey) -> String {
    let mut sentences = vec![key.meaning().to_owned()];

    match key.value {
        KeyValue::Boolean | KeyValue::Section(_) | KeyValue::SectionList { .. } => {}
        value => sentences.push(format!("Type: {}.", value.describe())),
    }
    match key.default {
        KeyDefault::Effect { effect, .. } => sentences.push(format!("Default: {effect}.")),
        KeyDefault::Required { .. } => sentences.push("Required.".to_owned()),
        KeyDefault::Value(_) | KeyDefault::Section => {}
    }
    if let Some(flag) = key.flag {
        sentences.push(format!("Flag: {flag}."));
    }
    if let Some(effect) = key.reload {
        sentences.push(format!("Reload: {effect}."));
    }

    sentences.join(" ")
}

/// Writes a key and its value. `mark` is `#` in an inactive key, `indent` precedes the key, and
/// `item` is `- ` at the start of a list item.
fn write_value(text: &mut String, key: &ConfigKey, mark: &str, indent: &str, item: &str) {
    let name = key.name();
    let value = match key.default {
        KeyDefault::Value(value) => value(),
        KeyDefault::Effect { example, .. } | KeyDefault::Required { example } => example.to_owned(),
        KeyDefault::Section => String::new(),
    };
    let space = if value.is_empty() { "" } else { " " };
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{mark}{indent}{item}{name}:{space}{value}");

    let indent = format!("{indent}  ");
    match key.value {
        KeyValue::Section(keys) => {
            for key in keys {
                push_comment(text, &format!("{mark}{indent}"), &comment(key));
                write_value(text, key, mark, &indent, "");
            }
        }
        KeyValue::SectionList { keys, alternative } => {
            for (n, key) in keys.iter().enumerate() {
                let starts_item = n == 0 || alternative.is_some_and(|other| other.path == key.path);
                let item = if starts_item { "- " } else { "  " };
                push_comment(text, &format!("{mark}{indent}  "), &comment(key));
                write_value(text, key, mark, &indent, item);
            }
        }
        _ => {}
    }
}

fn push_comment(text: &mut String, indent: &str, comment: &str) {
    text.push_str(&wrap_words(&format!("{indent}# "), comment, MAX_COLUMNS));
}
