//! Placeholders in the SKILL.md of a fragment: the arguments of a person, as Claude Code 2.1 replaces them, and the
//! directories of the skill and of its plugin. A read returns the file as it is, so that its digest fits.

use crate::skills::result::{ToolError, ToolErrorCode};
use caproot_core::document::{self, DocumentValue};
use caproot_core::text::fences::split_file;
use caproot_core::text::variables::PLUGIN_DIR_VARIABLES;
use std::borrow::Cow;
use std::collections::HashMap;

/// Limit of the arguments of one prompt in bytes.
pub const MAX_ARGUMENT_BYTES: usize = 4_096;

/// Placeholder of all arguments.
const ARGUMENTS: &str = "ARGUMENTS";
/// Placeholder of the directory of the skill.
const SKILL_DIR: &str = "{CLAUDE_SKILL_DIR}";
/// End of each placeholder of the directory of a plugin.
const PLUGIN_DIR_END: &str = "PLUGIN_ROOT}";
/// Maximum number of directories in one text that get a value; a handle is longer than its placeholder.
const MAX_DIRECTORIES: usize = 1_000;
/// Directories between a plugin and a skill that a path names.
const MAX_PATH_DEPTH: usize = 16;

/// Directories that the placeholders of a SKILL.md mean.
#[derive(Debug, Clone)]
pub struct SkillDirectories<'a> {
    /// Handle of the skill.
    pub skill: &'a str,
    /// Directory of its plugin.
    pub plugin: PluginDirectory<'a>,
}

/// Directory of a plugin, for a model without its files.
#[derive(Debug, Clone)]
pub enum PluginDirectory<'a> {
    /// The model cannot read files of the plugin, and the placeholders stay.
    Unknown,
    /// Handle of the plugin.
    Handle(&'a str),
    /// The model can only read files of these skills: their URIs by their encoded path below the plugin. A
    /// placeholder stays if its path leads into no such skill.
    Skills(HashMap<&'a str, &'a str>),
}

/// Values of the placeholders in a SKILL.md.
#[derive(Debug, Clone)]
pub struct PlaceholderValues<'a> {
    /// Arguments as the person wrote them; empty if there are none.
    arguments: &'a str,
    /// Arguments by their index, without the quotes around them.
    words: Vec<String>,
    directories: SkillDirectories<'a>,
}

/// Returns the text of a SKILL.md for a person who started the skill, with the values of its placeholders, such as
/// `$ARGUMENTS`.
///
/// # Errors
///
/// The arguments have over 4,096 bytes.
pub fn fill_placeholders(
    text: &str,
    arguments: &str,
    directories: SkillDirectories<'_>,
) -> Result<String, ToolError> {
    if arguments.len() > MAX_ARGUMENT_BYTES {
        return Err(ToolError::from_code(
            ToolErrorCode::InvalidArguments,
            &long_arguments_reason(),
        ));
    }
    Ok(PlaceholderValues::new(arguments, directories)
        .fill(text)
        .into_owned())
}

/// Returns the reason for the rejection of long arguments.
pub fn long_arguments_reason() -> String {
    format!("the arguments are over {MAX_ARGUMENT_BYTES} bytes; write them into the prompt")
}

impl<'a> PlaceholderValues<'a> {
    pub fn new(arguments: &'a str, directories: SkillDirectories<'a>) -> Self {
        let arguments = arguments.trim();
        // A quote that is not closed is part of its word.
        let words = shlex::split(arguments)
            .unwrap_or_else(|| arguments.split_whitespace().map(str::to_owned).collect());
        Self {
            arguments,
            words,
            directories,
        }
    }

    /// Returns the text of a SKILL.md with the values. Arguments that no placeholder takes are appended.
    pub fn fill<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let has_directory = text.contains(SKILL_DIR) || text.contains(PLUGIN_DIR_END);
        if self.arguments.is_empty() && !has_directory {
            return Cow::Borrowed(text);
        }

        // A text without a closed frontmatter is a body.
        let (frontmatter, body) = split_file(text.as_bytes()).unwrap_or_default();
        let names = declared_names(&text[frontmatter]);
        // `$1` alone is more often a variable of a script than an argument.
        let has_numbers = !names.is_empty() || text.contains("$ARGUMENTS");

        let mut filled = text[..body].to_owned();
        let mut takes_arguments = false;
        let mut directories = 0;
        let mut rest = &text[body..];
        while let Some((before, after)) = rest.split_once('$') {
            filled.push_str(before);
            let directory = self
                .find_directory(after)
                .filter(|_| directories < MAX_DIRECTORIES);
            if let Some(found) = directory {
                filled.push_str(found.value);
                directories += 1;
                rest = &after[found.length..];
            } else if let Some(found) = self.find_value(after, &names, has_numbers) {
                filled.push_str(found.value);
                takes_arguments = true;
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

    /// Returns the directory whose placeholder begins after a `$`, for a skill with the path to the skill.
    fn find_directory(&self, after: &str) -> Option<FoundValue<'_>> {
        if after.starts_with(SKILL_DIR) {
            return Some(FoundValue {
                value: self.directories.skill,
                length: SKILL_DIR.len(),
            });
        }

        let inner = after.strip_prefix('{')?;
        let name = PLUGIN_DIR_VARIABLES.into_iter().find(|name| {
            let rest = inner.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with('}'))
        })?;
        let length = name.len() + 2;
        match &self.directories.plugin {
            PluginDirectory::Unknown => None,
            PluginDirectory::Handle(value) => Some(FoundValue { value, length }),
            PluginDirectory::Skills(uris) => {
                let (path_length, value) = find_skill_uri(uris, &after[length..])?;
                Some(FoundValue {
                    value,
                    length: length + path_length,
                })
            }
        }
    }

    /// Returns the value of the placeholder whose name begins after a `$`. A placeholder without a value stays.
    fn find_value(
        &self,
        after: &str,
        names: &[String],
        has_numbers: bool,
    ) -> Option<FoundValue<'_>> {
        if self.arguments.is_empty() {
            return None;
        }

        if let Some(rest) = after.strip_prefix(ARGUMENTS) {
            let brackets = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
            if let Some((digits, _)) = brackets
                && let Ok(index) = digits.parse::<usize>()
            {
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
            let (index, name) = names
                .iter()
                .enumerate()
                .filter(|(_, name)| !name.is_empty() && after.starts_with(*name))
                .max_by_key(|(_, name)| name.len())?;
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

/// Returns the URI of the innermost skill that a path after a placeholder leads into, with the bytes of the path to
/// the skill.
fn find_skill_uri<'a>(uris: &HashMap<&str, &'a str>, rest: &str) -> Option<(usize, &'a str)> {
    let is_path = |c: char| c.is_alphanumeric() || "-._~%/".contains(c);
    let path = if rest.starts_with('/') {
        &rest[..rest.find(|c| !is_path(c)).unwrap_or(rest.len())]
    } else {
        ""
    };
    let found = path
        .match_indices('/')
        .map(|(at, _)| at)
        .take(MAX_PATH_DEPTH + 1)
        .chain([path.len()])
        .filter_map(|end| {
            let below = path[..end].strip_prefix('/').unwrap_or_default();
            Some((end, *uris.get(below)?))
        });
    found.max_by_key(|(end, _)| *end)
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

/// Returns the names of the field `arguments`: a text with blanks, or a list.
fn declared_names(frontmatter: &str) -> Vec<String> {
    let Ok(DocumentValue::Map(entries)) = document::parse(frontmatter).map(|node| node.value)
    else {
        return Vec::new();
    };
    match entries
        .iter()
        .find(|entry| &*entry.key == "arguments")
        .map(|entry| &entry.node.value)
    {
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
    use super::{MAX_DIRECTORIES, PlaceholderValues, PluginDirectory, SkillDirectories};
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn fill(arguments: &str, text: &str) -> String {
        fill_with(PluginDirectory::Unknown, arguments, text)
    }

    fn fill_with(plugin: PluginDirectory<'_>, arguments: &str, text: &str) -> String {
        let directories = SkillDirectories {
            skill: "skill://r/a",
            plugin,
        };
        PlaceholderValues::new(arguments, directories)
            .fill(text)
            .into_owned()
    }

    #[test]
    fn names_of_the_plugin_directory_get_its_handle() {
        let handle = PluginDirectory::Handle("skill://r/p");
        for (text, filled) in [
            ("${CLAUDE_PLUGIN_ROOT}/x y", "skill://r/p/x y"),
            (
                "`${CODEX_PLUGIN_ROOT}` ${PLUGIN_ROOT}!",
                "`skill://r/p` skill://r/p!",
            ),
            (
                "${CLAUDE_PLUGIN_ROOT:-.} $CLAUDE_PLUGIN_ROOT ${MY_PLUGIN_ROOT} ${{PLUGIN_ROOT}",
                "${CLAUDE_PLUGIN_ROOT:-.} $CLAUDE_PLUGIN_ROOT ${MY_PLUGIN_ROOT} ${{PLUGIN_ROOT}",
            ),
        ] {
            assert_eq!(fill_with(handle.clone(), "", text), filled);
            assert_eq!(fill("", text), text, "without a handle");
        }
        let many = "${PLUGIN_ROOT}".repeat(MAX_DIRECTORIES + 1);
        let filled = fill_with(handle, "", &many);
        assert_eq!(filled.matches("skill://r/p").count(), MAX_DIRECTORIES);
        assert!(filled.ends_with("${PLUGIN_ROOT}"));
    }

    #[test]
    fn paths_into_skills_get_the_uri_of_the_innermost_skill() {
        let uris = HashMap::from([
            ("skills/b", "skill://b"),
            ("skills/b/c", "skill://c"),
            ("x%20y", "skill://xy"),
        ]);
        for (path, filled) in [
            ("/skills/b/run.sh", "skill://b/run.sh"),
            ("/skills/b", "skill://b"),
            ("/skills/b/c/d.md`", "skill://c/d.md`"),
            ("/x%20y/z", "skill://xy/z"),
            ("/skills/bc/x", "${PLUGIN_ROOT}/skills/bc/x"),
            ("/scripts/x", "${PLUGIN_ROOT}/scripts/x"),
            ("skills/b/x", "${PLUGIN_ROOT}skills/b/x"),
            ("", "${PLUGIN_ROOT}"),
        ] {
            let plugin = PluginDirectory::Skills(uris.clone());
            let text = format!("${{PLUGIN_ROOT}}{path}");
            assert_eq!(fill_with(plugin, "", &text), filled);
        }
        let own = PluginDirectory::Skills(HashMap::from([("", "skill://p")]));
        let text = "${PLUGIN_ROOT}/scripts/x ${PLUGIN_ROOT}x";
        let filled = "skill://p/scripts/x skill://px";
        assert_eq!(fill_with(own, "", text), filled);
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
