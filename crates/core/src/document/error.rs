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

/// Error in a config file, in a fleet file, in a lock, in a text or in a flag. Prints as
/// `FILE:LINE:COLUMN: KEY: invalid value VALUE: REASON` or `FLAG: invalid value VALUE: REASON`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// Path of the file, spelled as in the command; `None` for a flag, and for a text that is not from
    /// a file.
    pub file: Option<PathBuf>,
    /// Position in the text; `None` if the error is about the whole text.
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
        Self {
            file: None,
            position: None,
            key: key.to_owned(),
            value: None,
            reason: reason.into(),
        }
    }

    /// Creates an error about a position in a text.
    pub(crate) fn at(position: TextPosition, reason: impl Into<String>) -> Self {
        Self {
            position: Some(position),
            ..Self::key("", reason)
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
            let end = if self.position.is_some() { ":" } else { ": " };
            write!(f, "{}{end}", file.display())?;
        }
        if let Some(TextPosition { line, column }) = self.position {
            write!(f, "{line}:{column}: ")?;
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

/// Result of reading or parsing a file, whose error lacks the path of the file.
pub trait FileResult<T> {
    /// Adds the path of the file to the error.
    fn in_file(self, path: &Path) -> Result<T, ConfigError>;
}

impl<T, E: Into<ConfigError>> FileResult<T> for Result<T, E> {
    fn in_file(self, path: &Path) -> Result<T, ConfigError> {
        self.map_err(|error| ConfigError {
            file: Some(path.to_owned()),
            ..error.into()
        })
    }
}

impl From<SyntaxError> for ConfigError {
    fn from(error: SyntaxError) -> Self {
        Self::at(error.position, error.reason)
    }
}

impl From<BoundedReadError> for ConfigError {
    fn from(error: BoundedReadError) -> Self {
        Self::key("", error.to_string())
    }
}

impl From<Box<dyn Error>> for ConfigError {
    fn from(error: Box<dyn Error>) -> Self {
        Self::key("", error.to_string())
    }
}

impl From<String> for ConfigError {
    fn from(reason: String) -> Self {
        Self::key("", reason)
    }
}

/// All errors in a configuration or in a list of MCP servers: the first 100 errors of the file in
/// file order, and then of flags. Prints as one line each.
#[derive(Debug, Clone, Default, PartialEq, Eq, thiserror::Error)]
#[error("{}", .errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
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
        Self::from_iter([error])
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
