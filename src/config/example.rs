//! Documented example of a config file: every key with its default.

use super::keys::{ConfigKey, KeyDefault, KeyReload, KeyValue};
use super::top_keys;
use caproot_core::text::wrap_words;
use std::fmt::Write as _;

/// Width of comment lines.
const MAX_COLUMNS: usize = 100;

const HEAD: &str = "Config file of caproot. Start the daemon with `caproot serve --config FILE`; check a \
    file with `caproot config check FILE`. The file lists every key with its default. The default of \
    keys with `#key:` depends on the machine, or the key has none. Relative paths start at the directory \
    of this file.";

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
    let mut text = key.meaning().to_owned();
    let mut add = |sentence: String| {
        text.push(' ');
        text.push_str(&sentence);
    };
    match key.value {
        KeyValue::Boolean | KeyValue::Section(_) | KeyValue::SectionList { .. } => {}
        value => add(format!("Type: {}.", value.describe())),
    }
    match key.default {
        KeyDefault::Effect { effect, .. } => add(format!("Default: {effect}.")),
        KeyDefault::Required { .. } => add("Required.".to_owned()),
        KeyDefault::Value(_) | KeyDefault::Section => {}
    }
    if let Some(flag) = key.flag {
        add(format!("Flag: {flag}."));
    }
    if let KeyReload::Restart(rule) = key.reload {
        add(format!("Reload: {}.", rule.effect));
    }
    text
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
    let (keys, alternative) = match key.value {
        KeyValue::Section(keys) => (keys, None),
        KeyValue::SectionList { keys, alternative } => (keys, Some(alternative)),
        _ => return,
    };
    for (n, key) in keys.iter().enumerate() {
        let indent = format!("{indent}  ");
        let Some(alternative) = alternative else {
            push_comment(text, &format!("{mark}{indent}"), &comment(key));
            write_value(text, key, mark, &indent, "");
            continue;
        };
        push_comment(text, &format!("{mark}{indent}  "), &comment(key));
        let starts_item = n == 0 || alternative == Some(key.name());
        write_value(
            text,
            key,
            mark,
            &indent,
            if starts_item { "- " } else { "  " },
        );
    }
}

fn push_comment(text: &mut String, indent: &str, comment: &str) {
    text.push_str(&wrap_words(&format!("{indent}# "), comment, MAX_COLUMNS));
}
