//! Ids of roots.

use super::limits::MAX_ROOT_ID_BYTES;

/// Id of a root: 1 to 256 bytes, without control characters, and neither `.` nor `..`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RootId(Box<str>);

impl RootId {
    /// Creates an id. The error states the rule that the text violates.
    pub fn new(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err("is empty; an id has 1 to 256 bytes");
        }
        if text.len() > MAX_ROOT_ID_BYTES {
            return Err("is over 256 bytes");
        }
        if text.chars().any(char::is_control) {
            return Err("contains a control character");
        }
        if matches!(text, "." | "..") {
            return Err("must not be `.` or `..`");
        }
        Ok(Self(text.into()))
    }

    /// Returns the text of the id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::RootId;

    #[test]
    fn root_ids_are_checked() {
        for good in ["a", "deploy-plugin@1", "a/b", "ü", &"x".repeat(256)] {
            assert!(RootId::new(good).is_ok(), "{good:?}");
        }
        for bad in ["", ".", "..", "a\nb", "\u{7f}", &"x".repeat(257)] {
            assert!(RootId::new(bad).is_err(), "{bad:?}");
        }
    }
}
