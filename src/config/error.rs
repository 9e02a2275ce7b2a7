//! Errors in a configuration.

use crate::model::text::quote_value;
use crate::parse::document::TextPosition;
use std::fmt;
use std::path::{Path, PathBuf};

/// Most errors that are reported for one configuration.
const MAX_ERRORS: usize = 100;

/// Error in a config file or a flag. Prints as `FILE:LINE:COLUMN: KEY: invalid value VALUE: REASON`
/// or `FLAG: invalid value VALUE: REASON`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// Path of the file, spelled as in the command; `None` for a flag.
    pub file: Option<PathBuf>,
    /// Position in the file; `None` if the error is about the whole file.
    pub position: Option<TextPosition>,
    /// Full key, such as `limits.max_depth` or `roots[0].id`, or the flag. Empty if the error is
    /// about the whole file.
    pub key: String,
    /// Invalid scalar, truncated if it is long; `None` for lists, mappings and absent values.
    pub value: Option<String>,
    /// Description of the error and its fix.
    pub reason: String,
}

impl ConfigError {
    /// Creates an error about the value of a flag.
    pub(super) fn flag(flag: &str, value: &str, reason: impl Into<String>) -> Self {
        let value = Some(quote_value(value));
        Self { file: None, position: None, key: flag.to_owned(), value, reason: reason.into() }
    }

    /// Creates an error about a whole file or its text.
    pub(super) fn file(
        file: &Path,
        position: Option<TextPosition>,
        reason: impl Into<String>,
    ) -> Self {
        let (key, value, reason) = (String::new(), None, reason.into());
        Self { file: Some(file.to_owned()), position, key, value, reason }
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
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        if let Some(value) = &self.value {
            write!(f, "invalid value {value}: ")?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for ConfigError {}

/// Collected errors. Counts errors beyond [`MAX_ERRORS`] without keeping them.
#[derive(Debug, Default)]
pub struct ConfigErrors {
    errors: Vec<ConfigError>,
    omitted: usize,
}

impl ConfigErrors {
    pub fn add(&mut self, error: ConfigError) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(error);
        } else {
            self.omitted += 1;
        }
    }

    /// Whether `matches` returns true for an error.
    pub fn any(&self, matches: impl FnMut(&ConfigError) -> bool) -> bool {
        self.errors.iter().any(matches)
    }

    /// Returns the errors of the file, sorted by position, and then the errors of flags. `Ok` if no
    /// error was added.
    pub fn into_result(mut self) -> Result<(), Vec<ConfigError>> {
        if self.errors.is_empty() {
            return Ok(());
        }
        self.errors.sort_by_key(|error| (error.file.is_none(), error.position));
        if self.omitted > 0 {
            let file = self.errors.iter().find_map(|error| error.file.clone()).unwrap_or_default();
            self.errors.push(ConfigError::file(
                &file,
                None,
                format!("{} more errors", self.omitted),
            ));
        }
        Err(self.errors)
    }
}
