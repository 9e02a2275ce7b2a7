//! Dynamic value of YAML or JSON.

pub mod compact;

use caproot_core::text;
use std::fmt::{self, Write as _};

// None of the other forms of a value can replace this tree, or be replaced by it. A catalog keeps
// `compact` bytes, for the row "memory with 10000 skills" of the benchmark. The daemon writes
// responses from those bytes, for the row "list of all 2000 skills". Clients receive the `Struct`
// that prost generates. `serde_json::Value` is the JSON of tool calls, and sorts the keys.
/// Value of YAML or JSON. Mappings keep the author's order and have no duplicate keys.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum DynamicValue {
    /// `null`, `~`, or no value.
    #[default]
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// An integer that fits into `i64`.
    Int(i64),
    /// An integer above `i64::MAX`. An integer above `u64::MAX` is text.
    UInt(u64),
    /// Another finite number. `.inf` and `.nan` are text, so that each value equals itself.
    Float(f64),
    /// Text, unescaped.
    Text(Box<str>),
    /// A list.
    List(Box<[DynamicValue]>),
    /// A mapping. Keys of other types are converted to text.
    Map(Box<[(Box<str>, DynamicValue)]>),
}

impl DynamicValue {
    /// Returns the truth of a scalar, such as `true`, `no`, `Off` or `1`.
    #[must_use]
    pub fn to_flag(&self) -> Option<bool> {
        self.is_scalar()
            .then(|| text::parse_flag(&self.to_text()))
            .flatten()
    }

    /// Returns the value of `key`, or `None` if the key is absent or `self` is not a mapping.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        let mut entries = self.as_map()?.iter();
        entries.find(|(k, _)| &**k == key).map(|(_, v)| v)
    }

    /// Returns the text if `self` is a text.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self {
            Some(text)
        } else {
            None
        }
    }

    /// Returns the entries if `self` is a mapping.
    #[must_use]
    pub fn as_map(&self) -> Option<&[(Box<str>, Self)]> {
        if let Self::Map(entries) = self {
            Some(entries)
        } else {
            None
        }
    }

    /// Returns the items if `self` is a list.
    #[must_use]
    pub fn as_list(&self) -> Option<&[Self]> {
        if let Self::List(items) = self {
            Some(items)
        } else {
            None
        }
    }

    /// Whether `self` is neither a list nor a mapping.
    #[must_use]
    pub fn is_scalar(&self) -> bool {
        !matches!(self, Self::List(_) | Self::Map(_))
    }

    /// Returns the type for a message: `a list`, `a number`, …
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) | Self::UInt(_) | Self::Float(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }

    /// Sorts the keys of all mappings in byte order.
    pub fn sort_keys(&mut self) {
        match self {
            Self::List(items) => items.iter_mut().for_each(Self::sort_keys),
            Self::Map(entries) => {
                entries.sort_by(|(a, _), (b, _)| a.cmp(b));
                entries.iter_mut().for_each(|(_, value)| value.sort_keys());
            }
            _ => {}
        }
    }

    /// Converts a scalar to its text, and a list or mapping to compact JSON.
    #[must_use]
    pub fn to_text(&self) -> Box<str> {
        match self {
            Self::Text(text) => text.clone(),
            other => other.to_string().into(),
        }
    }

    /// Returns the approximate size on the wire as a `google.protobuf.Value`.
    #[must_use]
    pub fn wire_size(&self) -> usize {
        match self {
            Self::Null | Self::Bool(_) => 4,
            Self::Int(_) | Self::UInt(_) | Self::Float(_) => 11,
            Self::Text(text) => text.len() + 6,
            Self::List(items) => items.iter().fold(6, |sum, item| sum + item.wire_size()),
            Self::Map(entries) => entries.iter().fold(6, |sum, (key, value)| {
                sum + key.len() + 6 + value.wire_size()
            }),
        }
    }

    /// Returns the number of values: `self`, and the values in a list or mapping.
    #[must_use]
    pub fn value_count(&self) -> usize {
        match self {
            Self::List(items) => 1 + items.iter().map(Self::value_count).sum::<usize>(),
            Self::Map(entries) => 1 + entries.iter().map(|(_, v)| v.value_count()).sum::<usize>(),
            _ => 1,
        }
    }

    /// Returns the maximum nesting of lists and mappings; 0 for a scalar.
    #[must_use]
    pub fn depth(&self) -> usize {
        match self {
            Self::List(items) => 1 + items.iter().map(Self::depth).max().unwrap_or(0),
            Self::Map(entries) => 1 + entries.iter().map(|(_, v)| v.depth()).max().unwrap_or(0),
            _ => 0,
        }
    }
}

impl fmt::Display for DynamicValue {
    /// Formats a value as compact JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let comma = |i: usize| if i == 0 { "" } else { "," };
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(b) => write!(f, "{b}"),
            Self::Int(n) => write!(f, "{n}"),
            Self::UInt(n) => write!(f, "{n}"),
            // `Debug` distinguishes `1.0` from `1` and keeps large numbers short.
            Self::Float(n) => write!(f, "{n:?}"),
            Self::Text(text) => write_json_string(text, f),
            Self::List(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", comma(i))?;
                }
                f.write_str("]")
            }
            Self::Map(entries) => {
                f.write_str("{")?;
                for (i, (key, value)) in entries.iter().enumerate() {
                    f.write_str(comma(i))?;
                    write_json_string(key, f)?;
                    write!(f, ":{value}")?;
                }
                f.write_str("}")
            }
        }
    }
}

fn write_json_string(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            '\n' => f.write_str("\\n")?,
            c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
            c => f.write_char(c)?,
        }
    }
    f.write_str("\"")
}

#[cfg(test)]
mod tests {
    use super::DynamicValue;

    fn text(text: &str) -> DynamicValue {
        DynamicValue::Text(text.into())
    }

    #[test]
    fn prints_scalars_bare_and_containers_as_json() {
        let list = DynamicValue::List(
            [
                DynamicValue::Null,
                text("a\"\u{1}\n"),
                DynamicValue::Float(1.0),
            ]
            .into(),
        );
        let map =
            DynamicValue::Map([("k".into(), list), ("n".into(), DynamicValue::Int(-1))].into());
        for (value, printed) in [
            (DynamicValue::Null, "null"),
            (DynamicValue::Bool(true), "true"),
            (DynamicValue::UInt(u64::MAX), "18446744073709551615"),
            (DynamicValue::Float(1e300), "1e300"),
            (text("a\"b"), "a\"b"),
            (map, "{\"k\":[null,\"a\\\"\\u0001\\n\",1.0],\"n\":-1}"),
        ] {
            assert_eq!(&*value.to_text(), printed);
        }
    }
}
