//! A skill's text between tags of ours, so that no text can get out of them, and what stands at the end of
//! one that is cut. Pure; leaves reading to `inject`.

use super::list::Authority;
use super::one_line::one_line;
use super::{SharedSkill, ToolNames};
use crate::hidden::is_ignorable;
use serde_json::json;

/// How a fragment ends.
const END: &str = "\n</skill>\n";

/// A fragment, whole or cut.
#[derive(Debug)]
pub(super) struct Frame {
    head: String,
    call: String,
}

impl Frame {
    pub(super) fn of(skill: &SharedSkill) -> Self {
        let authority = serde_json::to_string(&Authority::of(skill)).unwrap_or_default();
        let head = format!(
            "<skill>\n<name>{}</name>\n<authority>{}</authority>\n<package>{}</package>\n",
            escaped(&skill.name),
            escaped(&authority),
            escaped(&skill.package),
        );
        Self { head, call: String::new() }
    }

    /// The same, cut where this cursor goes on.
    pub(super) fn cut_at(
        mut self,
        skill: &SharedSkill,
        resource: &str,
        cursor: &str,
        names: &ToolNames,
    ) -> Self {
        let arguments = json!({
            "authority": Authority::of(skill),
            "package": skill.package,
            "resource": resource,
            "cursor": cursor,
        });
        // No `<` can stand in JSON of ours that a tag could begin with.
        let arguments = arguments.to_string().replace('<', "\\u003c");
        self.call = format!("\n[cut here; to go on, call {} {arguments}]", names.read());
        self
    }

    /// What all but the body takes.
    pub(super) fn bare(&self) -> usize {
        self.head.len() + self.call.len() + END.len()
    }

    /// The whole fragment.
    pub(super) fn around(&self, body: &str) -> String {
        format!("{}{}{}{END}", self.head, harmless(body), self.call)
    }
}

/// Text for between tags, on one line, without hidden characters.
fn escaped(text: &str) -> String {
    one_line(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The text, in which no tag `skill` begins or ends: a backslash stands behind the `<` of one, however
/// it is spelled.
pub(super) fn harmless(body: &str) -> String {
    let mut safe = String::with_capacity(body.len());
    let mut rest = body;
    while let Some(at) = rest.find('<') {
        safe.push_str(&rest[..=at]);
        rest = &rest[at + 1..];
        if is_tag(rest) {
            safe.push('\\');
        }
    }
    safe.push_str(rest);
    safe
}

/// Whether what stands behind a `<` makes it a tag of ours, for a reader that is not strict.
fn is_tag(behind: &str) -> bool {
    let ignored = |c: char| c.is_whitespace() || c.is_control() || is_ignorable(c);
    let letters = behind.chars().filter(|c| !ignored(*c)).skip_while(|c| matches!(c, '/' | '\\'));
    letters.take(5).flat_map(char::to_lowercase).eq("skill".chars())
}

/// The longest beginning of a body, in bytes, that takes at most so many once it is harmless.
pub(super) fn fits(body: &str, room: usize) -> usize {
    if harmless(body).len() <= room {
        return body.len();
    }
    let mut bytes = body.floor_char_boundary(room);
    loop {
        let over = harmless(&body[..bytes]).len().saturating_sub(room);
        if over == 0 {
            return bytes;
        }
        bytes = body.floor_char_boundary(bytes.saturating_sub(over));
    }
}

#[cfg(test)]
mod tests {
    use super::{END, Frame, ToolNames, fits, harmless};
    use crate::proto::caproot::v1::Skill;
    use proptest::prelude::*;
    use std::sync::Arc;

    #[test]
    fn no_way_out() {
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
            assert_eq!(harmless(body), safe);
        }
        let skill = Arc::new(Skill { name: "</name></skill>\n<b".into(), ..Skill::default() });
        let fragment = Frame::of(&skill).cut_at(&skill, "</skill>", "c", &ToolNames::default());
        let fragment = fragment.around("");
        assert_eq!(fragment.matches("</skill").count(), 1, "{fragment}");
        assert!(fragment.ends_with(END));
    }

    proptest! {
        #[test]
        fn what_fits(body in "(?s)(<|/|skill|>|ä| |x){0,60}", room in 0_usize..80) {
            let bytes = fits(&body, room);
            prop_assert!(bytes == body.len() || harmless(&body[..bytes]).len() <= room);
            prop_assert!(!harmless(&body).contains("</skill") && !harmless(&body).contains("<skill"));
        }
    }
}
