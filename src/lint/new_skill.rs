//! New skill: a directory with a SKILL.md that has no problem.

use crate::daemon::model::DynamicValue;
use crate::daemon::parse::names::MAX_NAME_CHARS;
use crate::daemon::parse::{frontmatter, names, yaml};
use crate::lint::help::suggest_name;
use caproot_core::text::{collapse_whitespace, truncate_chars};
use caproot_core::wire::RelPath;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// End of the description of a new skill whose author wrote none. `caproot check` warns of it.
pub const PLACEHOLDER_END: &str = "Use when …";

/// Reason why a skill cannot be created. Displays as a sentence.
#[derive(Debug, thiserror::Error)]
pub enum NewSkillError {
    /// The name is not the name of one directory, or breaks a rule of the format.
    #[error("{0}")]
    InvalidName(String),
    /// The description breaks a rule of the format.
    #[error("{0}")]
    InvalidDescription(Box<str>),
    /// There is a file or directory with the name.
    #[error("{} exists; caproot overwrites nothing", .0.display())]
    Exists(PathBuf),
    /// A file or directory cannot be written.
    #[error("cannot create {}: {error}", path.display())]
    Unwritable {
        /// File or directory.
        path: PathBuf,
        /// Error of the filesystem.
        error: io::Error,
    },
}

/// Creates `into/NAME/SKILL.md`, and `into` if it does not exist. Returns the path of the file.
pub fn create_skill(into: &Path, name: &str, description: &str) -> Result<PathBuf, NewSkillError> {
    if RelPath::root().join(name.as_bytes()).is_none() {
        let sentence = format!(
            "{name:?} is not the name of a directory; use 1 to 64 lower-case letters, digits and hyphens"
        );
        return Err(NewSkillError::InvalidName(sentence));
    }
    check_name(name).map_err(NewSkillError::InvalidName)?;

    // The text is checked before a directory is created, so that an error leaves nothing behind.
    let text = skill_text(name, &collapse_whitespace(description));
    let read = frontmatter::read(text.as_bytes(), true, Some(name.as_bytes()));
    if let Some(problem) = read.problems.into_iter().next() {
        return Err(NewSkillError::InvalidDescription(problem.message));
    }

    // An empty path has nothing to create.
    fs::create_dir_all(into).map_err(|error| unwritable_path(into, error))?;
    let dir = into.join(name);
    // The call also fails at a dangling link, so that nothing is overwritten: mkdir(2).
    fs::create_dir(&dir).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => NewSkillError::Exists(dir.clone()),
        _ => unwritable_path(&dir, error),
    })?;

    let file = dir.join("SKILL.md");
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&file)
        .and_then(|mut opened| opened.write_all(text.as_bytes()))
        .map_err(|error| unwritable_path(&file, error))?;
    Ok(file)
}

fn unwritable_path(path: &Path, error: io::Error) -> NewSkillError {
    NewSkillError::Unwritable {
        path: path.to_owned(),
        error,
    }
}

/// Returns a valid name that is similar to an invalid name, if there is one.
#[must_use]
pub fn suggest_valid_name(name: &str) -> Option<String> {
    // A path means the skill in its last directory.
    let last = name.rsplit('/').find(|part| !part.is_empty())?;
    let suggested = suggest_name(last);
    let shortened = truncate_chars(&suggested, MAX_NAME_CHARS).trim_end_matches('-');

    let is_valid = check_name(shortened).is_ok() && shortened != name;
    is_valid.then(|| shortened.to_owned())
}

/// Checks a name by all rules of the format.
fn check_name(name: &str) -> Result<(), String> {
    names::check_name(name)?;
    names::format_violations(name, names::is_name_char)
        .next()
        .map_or(Ok(()), Err)
}

/// Returns the text of a SKILL.md.
fn skill_text(name: &str, description: &str) -> String {
    let title = name.replace('-', " ");
    let name = yaml_text(name);
    let description = yaml_text(description);
    format!(
        "---\nname: {name}\ndescription: {description}\n---\n\n# {title}\n\n\
         1. Write the first step here. Put long texts into `references`, and scripts into `scripts`.\n"
    )
}

/// Returns a text as a YAML scalar: plain if possible, otherwise in single quotes.
fn yaml_text(text: &str) -> String {
    let line = format!("key: {text}");
    let parsed = yaml::parse(&line).ok();
    let value = parsed.as_ref().and_then(|map| map.get("key"));
    if value.and_then(DynamicValue::as_text) == Some(text) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "''"))
    }
}
