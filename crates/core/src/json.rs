//! JSON of other programs, such as servers and managers. A tree of values takes up to 150 times the
//! memory of its text, so the memory is estimated before a tree is built, and all trees of the process
//! share one budget. A long list is split into its entries, so that one malformed entry does not cost
//! the others.

use serde::Deserialize;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;
use std::fmt;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Maximum memory of one tree, and of all trees of the process together.
pub const MAX_TREE_MEMORY: usize = 24 << 20;
/// Maximum memory of the tree of one entry of a list.
const MAX_ENTRY_MEMORY: usize = 4 << 20;

/// Memory of an object with up to eleven fields: the node of a map, and the buffer of an untagged enum.
const OBJECT_MEMORY: usize = 1_200;
/// Memory of an array with up to four elements.
const ARRAY_MEMORY: usize = 400;
/// Memory of a further value.
const VALUE_MEMORY: usize = 160;

/// Unit of the budget.
const UNIT_BYTES: usize = 1 << 10;

static BUDGET: Semaphore = Semaphore::const_new(MAX_TREE_MEMORY / UNIT_BYTES);

/// Reason why a text is not read. The end of a sentence.
#[derive(Debug, thiserror::Error)]
pub enum BoundedJsonError {
    /// The tree would take too much memory.
    #[error("it has too many values: the tree would take {} MiB", .memory >> 20)]
    TooManyValues {
        /// Estimated memory in bytes.
        memory: usize,
    },
    /// The text is no JSON, or has other fields.
    #[error("{0}")]
    Invalid(#[from] serde_json::Error),
}

/// Part of the budget. Hold the part as long as the tree.
#[derive(Debug)]
pub struct TreePermit(#[allow(dead_code)] Option<SemaphorePermit<'static>>);

/// Estimates the memory of the tree of a text in bytes, without building the tree. The estimate is an upper
/// limit for valid JSON.
#[must_use]
pub fn estimate_tree_memory(text: &[u8]) -> usize {
    // Strings are copied once by an untagged enum, and once into the tree.
    let mut memory = VALUE_MEMORY + 2 * text.len();
    let mut in_string = false;
    let mut is_escaped = false;
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_string,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' => memory += OBJECT_MEMORY,
            b'[' => memory += ARRAY_MEMORY,
            b',' | b':' => memory += VALUE_MEMORY,
            _ => {}
        }
    }
    memory
}

/// Waits for the part of the budget that the tree of a text takes. Fails if the tree would take more than
/// [`MAX_TREE_MEMORY`].
pub async fn reserve_tree(text: &[u8]) -> Result<TreePermit, BoundedJsonError> {
    let memory = estimate_tree_memory(text);
    if memory > MAX_TREE_MEMORY {
        return Err(BoundedJsonError::TooManyValues { memory });
    }
    let units = u32::try_from(memory / UNIT_BYTES).unwrap_or(u32::MAX);
    // The budget is never closed. Without the permit, only the budget would be exceeded.
    Ok(TreePermit(BUDGET.acquire_many(units).await.ok()))
}

/// Checks that the tree of a text is little more than the text: a message with a large file. The caller bounds
/// the number of such texts, so that they take no part of the budget.
pub fn permit_large_text(text: &[u8]) -> Result<TreePermit, BoundedJsonError> {
    let memory = estimate_tree_memory(text);
    if memory - 2 * text.len() > MAX_ENTRY_MEMORY {
        return Err(BoundedJsonError::TooManyValues { memory });
    }
    Ok(TreePermit(None))
}

/// Parses a text within the budget.
pub async fn parse_message<T: DeserializeOwned>(text: &[u8]) -> Result<T, BoundedJsonError> {
    let _permit = reserve_tree(text).await?;
    Ok(serde_json::from_slice(text)?)
}

/// Entries of a list, not parsed yet.
#[derive(Debug)]
pub struct ListEntries<'a> {
    /// First entries.
    pub entries: Vec<ListEntry<'a>>,
    /// Whether there are more entries.
    pub is_cut: bool,
}

/// Entry of a list.
#[derive(Debug, Clone, Copy)]
pub struct ListEntry<'a>(&'a RawValue);

impl<'a> ListEntries<'a> {
    /// Splits the list in a field of an object into its entries, at most `max`. `fields` are spellings of
    /// the field.
    pub fn split(text: &'a [u8], fields: &[&str], max: usize) -> Result<Self, BoundedJsonError> {
        let mut deserializer = serde_json::Deserializer::from_slice(text);
        let entries = deserializer.deserialize_map(FieldVisitor { fields, max })?;
        deserializer.end()?;
        Ok(entries)
    }

    /// Splits a list into its entries, at most `max`.
    pub fn split_list(text: &'a [u8], max: usize) -> Result<Self, BoundedJsonError> {
        let mut deserializer = serde_json::Deserializer::from_slice(text);
        let entries = ListSeed { max }.deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(entries)
    }
}

impl<'a> ListEntry<'a> {
    /// Returns the text of the entry.
    #[must_use]
    pub fn text(self) -> &'a str {
        self.0.get()
    }

    /// Parses the entry.
    pub fn parse<T: DeserializeOwned>(self) -> Result<T, BoundedJsonError> {
        let memory = estimate_tree_memory(self.0.get().as_bytes());
        if memory > MAX_ENTRY_MEMORY {
            return Err(BoundedJsonError::TooManyValues { memory });
        }
        Ok(serde_json::from_str(self.0.get())?)
    }

    /// Returns a text field of the entry, such as its name for a message; empty if there is none.
    #[must_use]
    pub fn text_field(self, field: &str) -> String {
        let mut deserializer = serde_json::Deserializer::from_str(self.0.get());
        let text = deserializer.deserialize_map(TextVisitor { field });
        text.unwrap_or_default()
    }
}

struct FieldVisitor<'f> {
    fields: &'f [&'f str],
    max: usize,
}

impl<'de> Visitor<'de> for FieldVisitor<'_> {
    type Value = ListEntries<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with a list `{}`", self.fields.join("` or `"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<String>()? {
            if self.fields.contains(&key.as_str()) && found.is_none() {
                found = Some(map.next_value_seed(ListSeed { max: self.max })?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        found.ok_or_else(|| {
            let names = self.fields.join("` or `");
            serde::de::Error::custom(format!("missing field `{names}`"))
        })
    }
}

struct ListSeed {
    max: usize,
}

impl<'de> DeserializeSeed<'de> for ListSeed {
    type Value = ListEntries<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ListSeed {
    type Value = ListEntries<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        let mut is_cut = false;
        // serde_json fails unless the list is read to its end.
        while let Some(entry) = list.next_element::<&'de RawValue>()? {
            if entries.len() < self.max {
                entries.push(ListEntry(entry));
            } else {
                is_cut = true;
            }
        }
        Ok(ListEntries { entries, is_cut })
    }
}

struct TextVisitor<'f> {
    field: &'f str,
}

impl<'de> Visitor<'de> for TextVisitor<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<String, A::Error> {
        let mut text = String::new();
        while let Some(key) = map.next_key::<String>()? {
            if key == self.field {
                let value = map.next_value::<&'de RawValue>()?;
                text = String::deserialize(value).unwrap_or_default();
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        BoundedJsonError, ListEntries, MAX_TREE_MEMORY, estimate_tree_memory, parse_message,
    };
    use serde::Deserialize;
    use serde_json::Value;

    #[derive(Debug, Deserialize)]
    struct Entry {
        name: String,
        size: u64,
    }

    #[test]
    fn a_malformed_entry_does_not_cost_the_others() {
        let text = br#"{"x": [1], "skills": [{"name": "a", "size": 1}, {"name": "b"}, null,
            {"name": "c", "size": 2}], "y": {}}"#;
        let list = ListEntries::split(text, &["skills"], 10).expect("a list");
        let names: Vec<_> = list
            .entries
            .iter()
            .map(|entry| match entry.parse::<Entry>() {
                Ok(entry) => format!("{} {}", entry.name, entry.size),
                Err(_) => format!("invalid {}", entry.text_field("name")),
            })
            .collect();
        assert_eq!(names, ["a 1", "invalid b", "invalid ", "c 2"]);
        assert!(!list.is_cut);

        let cut = ListEntries::split(text, &["skills"], 3).expect("a list");
        assert_eq!((cut.entries.len(), cut.is_cut), (3, true));
        for invalid in [
            &b"[]"[..],
            b"{}",
            br#"{"skills": 1}"#,
            br#"{"skills": []} x"#,
        ] {
            ListEntries::split(invalid, &["skills"], 3).expect_err("no list");
        }
    }

    #[test]
    fn values_are_counted_outside_strings() {
        let plain = estimate_tree_memory(br#"{"a": [1, 2]}"#);
        let quoted = estimate_tree_memory(br#"{"a": "[1,\"{,"}"#);
        assert!(quoted < plain, "{quoted} {plain}");
    }

    #[tokio::test]
    async fn a_message_with_too_many_values_is_not_parsed() {
        let many = format!("[{}0]", "{\"\":0},".repeat(100_000));
        let error = parse_message::<Value>(many.as_bytes()).await;
        let error = error.expect_err("too many values");
        assert!(
            matches!(error, BoundedJsonError::TooManyValues { .. }),
            "{error}"
        );

        // One long string is a file of a server.
        let long = format!("\"{}\"", "x".repeat(MAX_TREE_MEMORY / 4));
        let text: String = parse_message(long.as_bytes()).await.expect("a string");
        assert_eq!(text.len(), MAX_TREE_MEMORY / 4);
    }
}
