//! Help text of a diagnostic: specific to the skill if possible, otherwise the general help of its
//! code.

use crate::daemon::model::value::compact::ValueRef;
use crate::daemon::model::{DiagnosticCode, FileProblem, Severity, Skill};
use crate::daemon::parse::frontmatter;
use crate::lint::explain::explanation_of as explain;
use caproot_core::text::similar;
use caproot_core::wire::RelPath;

/// Returns the help for a problem of a file. `skill` is the skill at the path of the problem.
pub fn help_for_problem(file: &RelPath, problem: &FileProblem, skill: Option<&Skill>) -> String {
    let is_skill_file = file.file_name() == Some(b"SKILL.md");
    let message = &*problem.message;
    let exact = match (problem.code, problem.severity) {
        (DiagnosticCode::NameInvalid, Severity::Error) if skill.is_none() => {
            Some("give the skill a name of 1 to 64 plain characters")
        }
        (DiagnosticCode::NameInvalid | DiagnosticCode::MissingDescription, _)
            if message.contains("in lower case") =>
        {
            Some("write the keys in lower case, or run `caproot check --fix`")
        }
        (DiagnosticCode::MissingDescription, _) if message.contains("is a comment") => {
            Some("put the text in quotes, or run `caproot check --fix`")
        }
        // A part of a name or description that YAML reads as something else.
        (DiagnosticCode::FieldInvalid, _)
            if is_skill_file && message.ends_with("quote the value") =>
        {
            Some("put the value in quotes, or run `caproot check --fix`")
        }
        (DiagnosticCode::FieldInvalid, _)
            if is_skill_file && message.ends_with("indent the line") =>
        {
            Some("indent the line, or run `caproot check --fix`")
        }
        (DiagnosticCode::FieldUnknown, _) if message.contains("did you mean") => {
            Some("correct the spelling")
        }
        (DiagnosticCode::FieldUnknown, _) if !is_skill_file => {
            Some("remove it if no product needs it")
        }
        (DiagnosticCode::YamlRepaired, _) if message.starts_with(frontmatter::LEFT_OUT) => {
            Some("correct the YAML of the value, or put the value in quotes")
        }
        (DiagnosticCode::YamlSyntax, _) => yaml_syntax_help(message),
        (DiagnosticCode::ScriptNotRunnable, _) if message.contains("has a `#!` line") => Some(
            "run `chmod +x`, or `caproot check --fix`; or name the interpreter in the SKILL.md",
        ),
        _ => None,
    };
    if let Some(exact) = exact {
        return exact.to_owned();
    }

    skill
        .and_then(|skill| match problem.code {
            DiagnosticCode::NameInvalid => name_help(skill),
            DiagnosticCode::FieldUnknown => unknown_field_help(skill),
            _ => None,
        })
        .unwrap_or_else(|| explain(problem.code).help.to_owned())
}

/// Returns the help for a common YAML error, by words of its message.
fn yaml_syntax_help(message: &str) -> Option<&'static str> {
    let helps = [
        (
            "scanning a quoted scalar",
            "close the quote that opens here",
        ),
        (
            "cannot start any token",
            "indent with spaces, and quote values that begin with a sign",
        ),
        ("duplicate key", "remove one of the two"),
        (
            "must be a mapping",
            "write a line `key: value` for each field",
        ),
        ("bytes; shorten it", "move long texts below the frontmatter"),
        ("levels deep", "reduce the nesting, or quote the value"),
        (
            "write one item a line",
            "write a list as lines `- item`, and a mapping as lines `key: value`",
        ),
        ("different indentation", "indent these mappings alike"),
        ("at this `---`", "replace the three hyphens"),
        ("repeat the value", "write the value at each place"),
        ("remove the tag", "remove the tag; each value is text"),
        ("merge the value", "rename the key"),
        ("a control character", "remove the character"),
        ("reject tabs", "write spaces instead of the tab"),
    ];

    let mut helps = helps.into_iter();
    helps
        .find(|(words, _)| message.contains(words))
        .map(|(_, help)| help)
}

/// Suggests a valid name, or a way to make the name valid.
fn name_help(skill: &Skill) -> Option<String> {
    let name = skill.frontmatter.name();
    // The name of the plugin is no part of the name in the file.
    let plugin = skill.plugin.as_deref();
    let bare = plugin.and_then(|plugin| name.strip_prefix(plugin)?.strip_prefix(':'));
    let better = suggest_name(bare.unwrap_or(name));
    let fields = skill.frontmatter.all_fields().map(ValueRef::to_value);
    let written = fields.as_ref().and_then(|fields| fields.get("name"));
    if better.is_empty() {
        None
    } else if written.is_none_or(|written| written.to_text().trim().is_empty()) {
        Some(format!("add `name: {better}` to the frontmatter"))
    } else if better != name {
        Some(match bare {
            Some(_) => format!("write `name: {better}`; the plugin's name precedes it anyway"),
            None => format!("rename the skill and its directory to `{better}`"),
        })
    } else {
        Some(format!(
            "rename the directory to `{better}`, or change the name"
        ))
    }
}

/// Converts a name to lower-case letters and digits, with single hyphens for all other characters.
pub fn suggest_name(name: &str) -> String {
    let mut better = String::new();
    let mut was_lower = false;
    for c in name.chars() {
        // `mySkill` becomes `my-skill`.
        let begins_word = c.is_uppercase() && was_lower;
        if (begins_word || !c.is_alphanumeric()) && !better.is_empty() && !better.ends_with('-') {
            better.push('-');
        }
        if c.is_alphanumeric() {
            better.extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase();
    }
    better.trim_end_matches('-').to_owned()
}

/// Suggests a known field for an unknown field.
fn unknown_field_help(skill: &Skill) -> Option<String> {
    let ValueRef::Map(fields) = skill.frontmatter.all_fields()? else {
        return None;
    };
    let mut slips = fields.filter(|(key, _)| !frontmatter::KNOWN_FIELDS.contains(key));
    let meant = slips.find_map(|(key, _)| {
        similar::most_similar(
            &key.to_lowercase().replace('_', "-"),
            frontmatter::KNOWN_FIELDS,
        )
    })?;
    Some(format!(
        "did you mean `{meant}`? Your own fields go below `metadata`"
    ))
}

#[cfg(test)]
mod tests {
    use super::suggest_name;

    #[test]
    fn suggested_names_are_valid() {
        for (name, better) in [
            ("MySkill", "my-skill"),
            ("a_b", "a-b"),
            ("a--b", "a-b"),
            ("-a-", "a"),
            ("PDF Tools 2", "pdf-tools-2"),
            ("мой-навык", "мой-навык"),
            ("Ünïcode", "ünïcode"),
            ("🚀", ""),
        ] {
            assert_eq!(suggest_name(name), better, "{name}");
        }
    }
}
