//! Placeholders in the SKILL.md of a fragment: the arguments of a person, as Claude Code 2.1 replaces them, and the
//! directory of the skill. A read returns the file as it is, so that its digest fits.

use crate::skills::result::{ToolError, ToolErrorCode};
use caproot_core::document::{self, DocumentValue};
use caproot_core::text::fences::split_file;
use std::borrow::Cow;

/// Limit of the arguments of one prompt in bytes.
pub const MAX_ARGUMENT_BYTES: usize = 4_096;

/// Placeholder of all arguments.
const ARGUMENTS: &str = "ARGUMENTS";
/// Placeholder of the directory of the skill.
const SKILL_DIR: &str = "{CLAUDE_SKILL_DIR}";

/// Values of the placeholders in a SKILL.md.
#[derive(Debug, Clone)]
pub struct PlaceholderValues<'a> {
    /// Arguments as the person wrote them; empty if there are none.
    arguments: &'a str,
    /// Arguments by their index, without the quotes around them.
    words: Vec<String>,
    /// Handle of the skill.
    package: &'a str,
}

/// Returns the text of a SKILL.md for a person who started the skill, with the values of its placeholders, such as
/// `$ARGUMENTS`. `package` is the handle of the skill.
///
/// # Errors
///
/// The arguments have over 4,096 bytes.
pub fn fill_placeholders(text: &str, arguments: &str, package: &str) -> Result<String, ToolError> {
    if arguments.len() > MAX_ARGUMENT_BYTES {
        return Err(ToolError::from_code(
            ToolErrorCode::InvalidArguments,
            &long_arguments_reason(),
        ));
    }
    Ok(PlaceholderValues::new(arguments, package)
        .fill(text)
        .into_owned())
}

/// Returns the reason for the rejection of long arguments.
pub fn long_arguments_reason() -> String {
    format!("the arguments are over {MAX_ARGUMENT_BYTES} bytes; write them into the prompt")
}

impl<'a> PlaceholderValues<'a> {
    pub fn new(arguments: &'a str, package: &'a str) -> Self {
        let arguments = arguments.trim();
        // A quote that is not closed is part of its word.
        let words = shlex::split(arguments)
            .unwrap_or_else(|| arguments.split_whitespace().map(str::to_owned).collect());
        Self {
            arguments,
            words,
            package,
        }
    }

    /// Returns the text of a SKILL.md with the values. Arguments that no placeholder takes are appended.
    pub fn fill<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if self.arguments.is_empty() && !text.contains(SKILL_DIR) {
            return Cow::Borrowed(text);
        }

        let (head, frontmatter, body) = split_text(text);
        let names = declared_names(frontmatter);
        // `$1` alone is more often a variable of a script than an argument.
        let has_numbers = !names.is_empty() || text.contains("$ARGUMENTS");

        let mut filled = head.to_owned();
        let mut takes_arguments = false;
        let mut rest = body;
        while let Some((before, after)) = rest.split_once('$') {
            filled.push_str(before);
            if let Some(found) = self.find_value(after, &names, has_numbers) {
                filled.push_str(found.value);
                takes_arguments |= !after.starts_with(SKILL_DIR);
                rest = &after[found.length..];
            } else {
                filled.push('$');
                rest = after;
            }
        }
        filled.push_str(rest);

        if !takes_arguments && !self.arguments.is_empty() {
            filled.truncate(filled.trim_end().len());
            filled.push_str("\n\nARGUMENTS: ");
            filled.push_str(self.arguments);
        }
        Cow::Owned(filled)
    }

    /// Returns the value of the placeholder whose name begins after a `$`. A placeholder without a value stays.
    fn find_value(
        &self,
        after: &str,
        names: &[String],
        has_numbers: bool,
    ) -> Option<FoundValue<'_>> {
        if after.starts_with(SKILL_DIR) {
            return Some(FoundValue {
                value: self.package,
                length: SKILL_DIR.len(),
            });
        }
        if self.arguments.is_empty() {
            return None;
        }

        if let Some(rest) = after.strip_prefix(ARGUMENTS) {
            let brackets = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
            let index =
                brackets.and_then(|(digits, _)| Some((digits, digits.parse::<usize>().ok()?)));
            if let Some((digits, index)) = index {
                return Some(FoundValue {
                    value: self.words.get(index)?,
                    length: ARGUMENTS.len() + digits.len() + 2,
                });
            }
            return ends_name(rest).then_some(FoundValue {
                value: self.arguments,
                length: ARGUMENTS.len(),
            });
        }

        let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (index, length) = if digits > 0 && has_numbers {
            (after[..digits].parse().ok()?, digits)
        } else {
            let declared = names.iter().enumerate();
            let found = declared.filter(|(_, name)| !name.is_empty() && after.starts_with(*name));
            let (index, name) = found.max_by_key(|(_, name)| name.len())?;
            (index, name.len())
        };
        if !ends_name(&after[length..]) {
            return None;
        }
        Some(FoundValue {
            value: self.words.get(index)?,
            length,
        })
    }
}

/// Whether a name ends before this text.
fn ends_name(rest: &str) -> bool {
    !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// Value of a placeholder.
struct FoundValue<'a> {
    value: &'a str,
    /// Bytes of the placeholder after its `$`.
    length: usize,
}

/// Returns the head with the frontmatter, the frontmatter and the body of a SKILL.md. A text without a closed
/// frontmatter is a body.
fn split_text(text: &str) -> (&str, &str, &str) {
    match split_file(text.as_bytes()) {
        Some((frontmatter, body)) => (&text[..body], &text[frontmatter], &text[body..]),
        None => ("", "", text),
    }
}

/// Returns the names of the field `arguments`: a text with blanks, or a list.
fn declared_names(frontmatter: &str) -> Vec<String> {
    let Ok(DocumentValue::Map(entries)) = document::parse(frontmatter).map(|node| node.value)
    else {
        return Vec::new();
    };
    let field = entries.iter().find(|entry| &*entry.key == "arguments");
    match field.map(|entry| &entry.node.value) {
        Some(DocumentValue::Text(text)) => text.split_whitespace().map(str::to_owned).collect(),
        Some(DocumentValue::List(items)) => items
            .iter()
            .map(|item| match &item.value {
                DocumentValue::Text(name) => name.to_string(),
                // Keeps the places of the names behind it.
                _ => String::new(),
            })
            .collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::PlaceholderValues;
    use proptest::prelude::*;

    fn fill(arguments: &str, text: &str) -> String {
        PlaceholderValues::new(arguments, "skill://r/a")
            .fill(text)
            .into_owned()
    }

    #[test]
    fn placeholders_get_the_arguments() {
        let given = "prod 'two words' $HOME";
        for (text, filled) in [
            ("Do $ARGUMENTS-1.", "Do prod 'two words' $HOME-1."),
            (
                "$ARGUMENTS[1]|$ARGUMENTS[9]|$ARGUMENTS[x]",
                "two words|$ARGUMENTS[9]|prod 'two words' $HOME[x]",
            ),
            (
                "$ARGUMENTS: $0, $1, $2, $3",
                "prod 'two words' $HOME: prod, two words, $HOME, $3",
            ),
            // Nobody says that these are arguments.
            (
                "awk '{print $1}'",
                "awk '{print $1}'\n\nARGUMENTS: prod 'two words' $HOME",
            ),
            (
                "$ARGUMENTSX $10 $1st costs $",
                "$ARGUMENTSX $10 $1st costs $\n\nARGUMENTS: prod 'two words' $HOME",
            ),
            (
                "---\narguments: [stage, note]\n---\nTo $stage: $note ($0), $stages",
                "---\narguments: [stage, note]\n---\nTo prod: two words (prod), $stages",
            ),
            (
                "---\narguments: stage note\ndescription: $stage\n---\n$stage",
                "---\narguments: stage note\ndescription: $stage\n---\nprod",
            ),
            (
                "${CLAUDE_SKILL_DIR}/run.sh\n",
                "skill://r/a/run.sh\n\nARGUMENTS: prod 'two words' $HOME",
            ),
        ] {
            assert_eq!(fill(given, text), filled);
        }
        assert_eq!(fill("a 'b", "$ARGUMENTS[1]"), "'b");
    }

    proptest! {
        #[test]
        fn a_text_without_values_stays(body in "(?s)(\\$|[0-9]|ARGUMENTS|\\[|\\]|ä| |---\n|\\{|\\}){0,40}") {
            prop_assert_eq!(fill(" ", &body), body);
        }

        /// A value is never filled again.
        #[test]
        fn values_are_not_placeholders(given in "[a-z$\\[\\]0-9]{1,20}") {
            let text = format!("<{}>", "$ARGUMENTS");
            prop_assert_eq!(fill(&given, &text), format!("<{given}>"));
        }
    }
}
