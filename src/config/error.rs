//! A mistake in a configuration: where it is and what is wrong. Leaves finding it to the others here.

use crate::yaml_document::{TextPosition, quote_truncated};
use std::fmt;
use std::path::{Path, PathBuf};

/// The most mistakes that are told of one configuration.
const MAX_ERRORS: usize = 100;
/// One mistake. Prints as `FILE:LINE:COLUMN: KEY: VALUE REASON`, or as a sentence about a flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file, as it was named; `None` for a flag.
    pub file: Option<PathBuf>,
    /// Where in the file; `None` for the file as a whole.
    pub position: Option<TextPosition>,
    /// The key with those around it, such as `limits.max_depth` or `roots[0].id`, or the flag. Empty
    /// for the file as a whole.
    pub key: String,
    /// The value as it was given, cut when it is long; a list or mapping by what it is. `None` where
    /// there is none.
    pub value: Option<String>,
    /// What is wrong, and what to do: goes on after the value.
    pub reason: String,
}

impl ConfigError {
    /// A mistake in a flag.
    pub(super) fn flag(flag: &str, value: &str, reason: impl Into<String>) -> Self {
        let value = Some(quote_truncated(value));
        Self { file: None, position: None, key: flag.to_owned(), value, reason: reason.into() }
    }

    /// A mistake about a file as a whole, or about its text.
    pub(super) fn file(file: &Path, at: Option<TextPosition>, reason: impl Into<String>) -> Self {
        let (key, value, reason) = (String::new(), None, reason.into());
        Self { file: Some(file.to_owned()), position: at, key, value, reason }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}", file.display())?;
            if let Some(TextPosition { line, column }) = self.position {
                write!(f, ":{line}:{column}")?;
            }
            f.write_str(": ")?;
        }
        match (self.key.as_str(), self.file.is_some()) {
            ("", _) => {}
            (key, true) => write!(f, "{key}: ")?,
            (flag, false) => write!(f, "{flag} ")?,
        }
        if let Some(value) = &self.value {
            write!(f, "{value} ")?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for ConfigError {}

/// Mistakes under collection; counts those beyond the bound.
#[derive(Debug, Default)]
pub(super) struct ConfigErrors {
    errors: Vec<ConfigError>,
    omitted: usize,
}

impl ConfigErrors {
    pub(super) fn add(&mut self, mistake: ConfigError) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(mistake);
        } else {
            self.omitted += 1;
        }
    }

    /// Whether there is one of which this holds.
    pub(super) fn any(&self, of: impl FnMut(&ConfigError) -> bool) -> bool {
        self.errors.iter().any(of)
    }

    /// All of them, the file's in its order before those of flags; nothing if there are none.
    pub(super) fn into_result(mut self) -> Result<(), Vec<ConfigError>> {
        if self.errors.is_empty() {
            return Ok(());
        }
        self.errors.sort_by_key(|m| (m.file.is_none(), m.position));
        if self.omitted > 0 {
            let file = self.errors.iter().find_map(|m| m.file.clone()).unwrap_or_default();
            self.errors.push(ConfigError::file(
                &file,
                None,
                format!("{} mistakes more", self.omitted),
            ));
        }
        Err(self.errors)
    }
}
