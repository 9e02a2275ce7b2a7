//! Parts of names and descriptions in valid YAML that YAML reads as something else: as a comment, as a tag
//! or anchor, or as a key of its own. Works line by line on block-style YAML.

use super::frontmatter::KNOWN_FIELDS;
use super::yaml_repair::{outer_key, quote_text};
use crate::daemon::model::{DiagnosticCode, FileProblem};
use caproot_core::text;

/// Fields whose text is examined.
const TEXT_FIELDS: [&str; 2] = ["name", "description"];
/// Maximum characters of the lost text in a message.
const MAX_SHOWN_CHARS: usize = 40;

/// Lines of a field, by their indexes.
struct FieldLines<'a> {
    /// Lines of the whole text.
    lines: &'a [&'a str],
    /// Line of the key.
    first: usize,
    /// End of the indented and blank lines that YAML reads as the value.
    end: usize,
    /// End of the lines below that the author most likely meant as the rest of the value.
    continued_end: usize,
    /// Offset of the value in the first line.
    value_start: usize,
}

/// Kind of a misread part.
enum MisreadKind {
    Comment,
    TagOrAnchor,
    Key,
}

/// Part of a field that YAML reads as something else.
struct MisreadPart {
    kind: MisreadKind,
    line: usize,
    /// Offset in the line.
    offset: usize,
}

/// Returns a warning for each misread part of the name and the description, with the position in the
/// file. `yaml` begins on line 2 of the file.
#[must_use]
pub fn misread_problems(yaml: &str) -> Vec<FileProblem> {
    let lines: Vec<&str> = yaml.lines().collect();
    let mut problems = Vec::new();
    for field in TEXT_FIELDS {
        let Some(found) = FieldLines::find(&lines, field) else {
            continue;
        };
        let parts = [found.misread_value(), found.misread_key()];
        let parts = parts.into_iter().flatten();
        problems.extend(parts.map(|part| part.problem(field, &lines)));
    }
    problems
}

/// Puts a misread name or description in quotes, or indents the lines that continue it. Returns `None`
/// if nothing is misread.
#[must_use]
pub fn mend_misread_text(lines: &[&str]) -> Option<Vec<String>> {
    TEXT_FIELDS.into_iter().find_map(|field| {
        let found = FieldLines::find(lines, field)?;
        if found.continued_end > found.end {
            return Some(found.indent_continuation());
        }
        let is_comment_only =
            found.value().starts_with('#') && found.continuation().next().is_none();
        (is_comment_only || found.misread_value().is_some()).then(|| found.quote_value())
    })
}

impl<'a> FieldLines<'a> {
    fn find(lines: &'a [&'a str], field: &str) -> Option<Self> {
        let mut keys = lines.iter().map(|line| outer_key(line));
        let first = keys.position(|key| key == Some(field))?;
        let rest = &lines[first][field.len()..];
        let value = rest.trim_start().strip_prefix(':')?.trim_start();

        let is_inside = |line: &&&str| line.trim().is_empty() || line.starts_with([' ', '\t']);
        let end = first + 1 + lines[first + 1..].iter().take_while(is_inside).count();

        // A name is one word, so that only a description can go on below its line.
        let mut continued_end = end;
        while lines
            .get(continued_end)
            .is_some_and(|line| field == "description" && continues_text(line))
        {
            let nested = lines[continued_end + 1..].iter();
            let nested = nested.take_while(|line| is_inside(line) || line.starts_with("- "));
            continued_end += 1 + nested.count();
        }

        Some(Self {
            lines,
            first,
            end,
            continued_end,
            value_start: lines[first].len() - value.len(),
        })
    }

    fn value(&self) -> &'a str {
        self.lines[self.first][self.value_start..].trim_end()
    }

    /// Returns the lines of the value after the first that are not blank, with their indexes.
    fn continuation(&self) -> impl Iterator<Item = (usize, &'a str)> {
        let numbered = (self.first + 1..self.end).map(|at| (at, self.lines[at]));
        numbered.filter(|(_, line)| !line.trim().is_empty())
    }

    /// Finds the part of a plain value that YAML reads as a comment, a tag or an anchor.
    fn misread_value(&self) -> Option<MisreadPart> {
        let value = self.value();
        if value.is_empty() || value.starts_with(['"', '\'', '|', '>', '[', '{', '#']) {
            return None;
        }

        let part = |kind, line, offset| Some(MisreadPart { kind, line, offset });
        let is_misread_start = match value.strip_prefix('&') {
            Some(named) => !is_used_anchor(named, self.lines),
            None => value.starts_with('!') && !value.starts_with("!!"),
        };
        if is_misread_start {
            return part(MisreadKind::TagOrAnchor, self.first, self.value_start);
        }

        if let Some(at) = comment_start(value) {
            return part(MisreadKind::Comment, self.first, self.value_start + at);
        }
        for (line, text) in self.continuation() {
            if let Some(at) = comment_start(text) {
                return part(MisreadKind::Comment, line, at);
            }
        }

        // `#word` at the start of a line below is a word of the text, and `# word` is a comment.
        let below = self.lines.get(self.end)?.strip_prefix('#')?;
        let is_word = below.starts_with(|c: char| c.is_alphanumeric());
        part(MisreadKind::Comment, self.end, 0).filter(|_| is_word)
    }

    /// Finds the first key that is most likely the continuation of the value.
    fn misread_key(&self) -> Option<MisreadPart> {
        let mut below = self.end..self.continued_end;
        Some(MisreadPart {
            kind: MisreadKind::Key,
            line: below.find(|line| outer_key(self.lines[*line]).is_some())?,
            offset: 0,
        })
    }

    /// Indents the lines that continue the value, like the lines above them.
    fn indent_continuation(&self) -> Vec<String> {
        let indent = self.continuation().next().map_or(2, |(_, line)| {
            line.len() - line.trim_start_matches(' ').len()
        });
        let continued = self.end..self.continued_end;
        let indented = self.lines.iter().enumerate().map(|(at, line)| {
            if continued.contains(&at) && !line.trim().is_empty() {
                format!("{}{line}", " ".repeat(indent.max(1)))
            } else {
                (*line).to_owned()
            }
        });
        indented.collect()
    }

    /// Joins the lines of the value in quotes.
    fn quote_value(&self) -> Vec<String> {
        let first = self.lines[self.first];
        let mut text = self.value().to_owned();
        let rest = self.lines[self.end..].iter();
        let comments: Vec<_> = rest.take_while(|line| line.starts_with('#')).collect();
        let continuation = self.continuation().map(|(_, line)| line);
        for line in continuation.chain(comments.iter().map(|line| **line)) {
            text.extend([" ", line.trim()]);
        }

        let ending = &first[first.trim_end_matches(['\r', '\n']).len()..];
        let before = &first[..self.value_start];
        let quoted = format!("{before}{}{ending}", quote_text(&text));
        let end = self.end + comments.len();
        let before = &self.lines[..self.first];
        let all = [before, &[&*quoted], &self.lines[end..]].concat();
        all.into_iter().map(str::to_owned).collect()
    }
}

impl MisreadPart {
    fn problem(&self, field: &str, lines: &[&str]) -> FileProblem {
        let line = lines[self.line];
        let lost = text::truncate_with_ellipsis(line[self.offset..].trim(), MAX_SHOWN_CHARS);
        let lost = text::quote_word(&lost);
        let why = match self.kind {
            MisreadKind::Comment => format!(
                "`{field}` ends before `#`, because YAML reads {lost} as a comment; quote the value"
            ),
            MisreadKind::TagOrAnchor => format!(
                "YAML reads the first word of `{field}`, {lost}, as a tag or an anchor; quote the value"
            ),
            MisreadKind::Key => format!(
                "{} is a field of its own, but most likely continues `{field}`; indent the line",
                text::quote_word(outer_key(line).unwrap_or_default())
            ),
        };

        // Count the line of the opening fence, and lines from 1.
        let number = u32::try_from(self.line + 2).unwrap_or(u32::MAX);
        let column = u32::try_from(line[..self.offset].chars().count() + 1).unwrap_or(u32::MAX);
        FileProblem::warning(DiagnosticCode::FieldInvalid, why).with_position(number, column)
    }
}

/// Whether a value after the `&` begins with the name of an anchor that an alias uses.
fn is_used_anchor(named: &str, lines: &[&str]) -> bool {
    let name = named.split([' ', '\t']).next().unwrap_or_default();
    let alias = format!("*{name}");
    !name.is_empty() && lines.iter().any(|line| line.contains(&alias))
}

/// Whether a line that is not indented most likely continues the text of the field above: the line has a
/// key with blanks that is not a field of the format, or, below a description, no key.
fn continues_text(line: &str) -> bool {
    if line.trim().is_empty() || line.starts_with(|c: char| " \t#-\"'.<=>|".contains(c)) {
        return false;
    }
    if let Some(key) = outer_key(line) {
        let known = key.to_ascii_lowercase().replace([' ', '_'], "-");
        return key.contains(' ') && !KNOWN_FIELDS.contains(&&*known);
    }

    // Such a line is a field with a full-width colon, or without a blank after the colon.
    let word_end = line.find(|c: char| !c.is_ascii_alphanumeric() && !"-_".contains(c));
    let after_word = word_end.map_or("", |end| &line[end..]);
    let is_field =
        line.contains('：') || after_word.starts_with(':') && !after_word.starts_with("://");
    !is_field
}

/// Returns the offset of the `#` that begins a comment.
fn comment_start(line: &str) -> Option<usize> {
    let mut signs = line.match_indices('#').map(|(at, _)| at);
    signs.find(|at| {
        at.checked_sub(1)
            .is_none_or(|before| line.as_bytes()[before].is_ascii_whitespace())
    })
}

#[cfg(test)]
mod tests {
    use super::{mend_misread_text, misread_problems};
    use crate::daemon::parse::yaml;
    use proptest::prelude::*;

    fn positions(yaml: &str) -> Vec<(u32, u32)> {
        let problems = misread_problems(yaml);
        problems
            .iter()
            .map(|problem| (problem.line, problem.column))
            .collect()
    }

    #[test]
    fn lost_text_is_found_and_mended() {
        for (before, position, after) in [
            (
                "description: Fixes #12 now\n",
                (2, 20),
                "description: 'Fixes #12 now'\n",
            ),
            (
                "name: a\ndescription: Posts\n  to the #ops room\nlicense: x\n",
                (4, 10),
                "name: a\ndescription: 'Posts to the #ops room'\nlicense: x\n",
            ),
            (
                "description: Posts to\n#ops and\n#dev\nlicense: x\n",
                (3, 1),
                "description: 'Posts to #ops and #dev'\nlicense: x\n",
            ),
            (
                "description: !urgent it's on\r\n",
                (2, 14),
                "description: '!urgent it''s on'\r\n",
            ),
            (
                "description: &all of it\n",
                (2, 14),
                "description: '&all of it'\n",
            ),
            ("name: c #\n", (2, 9), "name: 'c #'\n"),
            (
                "description: Runs\nUSE WHEN: a\nNOT FOR: b\nlicense: x\n",
                (3, 1),
                "description: Runs\n  USE WHEN: a\n  NOT FOR: b\nlicense: x\n",
            ),
            (
                "description: >\n    Runs.\nUse when:\n- a\n\n- b\nname: x\n",
                (4, 1),
                "description: >\n    Runs.\n    Use when:\n    - a\n\n    - b\nname: x\n",
            ),
        ] {
            assert_eq!(positions(before), [position], "{before:?}");
            let lines: Vec<&str> = before.split_inclusive('\n').collect();
            let mended = mend_misread_text(&lines).map(|lines| lines.concat());
            assert_eq!(mended.as_deref(), Some(after), "{before:?}");
        }
    }

    #[test]
    fn lines_without_a_key_are_indented_although_no_list_has_them() {
        let lines = [
            "description: Runs on hosts and\n",
            "checks them.\n",
            "license: x\n",
        ];
        assert_eq!(positions(&lines.concat()), []);
        let mended = mend_misread_text(&lines).expect("an unindented line");
        assert_eq!(
            mended.concat(),
            "description: Runs on hosts and\n  checks them.\nlicense: x\n"
        );
    }

    #[test]
    fn text_that_means_what_it_says_is_not_reported() {
        for yaml in [
            "name: a\ndescription: C# and F#, issue#12\n",
            "description: 'Fixes #12' # a comment\n",
            "description: \"Fixes #12\"\n",
            "description: >\n  Fixes #12\n",
            "description: # a comment\n  Text.\n",
            "description: Text.\n# a comment\n## another\nname: b\n",
            "description: Text.\nallowed tools: Read\n",
            "description: Text.\nname: b\nUse when: c\n",
            "description: !!str 12\n",
            "description: &said Text.\nmetadata:\n  again: *said\n",
            "license: MIT #12\n",
            "metadata:\n  description: a #b\n",
            "",
        ] {
            assert_eq!(positions(yaml), [], "{yaml:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_examined_and_mended_text_is_not_shorter(
            text in "(name|description)?(: |:|a| |\n|#|!|&|- |'|\"|>|é|\r|\t){0,24}",
        ) {
            let lines = text.split('\n').count();
            for (line, _) in positions(&text) {
                prop_assert!((line as usize) <= lines + 1);
            }
            let split: Vec<&str> = text.split_inclusive('\n').collect();
            if let Some(mended) = mend_misread_text(&split) {
                prop_assert!(mended.concat().len() > text.trim_end().len() - text.matches(char::is_whitespace).count());
                let _ = yaml::parse(&mended.concat());
            }
        }
    }
}
