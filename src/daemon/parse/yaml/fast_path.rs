//! Fast path for the simple YAML of most frontmatter: lines of `key: value`, and one nested level.
//! Parses in one pass, at a tenth of the library's fixed cost. Returns the same value as the
//! library, or `None` in case of doubt, so that the library parses the text. Tests compare both.

use crate::daemon::model::DynamicValue;
use caproot_core::text::is_printable_ascii;
use std::iter::Peekable;

/// Maximum number of keys in one mapping. Each key is compared with all previous keys.
const MAX_KEYS: usize = 64;
/// Maximum length of a key, far below the library's limit for a key on one line.
const MAX_KEY_BYTES: usize = 64;
/// Common non-ASCII punctuation without a meaning in YAML.
const PLAIN_PUNCTUATION: [char; 10] = ['–', '—', '‘', '’', '“', '”', '…', '•', '→', '≥'];

type MapEntries = Vec<(Box<str>, DynamicValue)>;

/// Parses a text, or returns `None` if the text is not certainly simple.
pub fn parse(text: &str) -> Option<DynamicValue> {
    let mut lines = text.split_terminator('\n').peekable();
    let mut entries = MapEntries::new();
    while let Some(line) = lines.next() {
        let (key, value) = parse_entry(line)?;
        let value = match value {
            Some(value) => DynamicValue::Text(value.into()),
            None => parse_nested_mapping(&mut lines)?,
        };
        add_entry(&mut entries, key, value)?;
    }
    (!entries.is_empty()).then(|| DynamicValue::Map(entries.into()))
}

/// Parses a nested mapping from the following lines with the same indent.
fn parse_nested_mapping<'a>(
    lines: &mut Peekable<impl Iterator<Item = &'a str>>,
) -> Option<DynamicValue> {
    let mut entries = MapEntries::new();
    let mut indent = 0;
    while let Some(line) = lines.next_if(|line| line.starts_with(' ')) {
        let rest = line.trim_start_matches(' ');
        let spaces = line.len() - rest.len();
        if entries.is_empty() {
            indent = spaces;
        }
        let (key, value) = parse_entry(rest).filter(|_| spaces == indent)?;
        add_entry(&mut entries, key, DynamicValue::Text(value?.into()))?;
    }
    (!entries.is_empty()).then(|| DynamicValue::Map(entries.into()))
}

fn add_entry(entries: &mut MapEntries, key: &str, value: DynamicValue) -> Option<()> {
    let is_new = entries.len() < MAX_KEYS && entries.iter().all(|(k, _)| &**k != key);
    is_new.then(|| entries.push((key.into(), value)))
}

/// Parses the key and value of a line. The value is `None` if the line ends after the colon.
fn parse_entry(line: &str) -> Option<(&str, Option<&str>)> {
    let (key, rest) = line.split_once(':')?;
    let is_key = key.len() <= MAX_KEY_BYTES
        && key
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
        && is_plain_text(key);
    if !is_key {
        return None;
    }
    if rest.is_empty() {
        return Some((key, None));
    }
    let value = parse_scalar(rest.strip_prefix(' ')?.trim_matches(' '))?;
    Some((key, Some(value)))
}

/// Parses a plain or quoted scalar.
fn parse_scalar(value: &str) -> Option<&str> {
    if !is_printable_ascii(value.as_bytes()) && !value.chars().all(is_plain_char) {
        return None;
    }
    if let quote @ ('"' | '\'') = value.chars().next()? {
        let inside = value[1..].strip_suffix(quote)?;
        let is_plain = !inside.is_empty() && !inside.contains([quote, '\\']);
        return is_plain.then_some(inside);
    }
    let has_syntax = value.contains(": ") || value.contains(" #") || value.ends_with(':');
    (is_plain_text(value) && !has_syntax).then_some(value)
}

/// Whether a text begins with a letter and is not `null`, `true` or `false`.
fn is_plain_text(text: &str) -> bool {
    const NO_TEXT: [&str; 3] = ["null", "true", "false"];
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && !NO_TEXT.iter().any(|word| text.eq_ignore_ascii_case(word))
}

fn is_plain_char(c: char) -> bool {
    c == ' '
        || c.is_ascii_graphic()
        || !c.is_ascii() && (c.is_alphanumeric() || PLAIN_PUNCTUATION.contains(&c))
}

#[cfg(test)]
mod tests {
    use super::parse;
    use crate::daemon::model::DynamicValue;
    use crate::daemon::parse::yaml::parse_with_library;
    use proptest::prelude::*;

    /// Checks that a parsed text has the value that the library returns. Returns whether it was
    /// parsed.
    fn agrees(text: &str) -> Result<bool, TestCaseError> {
        let Some(read) = parse(text) else {
            return Ok(false);
        };
        prop_assert_eq!(parse_with_library(text).ok(), Some(read), "{:?}", text);
        Ok(true)
    }

    /// Lines that are simple or nearly simple.
    fn line() -> impl Strategy<Value = String> {
        let indent = prop_oneof![4 => Just(""), 2 => Just("  "), 1 => Just(" "), 1 => Just("    ")];
        let key = prop_oneof![6 => "[a-c]", 2 => "[a-zA-Z][a-zA-Z0-9_-]{0,12}", 1 => "[ -~]{0,6}",
            1 => "null|true|No|on|y|1|~"];
        let colon =
            prop_oneof![8 => Just(": "), 3 => Just(":"), 1 => Just(":  "), 1 => Just(" : ")];
        let value = prop_oneof![
            4 => "[a-z][a-z ,.]{0,12}",
            3 => "[a-z][a-z:#'\"\\[\\]{}&*!|>%@`,?\\\\ -]{0,16}",
            2 => "\"[a-z:# ']{0,8}\"",
            2 => "'[a-z:# \"]{0,8}'",
            2 => "[ -~éß—…\u{85}\u{a0}\u{2028}\u{feff}\t\r]{0,10}",
            1 => "null|Null|TRUE|false|infinity|nan|inf|yes|on|0x1f|1e3|1|~|\\.inf|e5|x1",
            1 => Just(String::new()),
        ];
        (
            indent,
            key,
            colon,
            value,
            prop_oneof![9 => Just(""), 1 => Just(" ")],
        )
            .prop_map(|(indent, key, colon, value, end)| {
                format!("{indent}{key}{colon}{value}{end}")
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_096))]

        #[test]
        fn simple_lines_match_the_library(
            lines in proptest::collection::vec(line(), 1..6), end in prop_oneof![Just(""), Just("\n")],
        ) {
            agrees(&(lines.join("\n") + end))?;
        }

        #[test]
        fn any_text_matches_the_library(text in "[a-c:\" '#\n-]{0,24}") {
            agrees(&text)?;
        }
    }

    #[test]
    fn common_frontmatter_is_parsed() {
        let text = "name: a-b\ndescription: Does (this), e.g. \"that\"; see https://x.y/?a=b — now.\n\
                    license: 'It''s'\n";
        assert_eq!(parse(text), None, "escaped quotes need the library");
        let text = "name: a-b\ndescription: Does (this), e.g. \"that\"; see https://x.y/?a=b — now.\n\
                    metadata:\n  version: \"1.0\"\n  author: 'me: I'\nlicense: MIT\n";
        assert!(agrees(text).expect("the same"));
        let metadata = parse(text).and_then(|value| value.get("metadata").cloned());
        let author = metadata
            .as_ref()
            .and_then(|m| m.get("author"))
            .and_then(DynamicValue::as_text);
        assert_eq!(author, Some("me: I"));
    }

    #[test]
    fn other_yaml_is_not_parsed() {
        for text in [
            "",
            "\n",
            "a",
            "a:",
            "a: ",
            "a: 1",
            "a: null",
            "a: True",
            "true: a",
            "a: b: c",
            "a: b #c",
            "a: b\n c: d",
            "a:\n  b:\n    c: d",
            "a:\n  b: c\n d: e",
            "a:\n- b",
            "a: [b]",
            "a: |\n  b",
            "a: &b c",
            "a: b\r\n",
            "a: b\n\nc: d",
            "a: b\n# c",
            "a: b\na: c",
            "a: b\n---\n",
            "a: b\tc",
            "a: \"b\\n\"",
            "a: \"b\" c",
            "a: 'b' #c",
            "a: b\u{2028}c",
            "a: b\n...\n",
            "é: a",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
