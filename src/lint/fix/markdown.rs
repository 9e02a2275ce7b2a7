//! Fixes of the text of Markdown files with frontmatter. Each fix has one safe answer: the fixed file
//! has the same fields and fewer problems. All bytes that a fix is not about stay.

use crate::daemon::model::{FileProblem, SkillMdFrontmatter};
use crate::daemon::parse::misread_text::mend_misread_text;
use crate::daemon::parse::{frontmatter, names, yaml, yaml_repair};
use caproot_core::text::fences::{self, BYTE_ORDER_MARK};

/// Fix of a whole file in a directory with this name. Returns `None` if there is nothing to fix.
type Fix = fn(&[u8], &[u8]) -> Option<Vec<u8>>;

/// Fixes, in the order in which they are tried.
const FIXES: [Fix; 7] = [
    remove_leading_whitespace,
    replace_indenting_tabs,
    lower_keys,
    mend_text,
    quote_broken_values,
    quote_converted_values,
    lower_name,
];
/// Fields whose values are read as text.
const TEXT_FIELDS: [&str; 4] = ["name", "description", "license", "compatibility"];

/// Returns the fixed file, or `None` if no fix applies. `dir_name` is the name of the directory.
#[must_use]
pub fn fix_skill_md(file: &[u8], dir_name: &[u8]) -> Option<Vec<u8>> {
    let mut fixed: Option<Vec<u8>> = None;
    // Each fix makes the file usable or leaves fewer problems, so the loop ends.
    while let Some(better) = FIXES.into_iter().find_map(|fix| {
        let before = fixed.as_deref().unwrap_or(file);
        fix(before, dir_name).filter(|after| is_better(before, after, dir_name))
    }) {
        fixed = Some(better);
    }
    fixed
}

/// Returns the fixed Markdown file of a plugin, such as a command, or `None` if no fix applies. All values
/// of the frontmatter stay.
#[must_use]
pub fn fix_plugin_markdown(file: &[u8]) -> Option<Vec<u8>> {
    let fixed = quote_broken_values(file, b"")?;

    let before = frontmatter::read_mapping(file, true, &mut Vec::new()).ok()?;
    let mut problems = Vec::new();
    let after = frontmatter::read_mapping(&fixed, true, &mut problems).ok()?;
    (after == before && problems.is_empty()).then_some(fixed)
}

/// Whether a file is the same skill as before, with fewer problems. A file that becomes usable may show
/// problems that were hidden before. Only the name may change, to the name of the directory, and the
/// description may get the part back that YAML read as something else.
fn is_better(before: &[u8], after: &[u8], dir_name: &[u8]) -> bool {
    let old = frontmatter::read(before, true, Some(dir_name));
    let new = frontmatter::read(after, true, Some(dir_name));
    let Some(new_fields) = new.frontmatter else {
        return false;
    };
    let Some(old_fields) = old.frontmatter else {
        return true;
    };

    let is_same_name = old_fields.name == new_fields.name || new_fields.name.as_bytes() == dir_name;
    let has_old_text = new_fields.description.contains(&*old_fields.description);
    // A fix may bring back values that could not be read.
    let is_cut = has_lost_values(&old.problems);
    let has_old_fields = is_cut || other_fields(old_fields) == other_fields(new_fields);
    is_same_name && has_old_text && has_old_fields && new.problems.len() < old.problems.len()
}

/// Whether a repair left values out.
fn has_lost_values(problems: &[FileProblem]) -> bool {
    let mut messages = problems.iter().map(|problem| &problem.message);
    messages.any(|message| message.starts_with(frontmatter::LEFT_OUT))
}

/// Returns the fields that no fix changes. The types of values in `all_fields` may change to text.
fn other_fields(fields: SkillMdFrontmatter) -> SkillMdFrontmatter {
    SkillMdFrontmatter {
        name: Box::default(),
        description: Box::default(),
        all_fields: None,
        ..fields
    }
}

/// Removes white space before the opening fence.
fn remove_leading_whitespace(file: &[u8], _: &[u8]) -> Option<Vec<u8>> {
    let text = file.strip_prefix(BYTE_ORDER_MARK).unwrap_or(file);
    let trimmed = text.trim_ascii_start();
    let mark = &file[..file.len() - text.len()];
    (trimmed.len() < text.len() && trimmed.starts_with(b"---")).then(|| [mark, trimmed].concat())
}

/// Replaces each tab at the start of a line by two spaces, if all indented lines begin with tabs only.
fn replace_indenting_tabs(file: &[u8], _: &[u8]) -> Option<Vec<u8>> {
    edit_lines(file, |lines| {
        let has_other_indent = lines.iter().any(|line| {
            let indent = &line[..line.len() - line.trim_ascii_start().len()];
            let blanks = indent.trim_matches(['\r', '\n']);
            !blanks.bytes().all(|b| b == b'\t')
        });
        // The tabs of a block scalar may be its content.
        let has_block = lines
            .iter()
            .any(|line| line.trim_end().ends_with(['|', '>', '-', '+']));
        if has_other_indent || has_block {
            return None;
        }

        let replaced = lines.iter().map(|line| {
            let text = line.trim_start_matches('\t');
            format!("{}{text}", "  ".repeat(line.len() - text.len()))
        });
        Some(replaced.collect())
    })
}

/// Writes the keys of the format in lower case.
fn lower_keys(file: &[u8], _: &[u8]) -> Option<Vec<u8>> {
    edit_each_line(file, |line| {
        let key = yaml_repair::outer_key(line)?;
        let mut fields = frontmatter::KNOWN_FIELDS.iter();
        let field = fields.find(|field| field.eq_ignore_ascii_case(key))?;
        Some(format!("{field}{}", &line[key.len()..]))
    })
}

/// Quotes or indents the parts of the name and the description that YAML reads as something else.
fn mend_text(file: &[u8], _: &[u8]) -> Option<Vec<u8>> {
    edit_lines(file, mend_misread_text)
}

/// Quotes the values because of which the text is no valid YAML.
fn quote_broken_values(file: &[u8], _: &[u8]) -> Option<Vec<u8>> {
    edit_lines(file, |lines| {
        let text = lines.concat();
        if yaml::parse(&text).is_ok() {
            return None;
        }
        let (repaired, _) = yaml_repair::quote_broken_values(&text)?;

        // The repair leaves blank lines for the lines that it joined.
        Some(
            repaired
                .split_inclusive('\n')
                .zip(lines)
                .filter(|(new, old)| !new.trim().is_empty() || old.trim().is_empty())
                .map(|(new, _)| new.to_owned())
                .collect(),
        )
    })
}

/// Quotes values that are read as text although YAML gives them another type, such as `version: 2`.
fn quote_converted_values(file: &[u8], _: &[u8]) -> Option<Vec<u8>> {
    let mut is_in_metadata = false;
    edit_each_line(file, |line| {
        let is_indented = line.starts_with(' ');
        if !is_indented && !line.trim().is_empty() {
            is_in_metadata = line.trim_end() == "metadata:";
        }
        quote_converted_value(line, is_indented && is_in_metadata)
    })
}

/// Quotes the value of one line. `is_metadata` is whether the line is an entry of `metadata`.
fn quote_converted_value(line: &str, is_metadata: bool) -> Option<String> {
    let (key, rest) = line.split_once(':')?;
    if !is_metadata && !TEXT_FIELDS.contains(&key) {
        return None;
    }
    let written = rest.trim();
    let is_plain = written
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || ".-+_:".contains(c));
    if !rest.starts_with([' ', '\t']) || written.is_empty() || !is_plain {
        return None;
    }

    let value = yaml::parse(written).ok()?;
    // A number that YAML prints otherwise, such as `1e3`, has two possible texts.
    let is_converted = value.is_scalar() && value.as_text().is_none();
    if !is_converted || &*value.to_text() != written {
        return None;
    }

    // The replacement would change the key if the key contains the value.
    Some(line.replacen(written, &format!("'{written}'"), 1)).filter(|_| !key.contains(written))
}

/// Writes the name in the letter case of the directory's name, if the two differ in nothing else.
fn lower_name(file: &[u8], dir_name: &[u8]) -> Option<Vec<u8>> {
    let dir_name = std::str::from_utf8(dir_name).ok()?;
    let name = frontmatter::read(file, true, None).frontmatter?.name;
    if names::format_violations(dir_name, names::is_name_char)
        .next()
        .is_some()
        || &*name == dir_name
        || name.to_lowercase() != dir_name
    {
        return None;
    }

    edit_each_line(file, |line| {
        let is_name = line.strip_prefix("name:")?.trim().trim_matches(['"', '\'']) == &*name;
        is_name.then(|| line.replacen(&*name, dir_name, 1))
    })
}

/// Replaces each line of the frontmatter for which `edit` returns a line.
fn edit_each_line(file: &[u8], mut edit: impl FnMut(&str) -> Option<String>) -> Option<Vec<u8>> {
    edit_lines(file, |lines| {
        Some(
            lines
                .iter()
                .map(|line| edit(line).unwrap_or_else(|| (*line).to_owned()))
                .collect(),
        )
    })
}

/// Replaces the lines of the frontmatter. `edit` gets the lines with their line endings. Returns
/// `None` if nothing changed.
fn edit_lines(file: &[u8], edit: impl FnOnce(&[&str]) -> Option<Vec<String>>) -> Option<Vec<u8>> {
    let (range, _) = fences::split_file(file)?;
    let text = std::str::from_utf8(&file[range.clone()]).ok()?;
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let edited = edit(&lines)?.concat();
    (edited != text).then(|| [&file[..range.start], edited.as_bytes(), &file[range.end..]].concat())
}

#[cfg(test)]
mod tests {
    use super::{fix_plugin_markdown, fix_skill_md, has_lost_values};
    use crate::daemon::parse::frontmatter;
    use caproot_core::text::fences;
    use proptest::prelude::*;

    fn fixed(file: &str) -> Option<String> {
        fix_skill_md(file.as_bytes(), b"pdf").map(|file| String::from_utf8(file).expect("UTF-8"))
    }

    #[test]
    fn each_problem_with_one_answer_is_fixed() {
        for (before, after) in [
            (
                "\n \n---\nname: pdf\ndescription: d\n---\n x ",
                "---\nname: pdf\ndescription: d\n---\n x ",
            ),
            (
                "\u{feff}\n---\nname: pdf\ndescription: d\n---\n",
                "\u{feff}---\nname: pdf\ndescription: d\n---\n",
            ),
            (
                "---\nname: pdf\ndescription: d\nmetadata:\n\ta: b\n---\n\tx",
                "---\nname: pdf\ndescription: d\nmetadata:\n  a: b\n---\n\tx",
            ),
            (
                "---\r\nname: pdf\r\ndescription: Use when: it's open\r\n---\r\n",
                "---\r\nname: pdf\r\ndescription: 'Use when: it''s open'\r\n---\r\n",
            ),
            (
                "---\nname: pdf\ndescription: Use when: a\n  b\n\nlicense: MIT\n---\n",
                "---\nname: pdf\ndescription: 'Use when: a b'\n\nlicense: MIT\n---\n",
            ),
            (
                "---\nname: pdf\ndescription: 12\nlicense: true\nmetadata:\n  v: 1.5  \n  w: x\n---\n",
                "---\nname: pdf\ndescription: '12'\nlicense: 'true'\nmetadata:\n  v: '1.5'  \n  w: x\n---\n",
            ),
            (
                "---\nname: PDF\ndescription: d\n---\n",
                "---\nname: pdf\ndescription: d\n---\n",
            ),
            (
                "---\nname: \"Pdf\"\ndescription: d\n---\n",
                "---\nname: \"pdf\"\ndescription: d\n---\n",
            ),
            (
                "\n---\nname: Pdf\ndescription: Use when: x\n---\n",
                "---\nname: pdf\ndescription: 'Use when: x'\n---\n",
            ),
            (
                "---\nName: pdf\nDescription: d\n---\n",
                "---\nname: pdf\ndescription: d\n---\n",
            ),
            (
                "---\nname: pdf\ndescription: Fixes #12\n  and !13\n---\n# d\n",
                "---\nname: pdf\ndescription: 'Fixes #12 and !13'\n---\n# d\n",
            ),
            (
                "---\nname: pdf\ndescription: # Fills forms.\nlicense: MIT\n---\n",
                "---\nname: pdf\ndescription: '# Fills forms.'\nlicense: MIT\n---\n",
            ),
            (
                "---\nname: pdf\ndescription: Fills\nforms of two kinds: A and B\nSIGN IF: asked\n---\n",
                "---\nname: pdf\ndescription: 'Fills forms of two kinds: A and B SIGN IF: asked'\n---\n",
            ),
            (
                "---\nname: pdf\ndescription: >\n   Fills\nforms.\nlicense: MIT\n---\n",
                "---\nname: pdf\ndescription: >\n   Fills\n   forms.\nlicense: MIT\n---\n",
            ),
            (
                "---\nname: pdf\ndescription: \"Use for \"a\" or b.\"\nallowed-tools: *\n---\n",
                "---\nname: pdf\ndescription: 'Use for \"a\" or b.'\nallowed-tools: '*'\n---\n",
            ),
        ] {
            assert_eq!(fixed(before).as_deref(), Some(after), "{before}");
            assert_eq!(fixed(after), None, "{after}");
        }
    }

    #[test]
    fn problems_with_several_answers_stay() {
        for file in [
            "---\nname: pdf\ndescription: d\n---\n",
            "---\nname: other\ndescription: d\n---\n",
            "---\nname: pdf-\ndescription: d\n---\n",
            "---\nname: pdf\ndescription: \"d\n---\n",
            "---\nname: pdf\n---\n",
            "---\nname: pdf\ndescription: d\nmetadata:\n  v: 1e3\n---\n",
            "---\nname: pdf\ndescription: d\nmetadata: {v: 1}\n---\n",
            "---\nname: pdf\ndescription: |\n\td\n---\n",
            "---\nname: pdf\ndescription: d\nmetadata:\n\ta: b\n  c: d\n---\n",
            "---\nname: pdf\nlicense：MIT\ndescription: d\n---\n",
            "---\nname: pdf\ndescription: d\nlicense:MIT\n---\n",
            "---\nname: pdf\ndescription: d\n<<<<<<< HEAD\nlicense: MIT\n---\n",
            "---\nname: pdf # see below\ndescription: d\n---\n",
            "---\nname: pdf\nName: pdf\ndescription: d\n---\n",
            "\n---\nname: pdf\n",
            "\n\n# Text\n",
            "",
        ] {
            assert_eq!(fixed(file), None, "{file}");
        }
    }

    /// Frontmatter of random lines, most of them with a problem.
    fn frontmatter_text() -> impl Strategy<Value = String> {
        let line = prop_oneof![
            Just("name: PDF".to_owned()),
            Just("name: pdf".to_owned()),
            Just("description: Use when: x".to_owned()),
            Just("description: d".to_owned()),
            Just("metadata:".to_owned()),
            "(  |\t)?[a-z]{1,3}: ?(1|1\\.50|true|null|x: y|\\[|'q'|\"q\"|@a|`|# c|\\||>-)?",
            "(  |\t)?(- )?[a-z:'\" #]{0,8}",
        ];
        let lines = prop::collection::vec(line, 0..8);
        (
            "(\u{feff})?[ \n\t]{0,2}",
            lines,
            prop::bool::ANY,
            "(?s).{0,20}",
        )
            .prop_map(|(start, lines, has_crlf, body)| {
                let end = if has_crlf { "\r\n" } else { "\n" };
                let lines: String = lines.into_iter().map(|line| line + end).collect();
                format!("{start}---{end}{lines}---{end}{body}")
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

        #[test]
        fn a_fixed_file_is_the_same_skill_and_needs_no_fix(file in frontmatter_text()) {
            let Some(fixed) = fix_skill_md(file.as_bytes(), b"pdf") else { return Ok(()) };
            prop_assert_eq!(fix_skill_md(&fixed, b"pdf"), None, "{:?}", String::from_utf8_lossy(&fixed));
            let read = |file: &[u8]| frontmatter::read(file, true, Some(b"pdf"));
            let (old, new) = (read(file.as_bytes()), read(&fixed));
            let is_better = old.frontmatter.is_none() || new.problems.len() < old.problems.len();
            prop_assert!(is_better && new.frontmatter.is_some());
            let new = new.frontmatter.expect("a fixed file is a skill");
            let has_lost_values = has_lost_values(&old.problems);
            if let Some(old) = old.frontmatter {
                prop_assert!(new.name == old.name || &*new.name == "pdf");
                prop_assert!(new.description.contains(&*old.description));
                if has_lost_values {
                    return Ok(());
                }
                prop_assert_eq!(
                    (&new.short_description, &new.license, &new.compatibility),
                    (&old.short_description, &old.license, &old.compatibility)
                );
                prop_assert_eq!((&new.metadata, &new.allowed_tools), (&old.metadata, &old.allowed_tools));
            }
            let body = |file: &[u8]| {
                fences::split_file(file).map(|(_, start)| file[start..].to_vec())
            };
            prop_assert_eq!(body(&fixed), body(file.trim_start_matches('\u{feff}').trim_start().as_bytes()));
        }

        #[test]
        fn a_fixed_file_of_a_plugin_has_the_same_fields(file in frontmatter_text()) {
            let Some(fixed) = fix_plugin_markdown(file.as_bytes()) else { return Ok(()) };
            prop_assert_eq!(fix_plugin_markdown(&fixed), None);
            let read = |file: &[u8]| {
                let mut problems = Vec::new();
                frontmatter::read_mapping(file, true, &mut problems).map(|value| (value, problems.len()))
            };
            let (old, problem_count) = read(file.as_bytes()).expect("a file that was repaired");
            prop_assert_eq!(problem_count, 1);
            prop_assert_eq!(read(&fixed), Ok((old, 0)));
        }

        #[test]
        fn any_bytes_are_fixed_or_left(bytes: Vec<u8>, name: Vec<u8>) {
            let framed = [b"\n---\nname: A\ndescription: ", &*bytes, b"\n---\n"].concat();
            for file in [&bytes, &framed] {
                let _ = (fix_skill_md(file, &name), fix_plugin_markdown(file));
            }
        }
    }
}
