//! Rules for the names of skills and plugins.

use crate::daemon::model::{DiagnosticCode, FileProblem};
use caproot_core::text;

/// Maximum characters of a name.
pub const MAX_NAME_CHARS: usize = 64;

/// Returns the name of a directory with collapsed white space, and a problem if the name is not
/// UTF-8.
pub fn name_from_directory(dir_name: &[u8]) -> (Box<str>, Option<FileProblem>) {
    let name = String::from_utf8_lossy(dir_name);
    let problem = std::str::from_utf8(dir_name).is_err().then(|| {
        let message = "the directory's name is not UTF-8; invalid bytes are replaced";
        FileProblem::warning(DiagnosticCode::NotUtf8, message)
    });
    (text::collapse_whitespace(&name), problem)
}

/// Checks that a name can be used. The error states the violated rule.
pub fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("no name is set, and the directory has no name to use instead".into());
    }
    let quoted = text::quote_word(name);
    if name.chars().any(char::is_control) {
        return Err(format!("the name {quoted} contains control characters"));
    }
    if text::exceeds_chars(name, MAX_NAME_CHARS) {
        return Err(format!(
            "the name {quoted} is over {MAX_NAME_CHARS} characters"
        ));
    }
    Ok(())
}

/// Returns a message for each rule of the Agent Skills format that a usable name violates.
/// `is_allowed_char` decides about the characters that are not ASCII.
pub fn format_violations(
    name: &str,
    is_allowed_char: fn(char) -> bool,
) -> impl Iterator<Item = String> {
    let has_only_allowed_chars = name.chars().all(|c| {
        let is_common = matches!(c, 'a'..='z' | '0'..='9' | '-');
        is_common || !c.is_ascii() && is_allowed_char(c)
    });
    let rules = [
        (
            !has_only_allowed_chars,
            "should contain only lower-case letters, digits and hyphens",
        ),
        (
            name.starts_with('-') || name.ends_with('-'),
            "should not begin or end with a hyphen",
        ),
        (
            name.contains("--"),
            "should not contain two hyphens in a row",
        ),
    ];

    let violated = rules.into_iter().filter(|(is_violated, _)| *is_violated);
    violated.map(move |(_, rule)| format!("the name {} {rule}", text::quote_word(name)))
}

/// Whether a name may have the character. Allows letters without case, as in Chinese, and letters
/// that equal their own lower case.
pub fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() && c.to_lowercase().eq([c])
}

#[cfg(test)]
mod tests {
    use super::{check_name, format_violations, is_name_char};

    #[test]
    fn format_violations_are_reported() {
        for (name, count) in [
            ("deploy", 0),
            ("a-1", 0),
            ("技能", 0),
            ("мой-навык", 0),
            ("MySkill", 1),
            ("a_b", 1),
            ("a b", 1),
            ("🚀", 1),
            ("a--b", 1),
            ("-a", 1),
            ("a-", 1),
            ("-A--", 3),
        ] {
            assert_eq!(
                format_violations(name, is_name_char).count(),
                count,
                "{name:?}"
            );
            assert_eq!(check_name(name), Ok(()), "{name:?}");
        }
    }

    #[test]
    fn unusable_names_are_rejected() {
        for name in ["", "a\u{1}", "\u{1b}[2J", &"ä".repeat(65)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        assert_eq!(check_name(&"ä".repeat(64)), Ok(()));
    }
}
