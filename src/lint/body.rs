//! Notes about the text of a SKILL.md: its length, its links and the use in its description.

use crate::daemon::model::{DiagnosticCode, FileProblem};
use crate::daemon::parse::key_position;
use crate::lint::new_skill::PLACEHOLDER_END;
use caproot_core::text::{self, fences, position};
use caproot_core::wire::RelPath;
use percent_encoding::percent_decode_str;
use pulldown_cmark::{CowStr, Event, LinkType, Options, Parser, Tag};
use std::collections::HashSet;

/// Most lines of a body without a note. The Agent Skills format recommends both limits.
const MAX_LINES: usize = 500;
/// Most words of a body without a note.
const MAX_WORDS: usize = 5_000;
/// Maximum bytes of a body whose links are examined.
const MAX_LINKED_BYTES: usize = 1 << 20;
/// Maximum number of different links that are examined.
const MAX_LINKS: usize = 256;
/// Maximum number of links that are compared with the examined links.
const MAX_REPEATED_LINKS: usize = 4_096;
/// Maximum size of a link target. No path of the system is longer.
const MAX_TARGET_BYTES: usize = 4_096;
/// Words of a description that say when to use a skill.
const USE_WORDS: [&str; 10] = [
    "when", "whenever", "if", "use", "used", "useful", "trigger", "triggers", "before", "after",
];
/// Characters of link targets that are placeholders and no paths.
const PLACEHOLDER_CHARS: [char; 6] = ['{', '}', '<', '>', '$', '*'];
/// Characters around a path in a command.
const WORD_QUOTES: [char; 8] = ['"', '\'', '(', ')', ',', ';', ':', '='];

/// Path of a body to a file below the root: a Markdown link, or a word in backticks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyLink {
    /// File or directory below the root, with links unresolved, and with `/` for each backslash.
    pub target: RelPath,
    /// Whether the path is a word in backticks, which may be no path of the skill.
    pub is_code: bool,
    /// Target as written.
    text: String,
    line: u32,
    column: u32,
}

/// Fault of a path in a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkFault {
    /// Nothing is at the path.
    Missing,
    /// The path exists in another letter case.
    OtherCase(RelPath),
    /// The path exists with `/` instead of backslashes.
    Backslashes,
}

impl BodyLink {
    /// Whether the path is written with backslashes.
    pub fn has_backslashes(&self) -> bool {
        self.text.contains('\\')
    }

    /// Returns the problem of a faulty path. `package` is the directory of the skill below the root.
    pub fn problem(&self, fault: &LinkFault, package: &RelPath) -> FileProblem {
        let target = text::quote_word(&self.text);
        let verb = if self.is_code { "names" } else { "links to" };
        let shown = |path: &RelPath| {
            let below = path.strip_prefix(package).unwrap_or_else(|| path.clone());
            text::quote_word(&below.to_string())
        };
        let why = match fault {
            LinkFault::Missing => format!("the text {verb} {target}, which does not exist"),
            LinkFault::OtherCase(found) => format!(
                "the text {verb} {target}, which differs from {} in letter case",
                shown(found)
            ),
            LinkFault::Backslashes => format!(
                "the text {verb} {target} with backslashes; write {}",
                shown(&self.target)
            ),
        };
        let code = DiagnosticCode::ReferenceMissing;
        let problem = if self.is_code {
            FileProblem::note(code, why)
        } else {
            FileProblem::warning(code, why)
        };
        problem.with_position(self.line, self.column)
    }
}

/// Returns the problems of the length of a body.
pub fn length_problem(file: &[u8]) -> Option<FileProblem> {
    let (_, start) = fences::split_file(file)?;
    let body = &file[start..];
    let lines = body.split_inclusive(|b| *b == b'\n').count();
    let words = body
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .count();
    let excess = match (lines > MAX_LINES, words > MAX_WORDS) {
        (false, false) => return None,
        (true, false) => format!("{lines} lines, over {MAX_LINES}"),
        (_, true) => format!("{words} words, over {MAX_WORDS}"),
    };
    let why = format!("the text has {excess}");
    let (line, _) = position::position_of_byte(file, start);
    Some(FileProblem::note(DiagnosticCode::SkillTooLong, why).with_position(line, 1))
}

/// Returns the problem of a body with the marks of a merge conflict.
pub fn conflict_problem(file: &[u8]) -> Option<FileProblem> {
    let (_, start) = fences::split_file(file)?;
    let starts_line = |mark: &[u8]| {
        let mut lines = file[start..].split(|b| *b == b'\n');
        lines.position(|line| line.starts_with(mark))
    };
    let begin = starts_line(b"<<<<<<< ")?;
    starts_line(b">>>>>>> ").filter(|end| *end > begin)?;

    let (first_line, _) = position::position_of_byte(file, start);
    let line = first_line.saturating_add(u32::try_from(begin).unwrap_or(u32::MAX));
    let why = "the text has the marks of a merge conflict; keep one side, and remove the marks";
    Some(FileProblem::note(DiagnosticCode::UnusualContent, why).with_position(line, 1))
}

/// Returns the problem of a description that does not say when to use the skill.
pub fn use_problem(file: &[u8], description: &str) -> Option<FileProblem> {
    // A description in another script has other words for its use.
    let mut letters = description.chars().filter(|c| c.is_alphabetic());
    if !letters.all(|c| c.is_ascii() || ('\u{c0}'..='\u{24f}').contains(&c)) {
        return None;
    }
    let is_placeholder = description.ends_with(PLACEHOLDER_END);
    let mut words = description.split(|c: char| !c.is_alphanumeric());
    let says_use = words.any(|word| {
        USE_WORDS
            .iter()
            .any(|known| word.eq_ignore_ascii_case(known))
    });
    if says_use && !is_placeholder {
        return None;
    }

    let (yaml, _) = fences::split_file(file)?;
    let yaml = std::str::from_utf8(&file[yaml]).ok()?;
    let (line, column) = key_position::position_of_key(yaml, &["description"]);
    // The YAML begins after the line of the opening fence.
    let line_in_file = if line == 0 { 0 } else { line + 1 };

    let code = DiagnosticCode::UseNotDescribed;
    let problem = if is_placeholder {
        FileProblem::warning(code, "the description is the text of `caproot new`")
    } else {
        FileProblem::note(code, "the description does not say when to use the skill")
    };
    Some(problem.with_position(line_in_file, column))
}

/// Returns the links of a SKILL.md to files below the root, and the words in backticks that may be such
/// paths, each target once. `package` is the directory of the skill below the root.
pub fn body_links(file: &[u8], package: &RelPath) -> Vec<BodyLink> {
    let mut links = Vec::new();
    let Some((_, start)) =
        fences::split_file(file).filter(|(_, start)| file.len() - start <= MAX_LINKED_BYTES)
    else {
        return links;
    };

    let body = String::from_utf8_lossy(&file[start..]);
    let (first_line, _) = position::position_of_byte(file, start);

    let mut seen = HashSet::new();
    let mut repeated = 0;

    for (event, range) in Parser::new_ext(&body, Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES)
        .into_offset_iter()
    {
        let (words, is_code) = match event {
            Event::Code(code) => (code_paths(&code), true),
            event => match link_destination(event) {
                Some(destination) => (vec![destination.into_string()], false),
                None => continue,
            },
        };

        for word in words {
            let Some(target) = resolve_target(package, &word) else {
                continue;
            };
            if !seen.insert((target.clone(), is_code)) {
                repeated += 1;
                if repeated > MAX_REPEATED_LINKS {
                    return links;
                }
                continue;
            }
            if seen.len() > MAX_LINKS {
                return links;
            }

            let (line, column) = position::position_of_byte(body.as_bytes(), range.start);
            links.push(BodyLink {
                target,
                is_code,
                text: word,
                line: first_line + line - 1,
                column,
            });
        }
    }
    links
}

/// Returns the words of a code span that look like relative paths.
fn code_paths(code: &str) -> Vec<String> {
    code.split_whitespace()
        .map(|word| word.trim_matches(WORD_QUOTES))
        .filter(|word| {
            word.contains(['/', '\\'])
                && word.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '.' | '_'))
        })
        .map(ToOwned::to_owned)
        .collect()
}

/// Returns the destination of a link or image that a file can be the target of.
fn link_destination(event: Event<'_>) -> Option<CowStr<'_>> {
    match event {
        Event::Start(
            Tag::Link {
                link_type,
                dest_url,
                ..
            }
            | Tag::Image {
                link_type,
                dest_url,
                ..
            },
        ) if !matches!(link_type, LinkType::Autolink | LinkType::Email) => Some(dest_url),
        _ => None,
    }
}

/// Resolves the target of a link against the package, without links of the filesystem. Returns
/// `None` for an address, a fragment, an absolute path, a placeholder, and a path out of the root.
fn resolve_target(package: &RelPath, dest: &str) -> Option<RelPath> {
    if dest.len() > MAX_TARGET_BYTES {
        return None;
    }

    let dest = dest.replace('\\', "/");
    let path = dest.split(['#', '?']).next().unwrap_or_default();
    let is_example = path.contains(PLACEHOLDER_CHARS) || path.contains("...") || path.contains('…');
    if path.is_empty() || path.starts_with(['/', '~']) || has_scheme(path) || is_example {
        return None;
    }

    // An encoded `#` or `?` is a part of the path: RFC 3986, section 2.2.
    let decoded: Vec<u8> = percent_decode_str(path).collect();
    let mut segments: Vec<&[u8]> = package.segments().collect();

    for segment in decoded.split(|b| *b == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => drop(segments.pop()?),
            name => segments.push(name),
        }
    }
    RelPath::new(&segments.join(&b'/'))
}

/// Whether a link target begins with the scheme of a URI (RFC 3986, section 3.1).
fn has_scheme(target: &str) -> bool {
    target.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::{body_links, conflict_problem, length_problem, use_problem};
    use caproot_core::wire::RelPath;
    use proptest::prelude::*;

    fn rel(text: &str) -> RelPath {
        RelPath::new(text.as_bytes()).expect(text)
    }

    fn skill(body: &str) -> Vec<u8> {
        format!("---\nname: s\ndescription: d\n---\n{body}").into_bytes()
    }

    #[test]
    fn links_lead_to_files_below_the_root() {
        for (body, expected) in [
            ("See [a](a.md).", Some(("p/s/a.md", 5, 5))),
            (
                "\n\n![i](./assets/i%20j.png \"t\")",
                Some(("p/s/assets/i j.png", 7, 1)),
            ),
            ("[a](../t/SKILL.md#part)", Some(("p/t/SKILL.md", 5, 1))),
            ("[a](scripts/)", Some(("p/s/scripts", 5, 1))),
            ("[a][r]\n\n[r]: x.md", Some(("p/s/x.md", 5, 1))),
            ("| t |\n|---|\n| [a](a.md) |", Some(("p/s/a.md", 7, 3))),
            ("[a](../../../x)", None),
            (
                "[a](https://example.org/a.md) <mailto:a@b.c> [b](#part) [c](/etc/x) [d](~/x)",
                None,
            ),
            ("`[a](a.md)`\n\n    [a](a.md)\n\n```\n[a](a.md)\n```", None),
            ("Run `scripts/a.sh` now.", Some(("p/s/scripts/a.sh", 5, 5))),
            (
                "`python3 './scripts/a b.py'`",
                Some(("p/s/scripts/a", 5, 1)),
            ),
            ("`references\\a.md`", Some(("p/s/references/a.md", 5, 1))),
            ("[a](references\\a.md)", Some(("p/s/references/a.md", 5, 1))),
            (
                "`a.sh` `--dir=x/y` `/etc/x` `$X/a` `<dir>/a` `../../../x` ``",
                None,
            ),
            ("[a]({file}.md) [b](path/to/...) [c]($X/a) [d]()", None),
            ("\\[a](a.md) [b] (b.md) [c](a\0b)", None),
        ] {
            let links = body_links(&skill(body), &rel("p/s"));
            let found = links
                .first()
                .map(|link| (link.target.clone(), link.line, link.column));
            let expected = expected.map(|(path, line, column)| (rel(path), line, column));
            assert_eq!(
                (found, links.len() <= 1),
                (expected, true),
                "{body}: {links:?}"
            );
        }
    }

    #[test]
    fn long_bodies_are_counted_in_lines_and_words() {
        for (body, expected) in [
            ("a\n".repeat(500), None),
            ("a\n".repeat(501), Some("501 lines")),
            ("a ".repeat(5_000), None),
            ("a ".repeat(5_001), Some("5001 words")),
        ] {
            let problem = length_problem(&skill(&body));
            let is_expected = match (&problem, expected) {
                (None, None) => true,
                (Some(problem), Some(words)) => problem.message.contains(words),
                _ => false,
            };
            assert!(is_expected, "{problem:?} {expected:?}");
        }
    }

    #[test]
    fn uses_are_described_by_words() {
        for (description, is_described) in [
            ("Fills PDF forms. Use when a form is blank.", true),
            ("WHEN asked", true),
            ("Fills PDF forms.", false),
            ("A user interface", false),
            ("处理表格。", true),
            ("", false),
        ] {
            let problem = use_problem(&skill(""), description);
            assert_eq!(problem.is_none(), is_described, "{description}");
            assert!(problem.is_none_or(|problem| (problem.line, problem.column) == (3, 1)));
        }
    }

    proptest! {
        #[test]
        fn any_file_can_be_examined(bytes: Vec<u8>, body in "([a-z]|\\[|\\]|\\(|\\)|!|/|\\.\\.|#|<|`|\n|é|%2|:|\0){0,40}") {
            for file in [bytes.clone(), skill(&body), [skill(""), bytes].concat()] {
                let lines = u32::try_from(file.split(|b| *b == b'\n').count()).expect("small");
                for link in body_links(&file, &rel("s")) {
                    prop_assert!(link.line <= lines && link.column > 0, "{link:?}");
                }
                let _ = (length_problem(&file), use_problem(&file, &body), conflict_problem(&file));
            }
        }
    }
}
