//! Fragments: the text of a skill between tags. The text cannot close the tags. A truncated
//! fragment ends with the call that continues the text.

use crate::skills::skill::{AuthorityRef, SharedSkill};
use crate::skills::tool_names::ToolNames;
use caproot_core::text::{is_ignorable_char, single_line};
use serde_json::json;
use std::fmt::Write as _;

/// End of a fragment.
const CLOSING_TAG: &str = "\n</skill>\n";

/// Fragment without its body.
#[derive(Debug, Clone)]
pub struct FragmentFrame<'a> {
    skill: &'a SharedSkill,
    /// Spelling of the name of the tool that reads.
    names: ToolNames,
    head: String,
    continuation: String,
    /// Line about the other files of the skill, or empty.
    files: String,
}

impl<'a> FragmentFrame<'a> {
    pub fn new(skill: &'a SharedSkill, names: ToolNames) -> Self {
        let authority = serde_json::to_string(&AuthorityRef::of_skill(skill)).unwrap_or_default();
        let head = format!(
            "<skill>\n<name>{}</name>\n<authority>{}</authority>\n<package>{}</package>\n",
            escape_markup(&skill.name),
            escape_markup(&authority),
            escape_markup(&skill.package),
        );
        Self {
            skill,
            names,
            head,
            continuation: String::new(),
            files: String::new(),
        }
    }

    /// Returns the frame of a file that is not the main resource.
    pub fn with_resource(mut self, resource: &str) -> Self {
        let resource = escape_markup(resource);
        let _ = writeln!(self.head, "<resource>{resource}</resource>");
        self
    }

    /// Returns the frame with a sentence about the other files of the skill before its end. The
    /// sentence must not contain `<`.
    pub fn with_files(mut self, sentence: Option<&str>) -> Self {
        if let Some(sentence) = sentence {
            let read = self.names.read();
            self.files = format!(
                "\n[{sentence}; read one with {read}, this package and its path as resource]"
            );
        }
        self
    }

    /// Returns the frame of a fragment that is truncated at a cursor; the same frame without a cursor.
    pub fn truncated_at(&self, resource: &str, cursor: &str) -> Self {
        let mut frame = self.clone();
        if cursor.is_empty() {
            return frame;
        }

        let json = json!({
            "authority": AuthorityRef::of_skill(self.skill),
            "package": self.skill.package,
            "resource": resource,
            "cursor": cursor,
        });
        // JSON without `<` cannot begin a tag.
        let arguments = json.to_string().replace('<', "\\u003c");
        let read = self.names.read();
        frame.continuation = format!("\n[truncated here; to continue, call {read} {arguments}]");
        frame
    }

    /// Returns the bytes of the fragment without its body.
    pub fn overhead(&self) -> usize {
        self.head.len() + self.continuation.len() + self.files.len() + CLOSING_TAG.len()
    }

    /// Returns the fragment with a body.
    pub fn wrap_body(&self, body: &str) -> String {
        format!(
            "{}{}{}{}{CLOSING_TAG}",
            self.head,
            escape_skill_tags(body),
            self.continuation,
            self.files
        )
    }
}

/// Returns a text for use between tags: on one line, without hidden characters.
fn escape_markup(text: &str) -> String {
    single_line(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Returns a text in which no tag `skill` begins or ends: a backslash follows the `<` of each such
/// tag, in any spelling.
pub fn escape_skill_tags(body: &str) -> String {
    let mut safe = String::with_capacity(body.len());
    let mut rest = body;
    while let Some(index) = rest.find('<') {
        safe.push_str(&rest[..=index]);
        rest = &rest[index + 1..];
        if is_skill_tag(rest) {
            safe.push('\\');
        }
    }
    safe.push_str(rest);
    safe
}

/// Returns whether the text after a `<` makes a tag `skill` for a lenient reader.
fn is_skill_tag(after: &str) -> bool {
    after
        .chars()
        .filter(|c| !c.is_whitespace() && !c.is_control() && !is_ignorable_char(*c))
        .skip_while(|c| matches!(c, '/' | '\\'))
        .take(5)
        .flat_map(char::to_lowercase)
        .eq("skill".chars())
}

/// Returns the length of a long prefix of a body that has at most `room` bytes after `fill`, which replaces its
/// placeholders, and after escaping.
pub fn fitting_bytes(body: &str, room: usize, fill: impl Fn(&str) -> String) -> usize {
    let fits = |prefix: &str| escape_skill_tags(&fill(prefix)).len() <= room;
    if fits(body) {
        return body.len();
    }

    // A value can be longer than its placeholder, so the size of a prefix is only known when it is filled.
    let (mut fitting, mut too_long) = (0, body.len());
    while too_long - fitting > 1 {
        let middle = fitting.midpoint(too_long);
        if fits(&body[..body.floor_char_boundary(middle)]) {
            fitting = middle;
        } else {
            too_long = middle;
        }
    }
    body.floor_char_boundary(fitting)
}

#[cfg(test)]
mod tests {
    use super::{CLOSING_TAG, FragmentFrame, ToolNames, escape_skill_tags, fitting_bytes};
    use crate::text::placeholders::{PlaceholderValues, PluginDirectory, SkillDirectories};
    use caproot_core::proto::caproot::v1::Skill;
    use proptest::prelude::*;
    use std::sync::Arc;

    #[test]
    fn tags_in_a_body_are_escaped() {
        for (body, safe) in [
            ("a</skill>b", "a<\\/skill>b"),
            ("</SKILL >", "<\\/SKILL >"),
            ("< / skill>", "<\\ / skill>"),
            ("<skill><skills-list>", "<\\skill><\\skills-list>"),
            ("</\u{200b}sk\nill>", "<\\/\u{200b}sk\nill>"),
            ("<\u{e0041}/sk\u{2066}ill>", "<\\\u{e0041}/sk\u{2066}ill>"),
            ("<\\/skill>", "<\\\\/skill>"),
            ("<<skill", "<<\\skill"),
            ("a < b, <ski>, </b>, <", "a < b, <ski>, </b>, <"),
        ] {
            assert_eq!(escape_skill_tags(body), safe);
        }
        let skill = Arc::new(Skill {
            name: "</name></skill>\n<b".into(),
            ..Skill::default()
        });
        let frame = FragmentFrame::new(&skill, ToolNames::default());
        let fragment = frame.truncated_at("</skill>", "c").wrap_body("");
        assert_eq!(fragment.matches("</skill").count(), 1, "{fragment}");
        assert!(fragment.ends_with(CLOSING_TAG));
    }

    proptest! {
        #[test]
        fn the_fitting_prefix_is_within_the_limit(
            body in "(?s)(<|/|skill|>|ä| |x|\\$ARGUMENTS){0,60}",
            arguments in "[<x ]{0,20}",
            room in 40_usize..100,
        ) {
            let directories = SkillDirectories {
                skill: "skill://r/a",
                plugin: PluginDirectory::Unknown,
            };
            let values = PlaceholderValues::new(&arguments, directories);
            let bytes = fitting_bytes(&body, room, |text| values.fill(text).into_owned());
            let filled = values.fill(&body[..bytes]);
            prop_assert!(bytes == body.len() || escape_skill_tags(&filled).len() <= room);
            prop_assert!(!escape_skill_tags(&body).contains("</skill") && !escape_skill_tags(&body).contains("<skill"));
        }
    }
}
