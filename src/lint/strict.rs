//! Rules of `skills-ref`, the validator of the Agent Skills format, for `caproot check --strict`. A
//! skill that the validator rejects has an error here.

use crate::daemon::model::{DiagnosticCode, FileProblem};
use crate::daemon::parse::{frontmatter, names};
use crate::lint::package::MAX_TEXT_BYTES;
use caproot_core::document::{self, DocumentEntry, DocumentNode, DocumentValue, TextPosition};
use caproot_core::text::fences::{self, BYTE_ORDER_MARK};
use caproot_core::text::{exceeds_chars, position, quote_word, quote_words};
use icu_normalizer::ComposingNormalizerBorrowed;
use icu_properties::CodePointMapData;
use icu_properties::props::{GeneralCategory, GeneralCategoryGroup};
use std::collections::HashSet;

/// Maximum characters of a name.
const MAX_NAME: usize = 64;
/// Maximum characters of a description, with all its white space.
const MAX_DESCRIPTION: usize = 1_024;
/// Maximum characters of `compatibility`.
const MAX_COMPATIBILITY: usize = 500;
/// Line of the file on which the text between the fences begins.
const FIRST_LINE: u32 = 2;
/// Categories of the characters for which Python's `str.isalnum` is true.
const ALPHANUMERIC: GeneralCategoryGroup =
    GeneralCategoryGroup::Letter.union(GeneralCategoryGroup::Number);

/// Returns an error for each rule that a SKILL.md violates. The skill is in the catalog, so caproot
/// could read its frontmatter. If `is_repaired`, the YAML is known to be invalid.
pub fn format_errors(file: &[u8], dir_name: &[u8], is_repaired: bool) -> Vec<FileProblem> {
    let mut errors = encoding_errors(file);
    let Some((fenced, _)) = fences::split_file(file) else {
        return errors;
    };
    let Ok(yaml) = std::str::from_utf8(&file[fenced]) else {
        return errors;
    };

    errors.extend(early_fence_error(yaml));

    // The repaired YAML is reported as an error already.
    if is_repaired {
        return errors;
    }

    match read_fields(yaml) {
        Err(error) => errors.push(error),
        Ok(fields) => {
            errors.extend(unknown_field_error(&fields));
            errors.extend(name_errors(&fields, &String::from_utf8_lossy(dir_name)));
            // A missing or empty description is an error of each check.
            errors.extend(text_error(&fields, "description", MAX_DESCRIPTION));
            errors.extend(text_error(&fields, "compatibility", MAX_COMPATIBILITY));
        }
    }
    errors
}

/// Returns errors for bytes with which the validator does not get to the frontmatter.
fn encoding_errors(file: &[u8]) -> Vec<FileProblem> {
    let mut errors = Vec::new();
    if file.starts_with(BYTE_ORDER_MARK) {
        let why = "a byte order mark precedes the `---`; save the file as UTF-8 without it";
        errors.push(FileProblem::error(DiagnosticCode::NoFrontmatter, why).with_position(1, 1));
    }

    if let Err(error) = std::str::from_utf8(file) {
        // The limit may cut the last character.
        let is_cut = error.error_len().is_none() && file.len() >= MAX_TEXT_BYTES;
        let (line, column) = position::position_of_byte(file, error.valid_up_to());
        let why = "the file is not UTF-8; save the file as UTF-8";
        let error = FileProblem::error(DiagnosticCode::NotUtf8, why).with_position(line, column);
        errors.extend((!is_cut).then_some(error));
    }
    errors
}

/// Returns an error for `---` inside of the frontmatter. The validator ends the frontmatter there.
fn early_fence_error(yaml: &str) -> Option<FileProblem> {
    let at = yaml.find("---")?;
    let (line, column) = position::position_of_byte(yaml.as_bytes(), at);
    let why = "other programs end the frontmatter at this `---`; write other characters";
    Some(yaml_error(TextPosition { line, column }, why))
}

/// Reads the YAML by the rules of `StrictYAML`: no flow style, anchors, tags or duplicate keys.
fn read_fields(yaml: &str) -> Result<Vec<FieldEntry>, FileProblem> {
    // Python reads text files with universal newlines.
    let yaml = yaml.replace("\r\n", "\n").replace('\r', "\n");
    if let Some(at) = yaml.find(|c| !is_yaml_printable(c)) {
        let (line, column) = position::position_of_byte(yaml.as_bytes(), at);
        return Err(yaml_error(
            TextPosition { line, column },
            "a control character; remove it",
        ));
    }
    check_tabs(&yaml)?;

    let node = document::parse(&yaml).map_err(|error| yaml_error(error.position, &error.reason))?;
    let source = YamlSource(yaml.split('\n').collect());
    source.check_node(&node)?;

    // The catalog has no skill whose frontmatter is not a mapping.
    let DocumentValue::Map(entries) = node.value else {
        return Ok(Vec::new());
    };
    let fields = entries.into_iter().map(|entry| FieldEntry {
        text: source.scalar_text(&entry.node),
        key: entry.key,
        position: entry.key_position,
    });
    Ok(fields.collect())
}

/// Rejects a tab that is not in a comment. The validator accepts tabs also in quotes and in block
/// scalars, which the parsed document does not show.
fn check_tabs(yaml: &str) -> Result<(), FileProblem> {
    for (line, text) in (1..).zip(yaml.split('\n')) {
        if let Some((before, _)) = text.split_once('\t')
            && !before.starts_with('#')
            && !before.contains(" #")
        {
            let column = u32::try_from(before.chars().count() + 1).unwrap_or(u32::MAX);
            let at = TextPosition { line, column };
            return Err(yaml_error(at, "other programs reject tabs here"));
        }
    }
    Ok(())
}

/// Whether YAML allows the character in a document (YAML 1.2, 5.1).
fn is_yaml_printable(c: char) -> bool {
    !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}') || matches!(c, '\t' | '\n' | '\u{85}')
}

fn yaml_error(at: TextPosition, why: &str) -> FileProblem {
    position_error(FileProblem::error(DiagnosticCode::YamlSyntax, why), at)
}

/// Gives an error the position in the file of a position between the fences.
fn position_error(error: FileProblem, at: TextPosition) -> FileProblem {
    error.with_position(at.line + FIRST_LINE - 1, at.column)
}

/// Field of the frontmatter.
struct FieldEntry {
    key: Box<str>,
    /// Value as it is written, or `None` for a list or a mapping.
    text: Option<String>,
    /// Position between the fences.
    position: TextPosition,
}

impl FieldEntry {
    fn error(&self, code: DiagnosticCode, why: impl Into<String>) -> FileProblem {
        position_error(FileProblem::error(code, why), self.position)
    }
}

/// Text of the frontmatter, for properties of a node that the parsed document does not have.
struct YamlSource<'a>(Vec<&'a str>);

impl YamlSource<'_> {
    /// Returns the text from a position to the end of the line.
    fn rest_of_line(&self, at: TextPosition) -> &str {
        let line = self
            .0
            .get(at.line as usize - 1)
            .copied()
            .unwrap_or_default();
        let start = line.char_indices().nth(at.column as usize - 1);
        start.map_or("", |(start, _)| &line[start..])
    }

    /// Checks a node and all nodes below.
    fn check_node(&self, node: &DocumentNode) -> Result<(), FileProblem> {
        let is_container = matches!(node.value, DocumentValue::List(_) | DocumentValue::Map(_));
        if is_container && self.rest_of_line(node.position).starts_with(['[', '{']) {
            let why = "other programs reject `[…]` and `{…}` here; write one item a line, or \
                quote the value";
            return Err(yaml_error(node.position, why));
        }

        match &node.value {
            DocumentValue::List(items) => items.iter().try_for_each(|item| self.check_node(item)),
            DocumentValue::Map(entries) => {
                check_keys(entries)?;
                check_indentation(entries)?;
                let mut nodes = entries.iter().map(|entry| &entry.node);
                nodes.try_for_each(|node| self.check_node(node))
            }
            _ => Ok(()),
        }
    }

    /// Returns a scalar as it is written, without its quotes. A value `null` has no text, like a
    /// missing value.
    fn scalar_text(&self, node: &DocumentNode) -> Option<String> {
        match &node.value {
            DocumentValue::Null => Some(String::new()),
            DocumentValue::Bool(value) => Some(
                self.rest_of_line(node.position)
                    .get(..value.to_string().len())
                    .unwrap_or_default()
                    .to_owned(),
            ),
            // Other programs read these as special values of YAML 1.1, not as text.
            DocumentValue::Text(text) if matches!(&**text, "=" | "<<") => None,
            DocumentValue::Number(text) | DocumentValue::Text(text) => Some(text.to_string()),
            DocumentValue::List(_) | DocumentValue::Map(_) => None,
        }
    }
}

/// Rejects duplicate keys and the merge key.
fn check_keys(entries: &[DocumentEntry]) -> Result<(), FileProblem> {
    let mut seen = HashSet::new();
    for entry in entries {
        if &*entry.key == "<<" {
            let why = "other programs merge the value of the key `<<`; rename the key";
            return Err(yaml_error(entry.key_position, why));
        }
        if !seen.insert(&entry.key) {
            let why = format!("duplicate key {}", quote_word(&entry.key));
            return Err(yaml_error(entry.key_position, &why));
        }
    }
    Ok(())
}

/// Rejects mappings below the same mapping with different indentation.
fn check_indentation(entries: &[DocumentEntry]) -> Result<(), FileProblem> {
    let mut starts = entries.iter().filter_map(|entry| {
        let is_mapping = matches!(entry.node.value, DocumentValue::Map(_));
        is_mapping.then_some(entry.node.position)
    });
    if let Some(first) = starts.next()
        && let Some(start) = starts.find(|start| start.column != first.column)
    {
        let why = "other programs reject mappings with different indentation; indent all alike";
        return Err(yaml_error(start, why));
    }
    Ok(())
}

fn find_field<'a>(fields: &'a [FieldEntry], key: &str) -> Option<&'a FieldEntry> {
    fields.iter().find(|field| &*field.key == key)
}

fn unknown_field_error(fields: &[FieldEntry]) -> Option<FileProblem> {
    let unknown: Vec<_> = fields
        .iter()
        .filter(|field| !frontmatter::STANDARD_FIELDS.contains(&&*field.key))
        .collect();
    let first = unknown.first()?;
    let keys = quote_words(unknown.iter().map(|field| &*field.key));
    let why = format!("the format does not define {keys}; move them into `metadata`");
    Some(first.error(DiagnosticCode::FieldUnknown, why))
}

fn name_errors(fields: &[FieldEntry], dir_name: &str) -> Vec<FileProblem> {
    let Some(field) = find_field(fields, "name") else {
        return vec![FileProblem::error(DiagnosticCode::NameInvalid, "no `name`")];
    };
    let Some(written) = field.text.as_deref().map(str::trim) else {
        let why = "`name` must be text";
        return vec![field.error(DiagnosticCode::FieldInvalid, why)];
    };
    if written.is_empty() {
        return vec![field.error(DiagnosticCode::NameInvalid, "no `name`")];
    }

    // The validator compares both names in the form NFKC.
    let nfkc = ComposingNormalizerBorrowed::new_nfkc();
    let name = nfkc.normalize(written);
    let mut errors = Vec::new();
    if exceeds_chars(&name, MAX_NAME) {
        let why = format!(
            "the name {} is over {MAX_NAME} characters",
            quote_word(&name)
        );
        errors.push(field.error(DiagnosticCode::NameInvalid, why));
    }

    let violations = names::format_violations(&name, is_validator_char);
    errors.extend(violations.map(|why| field.error(DiagnosticCode::NameInvalid, why)));

    if name != nfkc.normalize(dir_name) {
        let why = format!(
            "the name {} differs from the directory name {}",
            quote_word(&name),
            quote_word(dir_name)
        );
        errors.push(field.error(DiagnosticCode::NameInvalid, why));
    }
    errors
}

/// Whether the validator allows the character in a name: a lower-case letter, a letter without
/// case, or a digit. Unlike in [`names::is_name_char`], marks are no letters.
fn is_validator_char(c: char) -> bool {
    let category = CodePointMapData::<GeneralCategory>::new().get(c);
    ALPHANUMERIC.contains(category) && c.to_lowercase().eq([c])
}

/// Returns the error of a field that is no text, or has too many characters.
fn text_error(fields: &[FieldEntry], key: &str, most: usize) -> Option<FileProblem> {
    let field = find_field(fields, key)?;
    let Some(text) = &field.text else {
        return Some(field.error(
            DiagnosticCode::FieldInvalid,
            format!("`{key}` must be text"),
        ));
    };
    let why = format!("`{key}` is over {most} characters; shorten it");
    exceeds_chars(text, most).then(|| field.error(DiagnosticCode::FieldTooLong, why))
}

#[cfg(test)]
mod tests {
    use super::format_errors;
    use crate::daemon::model::Severity;

    fn errors_of(file: &[u8], dir_name: &str) -> Vec<(&'static str, u32, u32)> {
        let errors = format_errors(file, dir_name.as_bytes(), false);
        assert!(errors.iter().all(|error| error.severity == Severity::Error));
        let found = errors.iter();
        found
            .map(|error| (error.code.name(), error.line, error.column))
            .collect()
    }

    #[test]
    fn fields_follow_the_rules_of_the_validator() {
        let long = |chars: usize| "é".repeat(chars);
        for (fields, expected) in [
            (String::new(), None),
            (
                "license: MIT\nmetadata:\n  a: 1\n  b:\n    - c".into(),
                None,
            ),
            ("allowed-tools:\n  - Read\n  - Grep".into(), None),
            ("version: 1".into(), Some(("FIELD_UNKNOWN", 4, 1))),
            ("allowed-tools: [Read]".into(), Some(("YAML_SYNTAX", 4, 16))),
            ("metadata: {a: 1}".into(), Some(("YAML_SYNTAX", 4, 11))),
            ("metadata:\n  a: &x 1".into(), Some(("YAML_SYNTAX", 5, 6))),
            ("license: !!str MIT".into(), Some(("YAML_SYNTAX", 4, 10))),
            (
                "metadata:\n  a: 1\n  'a': 2".into(),
                Some(("YAML_SYNTAX", 6, 3)),
            ),
            (
                "metadata:\n  a:\n    b: 1\n  c:\n     d: 1".into(),
                Some(("YAML_SYNTAX", 8, 6)),
            ),
            ("metadata:\n  <<: x".into(), Some(("YAML_SYNTAX", 5, 3))),
            ("license: a --- b".into(), Some(("YAML_SYNTAX", 4, 12))),
            ("license: a\u{7f}b".into(), Some(("YAML_SYNTAX", 4, 11))),
            ("license: a\tb".into(), Some(("YAML_SYNTAX", 4, 11))),
            ("license: a #\tb\n#\tc".into(), None),
            (format!("compatibility: {}", long(500)), None),
            (
                format!("compatibility: {}", long(501)),
                Some(("FIELD_TOO_LONG", 4, 1)),
            ),
            (
                "compatibility:\n  - a".into(),
                Some(("FIELD_INVALID", 4, 1)),
            ),
            ("compatibility: =".into(), Some(("FIELD_INVALID", 4, 1))),
            ("compatibility: 3".into(), None),
        ] {
            let text = format!("---\nname: s\ndescription: d\n{fields}\n---\n");
            let expected: Vec<_> = expected.into_iter().collect();
            assert_eq!(errors_of(text.as_bytes(), "s"), expected, "{fields}");
        }
        for (chars, is_wrong) in [(1_024, false), (1_025, true)] {
            let text = format!("---\nname: s\ndescription: {}\n---\n", long(chars));
            assert_eq!(!errors_of(text.as_bytes(), "s").is_empty(), is_wrong);
        }
    }

    #[test]
    fn names_follow_the_rules_of_the_validator() {
        for (name, dir_name, count) in [
            ("pdf", "pdf", 0),
            ("' pdf '", "pdf", 0),
            ("技能", "技能", 0),
            ("e\u{301}", "é", 0),
            ("ｐｄｆ", "pdf", 0),
            ("12", "12", 0),
            ("true", "true", 0),
            // A vowel sign is a mark, not a letter.
            ("कि", "कि", 1),
            ("TRUE", "TRUE", 1),
            ("pdf", "other", 1),
            ("a_b", "a_b", 1),
            ("a--b", "a--b", 1),
            ("'-a'", "-a", 1),
            ("a-", "a-", 1),
            ("\n  - a", "a", 1),
            ("", "", 1),
            ("null", "null", 1),
        ] {
            let text = format!("---\nname: {name}\ndescription: d\n---\n");
            let errors = errors_of(text.as_bytes(), dir_name);
            assert_eq!(errors.len(), count, "{name}: {errors:?}");
        }
        let missing = errors_of(b"---\ndescription: d\n---\n", "s");
        assert_eq!(missing, [("NAME_INVALID", 0, 0)]);
    }

    #[test]
    fn the_whole_file_is_utf_8_without_a_mark() {
        let good = "---\nname: s\ndescription: d\n---\ntext é\n";
        assert_eq!(errors_of(good.as_bytes(), "s"), []);
        let with_breaks = good.replace('\n', "\r\n");
        assert_eq!(errors_of(with_breaks.as_bytes(), "s"), []);
        let marked = format!("\u{feff}{good}");
        assert_eq!(
            errors_of(marked.as_bytes(), "s"),
            [("NO_FRONTMATTER", 1, 1)]
        );
        let broken = [good.as_bytes(), b"\xff"].concat();
        assert_eq!(errors_of(&broken, "s"), [("NOT_UTF8", 6, 1)]);
        let cut = &good.as_bytes()[..good.len() - 2];
        assert_eq!(errors_of(cut, "s"), [("NOT_UTF8", 5, 6)]);
    }

    #[test]
    fn repaired_yaml_is_not_read_again() {
        let text = b"---\nname: s\ndescription: a: b\n---\n";
        assert_eq!(errors_of(text, "s").len(), 1);
        let errors = format_errors(text, b"s", true);
        assert!(errors.is_empty(), "{errors:?}");
    }
}
