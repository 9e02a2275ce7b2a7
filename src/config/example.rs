//! The config file that explains itself: every key with its default and its meaning.

/// The text of the file.
pub const TEXT: &str = include_str!("example.yaml");
