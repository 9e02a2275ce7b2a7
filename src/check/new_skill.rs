//! New skill: a directory with a SKILL.md that has no problem.

use crate::model::DynamicValue;
use crate::parse::{frontmatter, names, yaml};
use caproot_core::text::collapse_whitespace;
use caproot_core::wire::RelPath;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Reason why a skill cannot be created. Displays as a sentence.
#[derive(Debug, thiserror::Error)]
pub enum NewSkillError {
    /// A name is not the name of one directory.
    #[error(
        "{0:?} is not the name of a directory; use 1 to 64 lower-case letters, digits and hyphens"
    )]
    NotADirectoryName(String),
    /// The name or the description breaks a rule of the format.
    #[error("{0}")]
    Invalid(String),
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
        return Err(NewSkillError::NotADirectoryName(name.to_owned()));
    }
    names::check_name(name).map_err(NewSkillError::Invalid)?;

    let text = skill_text(name, &collapse_whitespace(description));
    let read = frontmatter::read(text.as_bytes(), true, Some(name.as_bytes()));
    if let Some(problem) = read.problems.first() {
        return Err(NewSkillError::Invalid(problem.message.to_string()));
    }

    if !into.as_os_str().is_empty() {
        fs::create_dir_all(into).map_err(|error| unwritable_path(into, error))?;
    }
    let dir = into.join(OsStr::from_bytes(name.as_bytes()));
    fs::create_dir(&dir).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => NewSkillError::Exists(dir.clone()),
        _ => unwritable_path(&dir, error),
    })?;

    let file = dir.join("SKILL.md");
    let created = OpenOptions::new().write(true).create_new(true).open(&file);
    created
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
