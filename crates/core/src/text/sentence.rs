//! Sentences about errors.

use std::fmt::Display;

/// Result whose error becomes a part of a sentence.
pub trait SentenceResult<T> {
    /// Puts words before the error: `WORDS: ERROR`.
    ///
    /// ```
    /// use caproot_core::text::SentenceResult as _;
    ///
    /// let port = "x".parse::<u16>().context("invalid port");
    /// assert_eq!(port, Err("invalid port: invalid digit found in string".to_owned()));
    /// ```
    fn context(self, words: impl Display) -> Result<T, String>;
}

impl<T, E: Display> SentenceResult<T> for Result<T, E> {
    fn context(self, words: impl Display) -> Result<T, String> {
        self.map_err(|error| format!("{words}: {error}"))
    }
}
