//! Repairs YAML with missing quotes, such as `description: Use when: x`. Works line by line; the
//! caller parses the result again.

use super::yaml::{self, YamlErrorKind};

/// Repaired text, and the line (from 1) and key of each quoted value.
pub type RepairedYaml = (String, Vec<(u32, String)>);

/// Puts single quotes around each unquoted value that is invalid YAML on its own and that contains
/// `: `, ends with `:`, or begins with `[`, `{`, `@`, a backtick or `<`. Joins indented
/// continuation lines to the value and leaves them blank, which preserves line numbers. Block
/// scalars and quoted scalars are not changed. Returns `None` if there is nothing to quote.
/// Intended for text that does not parse.
#[must_use]
pub fn quote_broken_values(yaml: &str) -> Option<RepairedYaml> {
    let lines: Vec<&str> = yaml.split_inclusive('\n').collect();
    let mut out = String::with_capacity(yaml.len() + 16);
    let mut quoted = Vec::new();
    let mut at = 0;

    while let Some(line) = lines.get(at) {
        let next = at + 1 + count_continuation_lines(&lines[at..]);
        match repair_entry(&lines[at..next]) {
            Some((key, text)) => {
                quoted.push((u32::try_from(at + 1).unwrap_or(u32::MAX), key.to_owned()));
                out.push_str(&text);
                out.push_str(line_ending(line));
                lines[at + 1..next]
                    .iter()
                    .for_each(|line| out.push_str(line_ending(line)));
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

    while let Some(rest) = line[indent..]
        .strip_prefix('-')
        .filter(|r| r.starts_with(' '))
    {
        parent_indent = indent;
        indent += 1 + count_leading_spaces(rest);
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
    let end = text.match_indices(':').map(|(at, _)| at).find(|at| {
        text[at + 1..]
            .chars()
            .next()
            .is_none_or(|c| matches!(c, ' ' | '\t'))
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

    match first_content_char(value) {
        Some('|' | '>') => rest
            .iter()
            .take_while(|line| is_blank(line) || count_leading_spaces(line) > parent_indent)
            .count(),
        Some(quote @ ('"' | '\'')) => count_quoted_lines(quote, value, rest),
        Some('[' | '{') => rest
            .iter()
            .take_while(|line| {
                !is_blank(line)
                    && (count_leading_spaces(line) > indent || starts_with_closing_bracket(line))
            })
            .count(),
        Some('#') | None => 0,
        Some(_) if key.is_some() => rest
            .iter()
            .take_while(|line| !is_blank(line) && count_leading_spaces(line) > indent)
            .count(),
        Some(_) => 0,
    }
}

/// Returns the first character of a value after its anchor and tag.
fn first_content_char(mut value: &str) -> Option<char> {
    while value.starts_with(['&', '!']) {
        value = value
            .split_once([' ', '\t'])
            .map_or("", |(_, rest)| rest.trim_start());
    }
    value.chars().next()
}

fn is_blank(line: &str) -> bool {
    line.trim().is_empty()
}

/// Whether a line closes a list or mapping in brackets. Such a line may have the indent of its key.
fn starts_with_closing_bracket(line: &str) -> bool {
    line.trim_start().starts_with([']', '}'])
}

/// Returns the number of continuation lines of a quoted scalar that begins in `value`.
fn count_quoted_lines(quote: char, value: &str, rest: &[&str]) -> usize {
    let start = value.find(quote).map_or(value.len(), |at| at + 1);
    let mut open = !closes_quote(quote, &value[start..]);
    let mut count = 0;
    while open && count < rest.len() {
        open = !closes_quote(quote, rest[count]);
        count += 1;
    }
    count
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
    let key = key?;

    if value.is_empty() || value.starts_with(['"', '\'', '|', '>', '&', '*', '!', '#']) {
        return None;
    }

    let mut joined = value.to_owned();
    for line in &lines[1..] {
        joined.push(' ');
        joined.push_str(line.trim());
    }

    let is_repairable = joined.contains(": ")
        || joined.ends_with(':')
        || joined.starts_with(['[', '{', '@', '`', '<']);
    if !is_repairable || !is_invalid_yaml(&joined) {
        return None;
    }

    let before = &first[..first.len() - value.len()];
    Some((key, format!("{before}'{}'", joined.replace('\'', "''"))))
}

fn is_invalid_yaml(value: &str) -> bool {
    yaml::parse(&format!("x: {value}")).is_err_and(|error| error.kind == YamlErrorKind::Syntax)
}

/// Returns the line ending: `\n`, `\r\n` or empty.
fn line_ending(line: &str) -> &str {
    let text = line.strip_suffix('\n').unwrap_or(line);
    &line[text.strip_suffix('\r').unwrap_or(text).len()..]
}

#[cfg(test)]
mod tests;
