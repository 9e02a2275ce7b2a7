//! Errors in a configuration.

use super::{SyntaxError, TextPosition};
use crate::bounded_file::BoundedReadError;
use crate::text::quote_value;
use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// Most errors that are reported for one configuration.
const MAX_ERRORS: usize = 100;

/// Error in a config file, in a fleet file or in a flag. Prints as
/// `FILE:LINE:COLUMN: KEY: invalid value VALUE: REASON` or `FLAG: invalid value VALUE: REASON`.
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
    /// Creates an error about a flag, or about a key without its place.
    pub fn key(key: &str, reason: impl Into<String>) -> Self {
        let (key, reason) = (key.to_owned(), reason.into());
        Self {
            file: None,
            position: None,
            key,
            value: None,
            reason,
        }
    }

    /// Creates an error about the value of a flag.
    pub fn flag(flag: &str, value: &str, reason: impl Into<String>) -> Self {
        Self {
            value: Some(quote_value(value)),
            ..Self::key(flag, reason)
        }
    }

    /// Creates an error about a whole file.
    pub fn file(file: &Path, reason: impl Into<String>) -> Self {
        Self {
            file: Some(file.to_owned()),
            ..Self::key("", reason)
        }
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

impl Error for ConfigError {}

/// Error in a file, without the path of the file.
pub trait FileError {
    /// Adds the path of the file.
    fn in_file(self, path: &Path) -> ConfigError;
}

/// Result of reading or parsing a file, whose error lacks the path of the file.
pub trait FileResult<T> {
    /// Adds the path of the file to the error.
    fn in_file(self, path: &Path) -> Result<T, ConfigError>;
}

impl<T, E: FileError> FileResult<T> for Result<T, E> {
    fn in_file(self, path: &Path) -> Result<T, ConfigError> {
        self.map_err(|error| error.in_file(path))
    }
}

impl FileError for BoundedReadError {
    fn in_file(self, path: &Path) -> ConfigError {
        ConfigError::file(path, self.to_string())
    }
}

impl FileError for Box<dyn Error> {
    fn in_file(self, path: &Path) -> ConfigError {
        ConfigError::file(path, self.to_string())
    }
}

impl FileError for String {
    fn in_file(self, path: &Path) -> ConfigError {
        ConfigError::file(path, self)
    }
}

impl FileError for SyntaxError {
    fn in_file(self, path: &Path) -> ConfigError {
        ConfigError {
            position: Some(self.position),
            ..ConfigError::file(path, self.reason)
        }
    }
}

/// All errors in a configuration or in a list of MCP servers: the first 100 errors of the file in
/// file order, and then of flags. Prints as one line each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigErrors {
    errors: Vec<ConfigError>,
    /// How many errors were not kept.
    omitted: usize,
}

impl ConfigErrors {
    /// Adds an error, or counts the error if there are too many.
    pub fn add(&mut self, error: ConfigError) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(error);
        } else {
            self.omitted += 1;
        }
    }

    /// Returns the sorted errors, or `value` if no error was added.
    pub fn or_value<T>(mut self, value: T) -> Result<T, Self> {
        if self.errors.is_empty() {
            return Ok(value);
        }
        self.errors
            .sort_by_key(|error| (error.file.is_none(), error.position));
        if self.omitted > 0 {
            let file = self.errors.iter().find_map(|error| error.file.clone());
            let more = ConfigError::key("", format!("{} more errors", self.omitted));
            self.errors.push(ConfigError { file, ..more });
            self.omitted = 0;
        }
        Err(self)
    }
}

impl Deref for ConfigErrors {
    type Target = [ConfigError];

    fn deref(&self) -> &[ConfigError] {
        &self.errors
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self {
            errors: vec![error],
            omitted: 0,
        }
    }
}

impl FromIterator<ConfigError> for ConfigErrors {
    fn from_iter<I: IntoIterator<Item = ConfigError>>(errors: I) -> Self {
        Self {
            errors: errors.into_iter().collect(),
            omitted: 0,
        }
    }
}

impl IntoIterator for ConfigErrors {
    type Item = ConfigError;
    type IntoIter = std::vec::IntoIter<ConfigError>;

    fn into_iter(self) -> Self::IntoIter {
        self.errors.into_iter()
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, error) in self.errors.iter().enumerate() {
            write!(f, "{}{error}", if n == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl Error for ConfigErrors {}

#[cfg(test)]
mod tests {
    use super::{ConfigError, ConfigErrors, MAX_ERRORS};

    #[test]
    fn omitted_errors_of_flags_have_no_file() {
        let mut errors = ConfigErrors::default();
        for n in 0..MAX_ERRORS + 2 {
            errors.add(ConfigError::key("--root", n.to_string()));
        }
        let errors = errors.or_value(()).expect_err("errors");
        assert_eq!(
            errors.last().map(ToString::to_string).as_deref(),
            Some("2 more errors")
        );
    }
}
