//! Repairs YAML with missing quotes, such as `description: Use when: x`. Works line by line; the
//! caller parses the result again.

use super::yaml::{self, YamlError, YamlErrorKind};
use std::ops::Range;

/// Repaired text, and the line (from 1) and key of each quoted value.
pub type RepairedYaml = (String, Vec<(u32, String)>);

/// Puts single quotes around each value that is invalid YAML on its own, such as `a: b`, `[x] y`, `*`,
/// `| text` or `"a" or "b"`. A value in quotes is changed only if its quotes have one reading. Joins
/// indented continuation lines to the value and leaves them blank, which preserves line numbers. Valid
/// values are not changed. Returns `None` if there is nothing to quote. Intended for text that does not
/// parse.
#[must_use]
pub fn quote_broken_values(yaml: &str) -> Option<RepairedYaml> {
    let lines: Vec<&str> = yaml.split_inclusive('\n').collect();
    let mut out = String::with_capacity(yaml.len() + 16);
    let mut quoted = Vec::new();
    let mut at = 0;

    while at < lines.len() {
        let next = at + 1 + count_continuation_lines(&lines[at..]);
        match repair_entry(&lines[at..next]) {
            Some((key, text)) => {
                quoted.push((u32::try_from(at + 1).unwrap_or(u32::MAX), key.to_owned()));
                out.push_str(&text);
                out.extend(lines[at..next].iter().map(|line| line_ending(line)));
            }
            None => out.extend(lines[at..next].iter().copied()),
        }
        at = next;
    }

    (!quoted.is_empty()).then_some((out, quoted))
}

/// One line of block-style YAML.
struct BlockLine<'a> {
    /// Column (from 0) of the key, or of the value if there is no key.
    indent: usize,
    /// Column (from 0) of the innermost preceding dash, or `indent` if there is no dash.
    parent_indent: usize,
    key: Option<&'a str>,
    value: &'a str,
}

fn split_line(line: &str) -> BlockLine<'_> {
    let line = line.trim_end();
    let mut indent = count_leading_spaces(line);
    let mut parent_indent = indent;

    while line[indent..].starts_with("- ") {
        parent_indent = indent;
        indent += 1 + count_leading_spaces(&line[indent + 1..]);
    }

    let text = &line[indent..];
    match key_end(text) {
        Some(end) => BlockLine {
            indent,
            parent_indent: indent,
            key: Some(text[..end].trim_end()),
            value: text[end + 1..].trim_start(),
        },
        None => BlockLine {
            indent,
            parent_indent,
            key: None,
            value: text,
        },
    }
}

fn count_leading_spaces(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Returns the offset of the `:` after a plain key.
fn key_end(text: &str) -> Option<usize> {
    if text.starts_with(|c| "#\"'[]{}&*!|>%@`,<".contains(c)) {
        return None;
    }
    let mut colons = text.match_indices(':').map(|(at, _)| at);
    let end = colons.find(|at| {
        let after = &text[at + 1..];
        after.is_empty() || after.starts_with([' ', '\t'])
    })?;
    let key = text[..end].trim();
    (!key.is_empty() && !text[..end].contains(" #")).then_some(end)
}

/// Returns the number of lines after the first that belong to its value.
fn count_continuation_lines(lines: &[&str]) -> usize {
    let BlockLine {
        indent,
        parent_indent,
        key,
        value,
    } = split_line(lines[0]);

    let rest = &lines[1..];
    let is_deeper = |line: &&&str| !is_blank(line) && count_leading_spaces(line) > indent;
    // A line that closes a list or mapping in brackets may have the indent of its key.
    let closes_bracket = |line: &str| line.trim_start().starts_with([']', '}']);

    match first_content_char(value) {
        Some('|' | '>') => rest
            .iter()
            .take_while(|line| is_blank(line) || count_leading_spaces(line) > parent_indent)
            .count(),
        Some(quote @ ('"' | '\'')) => {
            let quoted = count_quoted_lines(quote, value, rest);
            // Text that goes on below a closed quote belongs to the broken value.
            quoted + rest[quoted..].iter().take_while(is_deeper).count()
        }
        Some('[' | '{') => rest
            .iter()
            .take_while(|line| is_deeper(line) || closes_bracket(line))
            .count(),
        Some(c) if key.is_some() && c != '#' => rest.iter().take_while(is_deeper).count(),
        _ => 0,
    }
}

/// Returns the first character of a value after its anchor and tag.
fn first_content_char(mut value: &str) -> Option<char> {
    while value.starts_with(['&', '!']) {
        let rest = value.split_once([' ', '\t']);
        value = rest.map_or("", |(_, rest)| rest.trim_start());
    }
    value.chars().next()
}

fn is_blank(line: &str) -> bool {
    line.trim().is_empty()
}

/// Returns the number of continuation lines of a quoted scalar that begins in `value`.
fn count_quoted_lines(quote: char, value: &str, rest: &[&str]) -> usize {
    let start = value.find(quote).map_or(value.len(), |at| at + 1);
    if closes_quote(quote, &value[start..]) {
        return 0;
    }
    let mut lines = rest.iter();
    let closing = lines.position(|line| closes_quote(quote, line));
    closing.map_or(rest.len(), |at| at + 1)
}

fn closes_quote(quote: char, text: &str) -> bool {
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if quote == '"' => drop(chars.next()),
            '\'' if quote == '\'' && chars.peek() == Some(&'\'') => drop(chars.next()),
            c if c == quote => return true,
            _ => {}
        }
    }
    false
}

/// Returns the key and the repaired entry in one line, without its line ending. Returns `None` if
/// the value needs no quotes.
fn repair_entry<'a>(lines: &[&'a str]) -> Option<(&'a str, String)> {
    let first = lines[0].trim_end();
    let BlockLine { key, value, .. } = split_line(first);
    // A tab is no indentation, so that the lines below may be keys of their own.
    let key = key.filter(|_| !first.starts_with('\t'))?;
    let continuation = || {
        let lines = lines[1..].iter().map(|line| line.trim());
        lines.filter(|line| !line.is_empty())
    };

    let mut written = value.to_owned();
    // The lines below `|` and `>` are any text, so only the line of the sign can be invalid.
    if !matches!(first_content_char(value), Some('|' | '>')) {
        continuation().for_each(|line| written.extend(["\n  ", line]));
    }
    if value.is_empty() || !is_invalid_yaml(&written) {
        return None;
    }

    let mut text = value.to_owned();
    if value.starts_with(['"', '\'']) {
        let intended = intended_text(value).filter(|_| lines.len() == 1);
        intended?.clone_into(&mut text);
    }
    continuation().for_each(|line| text.extend([" ", line]));

    let quoted = quote_text(&text);
    let before = &first[..first.len() - value.len()];
    (!is_invalid_yaml(&quoted)).then(|| (key, format!("{before}{quoted}")))
}

/// Returns the text that the author meant by a value in quotes with further quotes: without its outer
/// quotes if they enclose the others, as in `"say "a" or b"`, else as written, as in `"a" or "b"`.
/// Returns `None` if the quotes have no reading, or several.
fn intended_text(value: &str) -> Option<&str> {
    let quote = value.chars().next()?;
    // In double quotes, a backslash begins an escape.
    if !closes_quote(quote, &value[1..]) || value.contains('\\') {
        return None;
    }

    let mut depth = 0_usize;
    let mut is_enclosed = true;
    for (at, _) in value.match_indices(quote) {
        let before = value[..at].chars().next_back();
        let after = value[at + 1..].chars().next();
        let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        let opens = before.is_none_or(|c| c.is_whitespace() || "([{".contains(c));
        let closes = after.is_none_or(|c| c.is_whitespace() || ".,;:!?)]}".contains(c));
        match (opens, closes) {
            (true, false) => depth += 1,
            (false, true) => {
                depth = depth.checked_sub(1)?;
                is_enclosed &= depth > 0 || after.is_none();
            }
            // An apostrophe.
            (false, false) if quote == '\'' && is_letter(before) && is_letter(after) => {}
            _ => return None,
        }
    }

    let enclosed = value[1..].strip_suffix(quote).filter(|_| is_enclosed);
    (depth == 0).then(|| enclosed.unwrap_or(value))
}

/// Returns a text in single quotes.
#[must_use]
pub fn quote_text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn is_invalid_yaml(value: &str) -> bool {
    // The parser reports an unknown anchor before the text behind the alias.
    let is_alias = |name: &str| !name.is_empty() && !name.contains([' ', '\t', '*', ':']);
    let is_text = value.strip_prefix('*').is_some_and(|name| !is_alias(name));
    yaml::parse(&format!("x: {value}"))
        .is_err_and(|error| error.kind == YamlErrorKind::Syntax || is_text)
}

/// Blanks each entry of the outer mapping that is the reason of the error: an entry that is invalid YAML
/// on its own, or that has the unknown anchor. An entry whose key decides something stays. Preserves line
/// numbers. Returns `None` if there is no such entry.
#[must_use]
pub fn blank_broken_entries(
    yaml: &str,
    error: &YamlError,
    decides: impl Fn(&str) -> bool,
) -> Option<RepairedYaml> {
    // On its own, an entry that uses the anchor of another entry has an unknown anchor, too.
    let is_broken = |entry: &str, lines: Range<usize>| match error.kind {
        YamlErrorKind::Syntax => {
            yaml::parse(entry).is_err_and(|error| error.kind == YamlErrorKind::Syntax)
        }
        YamlErrorKind::Rejected => {
            let has_error = lines.contains(&(error.line as usize).saturating_sub(1));
            has_error && error.message.contains("unknown anchor")
        }
    };

    let lines: Vec<&str> = yaml.split_inclusive('\n').collect();
    let mut out = String::with_capacity(yaml.len());
    let mut blanked = Vec::new();
    let mut at = 0;

    while at < lines.len() {
        let rest = lines[at + 1..].iter();
        let next = at + 1 + rest.take_while(|line| outer_key(line).is_none()).count();
        let entry = lines[at..next].concat();

        match outer_key(lines[at]).filter(|key| !decides(key)) {
            Some(key) if is_broken(&entry, at..next) => {
                blanked.push((u32::try_from(at + 1).unwrap_or(u32::MAX), key.to_owned()));
                out.extend(lines[at..next].iter().map(|line| line_ending(line)));
            }
            _ => out.push_str(&entry),
        }
        at = next;
    }

    (!blanked.is_empty()).then_some((out, blanked))
}

/// Returns the plain key of a line that is not indented.
#[must_use]
pub fn outer_key(line: &str) -> Option<&str> {
    let BlockLine { indent, key, .. } = split_line(line);
    key.filter(|_| indent == 0)
}

/// Returns the line ending: `\n`, `\r\n` or empty.
fn line_ending(line: &str) -> &str {
    let text = line.strip_suffix('\n').unwrap_or(line);
    &line[text.strip_suffix('\r').unwrap_or(text).len()..]
}

#[cfg(test)]
mod tests;
