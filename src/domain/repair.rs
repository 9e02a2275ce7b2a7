//! Quotes values in YAML that does not parse, where authors forget to: `description: Use when: x`.
//! Works line by line and leaves judging the outcome to the caller, who parses it again.

use super::yaml::{self, YamlErrorKind};

/// What a repair did: the text, and the line (from 1) and key of each value that it quoted.
pub type Repaired = (String, Vec<(u32, String)>);

/// Puts single quotes around each unquoted value that is no YAML on its own and that contains `: `,
/// ends with `:`, or begins with `[`, `{`, `@`, a backtick or `<`. Indented lines that go on with the
/// value are joined to it, and left blank, so that line numbers stay. `None` where there is nothing
/// to quote. Meant for text that does not parse; text in block scalars and quotes is not touched.
#[must_use]
pub fn repair(yaml: &str) -> Option<Repaired> {
    let lines: Vec<&str> = yaml.split_inclusive('\n').collect();
    let mut out = String::with_capacity(yaml.len() + 16);
    let mut quoted = Vec::new();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        let next = at + 1 + continuation(&lines[at..]);
        match repaired(&lines[at..next]) {
            Some((key, text)) => {
                quoted.push((u32::try_from(at + 1).unwrap_or(u32::MAX), key.to_owned()));
                out.push_str(&text);
                out.push_str(ending(line));
                lines[at + 1..next].iter().for_each(|line| out.push_str(ending(line)));
            }
            None => out.extend(lines[at..next].iter().copied()),
        }
        at = next;
    }
    (!quoted.is_empty()).then_some((out, quoted))
}

/// A line of a block: where its entry begins, its key if it has one, its value.
struct Line<'a> {
    /// The column, from 0, of the key, or else of the value.
    indent: usize,
    /// The column, from 0, of the innermost dash before it, or else `indent`.
    parent: usize,
    key: Option<&'a str>,
    value: &'a str,
}

fn split(line: &str) -> Line<'_> {
    let line = line.trim_end();
    let mut indent = blanks(line);
    let mut parent = indent;
    while let Some(rest) = line[indent..].strip_prefix('-').filter(|r| r.starts_with(' ')) {
        parent = indent;
        indent += 1 + blanks(rest);
    }
    let text = &line[indent..];
    match key_end(text) {
        Some(end) => {
            let (key, value) = (text[..end].trim_end(), text[end + 1..].trim_start());
            Line { indent, parent: indent, key: Some(key), value }
        }
        None => Line { indent, parent, key: None, value: text },
    }
}

fn blanks(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Where the `:` behind a plain key is.
fn key_end(text: &str) -> Option<usize> {
    if text.starts_with(|c| "#\"'[]{}&*!|>%@`,<".contains(c)) {
        return None;
    }
    let end = text
        .match_indices(':')
        .map(|(at, _)| at)
        .find(|at| text[at + 1..].chars().next().is_none_or(|c| matches!(c, ' ' | '\t')))?;
    let key = text[..end].trim();
    (!key.is_empty() && !text[..end].contains(" #")).then_some(end)
}

/// How many of the lines behind the first belong to its value.
fn continuation(lines: &[&str]) -> usize {
    let Line { indent, parent, key, value } = split(lines[0]);
    let rest = &lines[1..];
    let deeper = |line: &&&str| is_blank(line) || blanks(line) > parent;
    match first_of_content(value) {
        Some('|' | '>') => rest.iter().take_while(deeper).count(),
        Some(quote @ ('"' | '\'')) => quoted_lines(quote, value, rest),
        Some('[' | '{') => rest
            .iter()
            .take_while(|line| !is_blank(line) && (blanks(line) > indent || closes(line)))
            .count(),
        Some('#') | None => 0,
        Some(_) if key.is_some() => {
            rest.iter().take_while(|line| !is_blank(line) && blanks(line) > indent).count()
        }
        Some(_) => 0,
    }
}

/// The first character of a value behind its anchor and tag.
fn first_of_content(mut value: &str) -> Option<char> {
    while value.starts_with(['&', '!']) {
        value = value.split_once([' ', '\t']).map_or("", |(_, rest)| rest.trim_start());
    }
    value.chars().next()
}

fn is_blank(line: &str) -> bool {
    line.trim().is_empty()
}

/// Whether a line ends a list or mapping in brackets, and so may stand as far left as its key.
fn closes(line: &str) -> bool {
    line.trim_start().starts_with([']', '}'])
}

/// How many more lines a quoted scalar takes that begins in `value`.
fn quoted_lines(quote: char, value: &str, rest: &[&str]) -> usize {
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

/// The key, and the entry in one line without its end, if its value has to be quoted.
fn repaired<'a>(lines: &[&'a str]) -> Option<(&'a str, String)> {
    let first = lines[0].trim_end();
    let Line { key, value, .. } = split(first);
    let key = key?;
    if value.is_empty() || value.starts_with(['"', '\'', '|', '>', '&', '*', '!', '#']) {
        return None;
    }
    let mut joined = value.to_owned();
    for line in &lines[1..] {
        joined.push(' ');
        joined.push_str(line.trim());
    }
    let is_ours = joined.contains(": ")
        || joined.ends_with(':')
        || joined.starts_with(['[', '{', '@', '`', '<']);
    if !is_ours || !is_broken(&joined) {
        return None;
    }
    let before = &first[..first.len() - value.len()];
    Some((key, format!("{before}'{}'", joined.replace('\'', "''"))))
}

fn is_broken(value: &str) -> bool {
    yaml::parse(&format!("x: {value}")).is_err_and(|error| error.kind == YamlErrorKind::Syntax)
}

/// The end of a line: nothing, `\n` or `\r\n`.
fn ending(line: &str) -> &str {
    let text = line.strip_suffix('\n').unwrap_or(line);
    &line[text.strip_suffix('\r').unwrap_or(text).len()..]
}

#[cfg(test)]
mod tests;
