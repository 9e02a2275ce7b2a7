//! List of short texts in one allocation. A list of separate texts takes many times the bytes that the
//! texts have in a file.

use std::fmt;

/// Separator of the texts. No text has a control character.
const SEPARATOR: char = '\0';

/// Texts without control characters, in order. No text is empty.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct TextList(Box<str>);

impl TextList {
    /// Creates a list. Returns `None` if a text is empty or has a control character.
    pub fn new<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Option<Self> {
        let mut joined = String::new();
        for text in texts {
            let text = text.as_ref();
            if text.is_empty() || text.contains(char::is_control) {
                return None;
            }
            if !joined.is_empty() {
                joined.push(SEPARATOR);
            }
            joined.push_str(text);
        }
        Some(Self(joined.into()))
    }

    /// Iterates over the texts.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.split(SEPARATOR).filter(|text| !text.is_empty())
    }

    /// Whether the list has no text.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for TextList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
