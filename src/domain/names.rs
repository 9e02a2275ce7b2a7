//! What a skill or a plugin may be called. Leaves qualifying a skill's name by its plugin's to others.

use super::{DiagnosticCode, FileProblem, text};

/// Characters of a name.
const MAX_NAME_CHARS: usize = 64;

/// A directory's name as a name: white space collapsed, and a problem where it is not UTF-8.
pub(super) fn name_from_directory(dir_name: &[u8]) -> (Box<str>, Option<FileProblem>) {
    let name = String::from_utf8_lossy(dir_name);
    let problem = std::str::from_utf8(dir_name).is_err().then(|| {
        let why = "the directory's name is not UTF-8; its bytes that are not are replaced";
        FileProblem::warning(DiagnosticCode::NotUtf8, why)
    });
    (text::collapse_whitespace(&name), problem)
}

/// Says why a name cannot be used at all.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("no name, and the directory has none either".into());
    }
    if name.chars().any(char::is_control) {
        return Err(format!("the name {} holds control characters", text::quote_word(name)));
    }
    if text::exceeds_chars(name, MAX_NAME_CHARS) {
        return Err(format!(
            "the name {} is over {MAX_NAME_CHARS} characters",
            text::quote_word(name)
        ));
    }
    Ok(())
}

/// Each rule of the Agent Skills format that a usable name breaks.
pub(super) fn format_violations(name: &str) -> Vec<String> {
    let shown = text::quote_word(name);
    let mut breaches = Vec::new();
    if !name.chars().all(is_allowed_char) {
        let why = "should hold lower-case letters, digits and hyphens only";
        breaches.push(format!("the name {shown} {why}"));
    }
    if name.starts_with('-') || name.ends_with('-') {
        breaches.push(format!("the name {shown} should not begin or end with a hyphen"));
    }
    if name.contains("--") {
        breaches.push(format!("the name {shown} should not hold two hyphens in a row"));
    }
    breaches
}

/// Letters without case, as in Chinese, are fine; so is any letter that is its own lower case.
fn is_allowed_char(c: char) -> bool {
    c == '-' || c.is_alphanumeric() && c.to_lowercase().eq([c])
}

#[cfg(test)]
mod tests {
    use super::{check_name, format_violations};

    #[test]
    fn breaches_of_the_format() {
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
            assert_eq!(format_violations(name).len(), count, "{name:?}");
            assert_eq!(check_name(name), Ok(()), "{name:?}");
        }
    }

    #[test]
    fn names_that_cannot_be() {
        for name in ["", "a\u{1}", "\u{1b}[2J", &"ä".repeat(65)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        assert_eq!(check_name(&"ä".repeat(64)), Ok(()));
    }
}
