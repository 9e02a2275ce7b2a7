//! YAML of the simplest kind, as most frontmatter is: lines of `key: value`, and one level of the same
//! below a key. Read here in one pass, which costs a tenth of what the library takes to begin. Gives
//! what the library gives, or nothing: every doubt, and every mistake, is left to the library. The
//! tests hold the two together.

use crate::domain::DynamicValue;
use std::iter::Peekable;

/// Keys in one mapping: each is compared with those before it.
const MAX_KEYS: usize = 64;
/// Far below what the library takes for a key on one line.
const MAX_KEY_BYTES: usize = 64;
/// Signs beyond ASCII that authors use and YAML gives no meaning.
const PLAIN_PUNCTUATION: [char; 10] = ['–', '—', '‘', '’', '“', '”', '…', '•', '→', '≥'];

type MapEntries = Vec<(Box<str>, DynamicValue)>;

/// The value of a text that is surely of this kind.
pub(super) fn parse(text: &str) -> Option<DynamicValue> {
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

/// The mapping in the lines that are indented alike.
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

/// The key and the value of a line; no value where the line ends behind the colon.
fn parse_entry(line: &str) -> Option<(&str, Option<&str>)> {
    let (key, rest) = line.split_once(':')?;
    let is_key = key.len() <= MAX_KEY_BYTES
        && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
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

/// The text that a value means.
fn parse_scalar(value: &str) -> Option<&str> {
    if !value.chars().all(is_plain_char) {
        return None;
    }
    if let quote @ ('"' | '\'') = value.chars().next()? {
        let inside = value[1..].strip_suffix(quote)?;
        let is_plain = !inside.is_empty() && !inside.contains([quote, '\\']);
        return is_plain.then_some(inside);
    }
    let goes_on = value.contains(": ") || value.contains(" #") || value.ends_with(':');
    (is_plain_text(value) && !goes_on).then_some(value)
}

/// Whether it begins like text, and is not one of the words that mean something else.
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
    use crate::domain::DynamicValue;
    use crate::domain::yaml::parse_with_library;
    use proptest::prelude::*;

    /// What is read here is what the library reads.
    fn agrees(text: &str) -> Result<bool, TestCaseError> {
        let Some(read) = parse(text) else { return Ok(false) };
        prop_assert_eq!(parse_with_library(text).ok(), Some(read), "{:?}", text);
        Ok(true)
    }

    /// Lines that are of the kind, or nearly.
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
        (indent, key, colon, value, prop_oneof![9 => Just(""), 1 => Just(" ")]).prop_map(
            |(indent, key, colon, value, end)| format!("{indent}{key}{colon}{value}{end}"),
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_096))]

        #[test]
        fn lines_are_read_as_the_library_does(
            lines in proptest::collection::vec(line(), 1..6), end in prop_oneof![Just(""), Just("\n")],
        ) {
            agrees(&(lines.join("\n") + end))?;
        }

        #[test]
        fn any_text_is(text in "[a-c:\" '#\n-]{0,24}") {
            agrees(&text)?;
        }
    }

    #[test]
    fn what_most_skills_say_is_read() {
        let text = "name: a-b\ndescription: Does (this), e.g. \"that\"; see https://x.y/?a=b — now.\n\
                    license: 'It''s'\n";
        assert_eq!(parse(text), None, "a quote in quotes is the library's");
        let text = "name: a-b\ndescription: Does (this), e.g. \"that\"; see https://x.y/?a=b — now.\n\
                    metadata:\n  version: \"1.0\"\n  author: 'me: I'\nlicense: MIT\n";
        assert!(agrees(text).expect("the same"));
        let metadata = parse(text).and_then(|value| value.get("metadata").cloned());
        let author =
            metadata.as_ref().and_then(|m| m.get("author")).and_then(DynamicValue::as_text);
        assert_eq!(author, Some("me: I"));
    }

    #[test]
    fn what_is_anything_else_is_left() {
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
