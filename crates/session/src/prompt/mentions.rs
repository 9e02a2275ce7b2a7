//! Mentions of skills by a user: next to a prompt, or in its text as `[$name](handle)` or `$name`.

use serde::Deserialize;
use std::collections::HashSet;
use std::iter;

/// Limit of a word that may be a name, in bytes: 128 characters, and punctuation after them.
const MAX_WORD_BYTES: usize = 520;
/// Punctuation marks that are removed from the end of a word.
const MAX_PUNCTUATION: usize = 8;
/// Limit of a link that may mention a skill, in bytes: its text and a handle of 2,048 bytes.
const MAX_LINK_BYTES: usize = 4_096;

/// Prompt of a user, with the mentions next to its text.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UserPrompt {
    /// Text of the prompt.
    pub text: String,
    /// Skills that the user mentioned next to the text, such as by a pick from a list.
    #[serde(default)]
    pub mentions: Vec<SkillMention>,
    /// Names that mean a connector, and not a skill, if they stand alone in the text.
    #[serde(default)]
    pub connectors: Vec<String>,
    /// Names of skills that the caller has. A skill of the session takes precedence.
    #[serde(default)]
    pub caller_skills: Vec<String>,
    /// Text for the placeholders of the mentioned skills, such as `$ARGUMENTS`. At most 4,096 bytes.
    #[serde(default)]
    pub arguments: String,
}

/// Mention of a skill.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SkillMention {
    /// Name of the skill; may be empty next to a handle.
    #[serde(default)]
    pub name: String,
    /// Package or main resource of the skill; may be empty next to a name.
    #[serde(default)]
    pub handle: String,
}

/// Mention of a skill, as found in a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ParsedMention {
    /// Handle, next to a name that may be empty.
    Handle {
        /// Handle of the skill.
        handle: String,
        /// Plain name next to the handle.
        name: String,
    },
    /// Name that can only be a skill.
    Name(String),
    /// Word of the text that may be a name: the whole word first, then the word without punctuation
    /// at its end.
    Word(Vec<String>),
}

impl From<&str> for UserPrompt {
    fn from(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            ..Self::default()
        }
    }
}

impl UserPrompt {
    /// Returns the mentions without duplicates: first those next to the text, then those in the
    /// text.
    pub(crate) fn parse_mentions(&self) -> Vec<ParsedMention> {
        let next_to_text = self.mentions.iter().map(|mention| {
            let SkillMention { name, handle } = mention.clone();
            if handle.is_empty() {
                ParsedMention::Name(name)
            } else {
                ParsedMention::Handle { handle, name }
            }
        });
        let mut seen = HashSet::new();
        next_to_text
            .chain(mentions_in_text(&self.text))
            .filter(|mention| seen.insert(mention.clone()))
            .collect()
    }
}

/// Returns whether the target of a link is a handle: `skill://…`, or `mcp+SCHEME://…` of an MCP
/// server.
fn is_skill_handle(target: &str) -> bool {
    let scheme = target.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| scheme == "skill" || scheme.starts_with("mcp+"))
}

/// Returns whether the target of a link is a path: it has no scheme and is no fragment of a page. A
/// path is no handle, so that the mention is omitted with a reason.
fn is_path(target: &str) -> bool {
    let scheme = target.split_once(':').map(|(scheme, _)| scheme);
    let has_scheme = scheme.is_some_and(|scheme| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
    });
    !has_scheme && !target.is_empty() && !target.starts_with(['#', '?'])
}

/// Returns the mentions in a text.
fn mentions_in_text(text: &str) -> impl Iterator<Item = ParsedMention> {
    let mut rest = text;
    // Last character before `rest`.
    let mut last = None;
    iter::from_fn(move || {
        loop {
            let (before, after) = rest.split_once('$')?;
            let previous = before.chars().next_back().or(last);

            if previous == Some('[')
                && let Some(link) = MentionLink::parse(after)
            {
                rest = &after[link.bytes..];
                last = Some(')');
                if is_skill_handle(link.target) || is_path(link.target) {
                    return Some(ParsedMention::Handle {
                        handle: link.target.to_owned(),
                        name: link.text.trim().to_owned(),
                    });
                }
                // A link to something else.
                continue;
            }

            // The longest word after the `$`, which may be empty.
            let end = after.find(|c| !is_name_char(c)).unwrap_or(after.len());
            let word = &after[..end];
            rest = &after[end..];
            last = word.chars().next_back().or(Some('$'));
            if !word.is_empty() && word.len() <= MAX_WORD_BYTES && !continues_word(previous) {
                let words = word_candidates(word);
                if !words.iter().any(|word| is_environment_variable(word)) {
                    return Some(ParsedMention::Word(words));
                }
            }
        }
    })
}

/// Returns whether a `$` after this character belongs to a longer word or is escaped.
fn continues_word(previous: Option<char>) -> bool {
    previous.is_some_and(|c| c.is_alphanumeric() || matches!(c, '$' | '\\' | '_'))
}

/// Link in a text.
struct MentionLink<'a> {
    /// Text after the `$`.
    text: &'a str,
    target: &'a str,
    /// Bytes of the link after the `$`.
    bytes: usize,
}

impl<'a> MentionLink<'a> {
    /// Parses a link whose text begins after `[$`. Returns `None` if the link exceeds
    /// [`MAX_LINK_BYTES`].
    fn parse(tail: &'a str) -> Option<Self> {
        let longest = &tail[..tail.floor_char_boundary(MAX_LINK_BYTES)];
        let (text, rest) = longest.split_once(']')?;
        if text.contains(['[', '\n']) {
            return None;
        }

        let (target, after) = rest.strip_prefix('(')?.split_once(')')?;
        if target.contains('\n') {
            return None;
        }
        Some(Self {
            text,
            target: target.trim(),
            bytes: longest.len() - after.len(),
        })
    }
}

/// Returns whether a word is spelled like an environment variable, such as `HOME`: capitals, digits
/// and `_`. Names of skills are lower-case in the Agent Skills format.
fn is_environment_variable(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_uppercase() || c == '_')
        && word
            .bytes()
            .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
}

fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '-' | '_' | ':' | '.')
}

/// Returns a word, and the word without punctuation at its end.
fn word_candidates(word: &str) -> Vec<String> {
    let mut words = vec![word.to_owned()];
    let mut left = word;
    while let Some(shorter) = left.strip_suffix(['.', ':', '-', '_']) {
        left = shorter;
        if left.is_empty() || words.len() > MAX_PUNCTUATION {
            break;
        }
        words.push(left.to_owned());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::{ParsedMention, SkillMention, UserPrompt};
    use proptest::prelude::*;

    fn in_text(text: &str) -> Vec<String> {
        let show = |named: ParsedMention| match named {
            ParsedMention::Handle { handle, name } => format!("{name}@{handle}"),
            ParsedMention::Name(name) => format!("={name}"),
            ParsedMention::Word(words) => words.join("|"),
        };
        UserPrompt::from(text)
            .parse_mentions()
            .into_iter()
            .map(show)
            .collect()
    }

    #[test]
    fn mentions_in_a_text() {
        for (text, named) in [
            ("use $pdf now", vec!["pdf"]),
            ("$a, $b:c and $a", vec!["a", "b:c"]),
            ("Use $pdf. Then $x-y:", vec!["pdf.|pdf", "x-y:|x-y"]),
            (
                "[$pdf](skill://r/pdf) and ($x)",
                vec!["pdf@skill://r/pdf", "x"],
            ),
            (
                "[$a](mcp+github://docs/o/a) [$b](github://o/b)",
                vec!["a@mcp+github://docs/o/a"],
            ),
            (
                "[$pdf](/srv/skills/pdf/SKILL.md) [$a](b/../c) [$x](#top) [$y](mailto:a@b) [$z]()",
                vec!["pdf@/srv/skills/pdf/SKILL.md", "a@b/../c"],
            ),
            (
                "[$Any Name!](skill://r/p/SKILL.md)",
                vec!["Any Name!@skill://r/p/SKILL.md"],
            ),
            (
                "echo $HOME/bin $PATH:$HOME. $XDG_CONFIG_HOME, ${USER} $_",
                vec![],
            ),
            (
                "[$HOME](skill://r/home) $Home",
                vec!["HOME@skill://r/home", "Home"],
            ),
            ("[$mail](app://mail) costs US$pdf $$pdf \\$pdf $ $", vec![]),
            ("[$pdf] (skill://r/pdf)", vec!["pdf"]),
            ("[$pdf\n](skill://r/pdf)", vec!["pdf"]),
            ("$ä漢", vec!["ä漢"]),
            ("", vec![]),
        ] {
            assert_eq!(in_text(text), named, "{text:?}");
        }
    }

    #[test]
    fn a_long_text_is_scanned_quickly() {
        let n = 200_000;
        for text in [
            "[$".repeat(n),
            format!("$a{}", "-".repeat(n)),
            "$a ".repeat(n),
            "$a$".repeat(n),
        ] {
            assert!(
                UserPrompt::from(text.as_str()).parse_mentions().len() <= 1,
                "{}",
                &text[..10]
            );
        }
    }

    #[test]
    fn mentions_next_to_the_text_come_first() {
        let prompt = UserPrompt {
            mentions: vec![
                SkillMention {
                    name: "b".into(),
                    handle: String::new(),
                },
                SkillMention {
                    name: "b".into(),
                    handle: "skill://r/b".into(),
                },
            ],
            ..UserPrompt::from("$a")
        };
        let expected = [
            ParsedMention::Name("b".into()),
            ParsedMention::Handle {
                handle: "skill://r/b".into(),
                name: "b".into(),
            },
            ParsedMention::Word(vec!["a".into()]),
        ];
        assert_eq!(prompt.parse_mentions(), expected);
    }

    proptest! {
        #[test]
        fn no_text_causes_a_panic(text in "(\\$|\\[|\\]|\\(|\\)|skill://|a|ä|\\.|\\n|\\\\| ){0,40}", any: String) {
            let named = UserPrompt::from(text.as_str()).parse_mentions();
            prop_assert!(named.len() <= text.matches('$').count());
            UserPrompt::from(any.as_str()).parse_mentions();
        }
    }
}
