//! Documented example of a config file: every key with its default.

/// Text of the file.
pub const TEXT: &str = include_str!("example.yaml");
