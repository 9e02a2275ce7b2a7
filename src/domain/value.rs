//! What an author wrote, as plain data: built from any serde format under a budget, then asked.
//! Leaves the formats, and where their mistakes lie, to `yaml` and `json`.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt::{self, Write as _};

use serde::de::{self, DeserializeSeed, Deserializer, EnumAccess, IgnoredAny};
use serde::de::{MapAccess, SeqAccess, VariantAccess, Visitor};

use super::limits::MAX_NESTING;

/// One value of YAML or JSON. Maps keep the author's order and hold no key twice.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing: `null`, `~`, or left out.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number that fits.
    Int(i64),
    /// A whole number beyond `i64::MAX`; one beyond `u64` is text.
    UInt(u64),
    /// Any other number, always finite: `.inf` and `.nan` are text, so that values equal themselves.
    Float(f64),
    /// Text as the author means it, unescaped.
    Text(Box<str>),
    /// A list.
    List(Box<[Value]>),
    /// A mapping. Keys that are no text are printed.
    Map(Box<[(Box<str>, Value)]>),
}

impl Value {
    /// The value under `key`; `None` where there is none or this is no mapping.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.as_map()?.iter().find(|(k, _)| &**k == key).map(|(_, v)| v)
    }

    /// The text, if it is one.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// The entries, if it is a mapping.
    #[must_use]
    pub fn as_map(&self) -> Option<&[(Box<str>, Self)]> {
        if let Self::Map(entries) = self { Some(entries) } else { None }
    }

    /// The items, if it is a list.
    #[must_use]
    pub fn as_list(&self) -> Option<&[Self]> {
        if let Self::List(items) = self { Some(items) } else { None }
    }

    /// Whether it is neither list nor mapping.
    #[must_use]
    pub fn is_scalar(&self) -> bool {
        !matches!(self, Self::List(_) | Self::Map(_))
    }

    /// What it is, for a message: `a list`, `a number`, …
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

    /// As text: a scalar as itself (`null` for nothing), a list or mapping as compact JSON.
    #[must_use]
    pub fn printed(&self) -> Box<str> {
        match self {
            Self::Text(text) => text.clone(),
            other => Json(other).to_string().into(),
        }
    }

    /// About how many bytes it takes on the wire as a `google.protobuf.Value`.
    #[must_use]
    pub fn weight(&self) -> usize {
        match self {
            Self::Null | Self::Bool(_) => 4,
            Self::Int(_) | Self::UInt(_) | Self::Float(_) => 11,
            Self::Text(text) => text.len() + 6,
            Self::List(items) => items.iter().fold(6, |sum, item| sum + item.weight()),
            Self::Map(entries) => {
                entries.iter().fold(6, |sum, (key, value)| sum + key.len() + 6 + value.weight())
            }
        }
    }
}

/// Compact JSON.
struct Json<'a>(&'a Value);

impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let comma = |i: usize| if i == 0 { "" } else { "," };
        match self.0 {
            Value::Null => f.write_str("null"),
            Value::Bool(b) => write!(f, "{b}"),
            Value::Int(n) => write!(f, "{n}"),
            Value::UInt(n) => write!(f, "{n}"),
            // Debug keeps `1.0` apart from `1`, and a large number short.
            Value::Float(n) => write!(f, "{n:?}"),
            Value::Text(text) => write_text(text, f),
            Value::List(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{}", comma(i), Json(item))?;
                }
                f.write_str("]")
            }
            Value::Map(entries) => {
                f.write_str("{")?;
                for (i, (key, value)) in entries.iter().enumerate() {
                    f.write_str(comma(i))?;
                    write_text(key, f)?;
                    write!(f, ":{}", Json(value))?;
                }
                f.write_str("}")
            }
        }
    }
}

fn write_text(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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

/// What one document may still cost. Text costs its bytes + 1, everything else 1; a key that is no
/// text costs the bytes that it is printed in, too, since printing keys within keys doubles them.
#[derive(Debug)]
pub struct Budget {
    left: Cell<usize>,
    refused: Cell<bool>,
}

impl Budget {
    /// A budget for one document.
    #[must_use]
    pub fn new(left: usize) -> Self {
        Self { left: Cell::new(left), refused: Cell::new(false) }
    }

    /// What builds the document's value from any deserializer. It refuses a document over this
    /// budget or over `MAX_NESTING`, and a key that a mapping has twice.
    #[must_use]
    pub fn seed(&self) -> Seed<'_> {
        Seed { budget: self, depth: 0, keys: None }
    }

    /// Whether a well-formed document was refused by the rules of `seed`.
    #[must_use]
    pub fn has_refused(&self) -> bool {
        self.refused.get()
    }

    fn charge<E: de::Error>(&self, cost: usize) -> Result<(), E> {
        match self.left.get().checked_sub(cost) {
            Some(left) => self.left.set(left),
            None => {
                return Err(
                    self.refuse("too large once its aliases are expanded and its keys printed")
                );
            }
        }
        Ok(())
    }

    fn refuse<E: de::Error>(&self, why: impl fmt::Display) -> E {
        self.refused.set(true);
        E::custom(why)
    }
}

/// Builds one `Value`; see [`Budget::seed`].
#[derive(Debug, Clone, Copy)]
pub struct Seed<'a> {
    budget: &'a Budget,
    depth: usize,
    /// Set where the value is a mapping's key: the keys before it.
    keys: Option<&'a HashSet<Box<str>>>,
}

impl Seed<'_> {
    fn enter<E: de::Error>(self) -> Result<Self, E> {
        self.budget.charge(1)?;
        if self.depth == MAX_NESTING {
            return Err(self.budget.refuse(format_args!("nested over {MAX_NESTING} levels deep")));
        }
        Ok(Self { depth: self.depth + 1, keys: None, ..self })
    }

    fn scalar<E: de::Error>(self, cost: usize, value: impl FnOnce() -> Value) -> Result<Value, E> {
        self.budget.charge(cost)?;
        self.checked(value())
    }

    /// Refuses a key here, not where the mapping is built, so that the format's own position of the
    /// error is the key's.
    fn checked<E: de::Error>(self, value: Value) -> Result<Value, E> {
        let Some(keys) = self.keys else { return Ok(value) };
        let key = value.printed();
        if value.as_text().is_none() {
            self.budget.charge(key.len())?;
        }
        if keys.contains(&key) {
            let shown = super::text::shown(&key);
            return Err(self.budget.refuse(format_args!("the key {shown} is there twice")));
        }
        Ok(Value::Text(key))
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        self.scalar(1, || Value::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Value, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_bool<E: de::Error>(self, b: bool) -> Result<Value, E> {
        self.scalar(1, || Value::Bool(b))
    }

    fn visit_i64<E: de::Error>(self, n: i64) -> Result<Value, E> {
        self.scalar(1, || Value::Int(n))
    }

    fn visit_u64<E: de::Error>(self, n: u64) -> Result<Value, E> {
        self.scalar(1, || i64::try_from(n).map_or(Value::UInt(n), Value::Int))
    }

    fn visit_i128<E: de::Error>(self, n: i128) -> Result<Value, E> {
        self.visit_str(&n.to_string())
    }

    fn visit_u128<E: de::Error>(self, n: u128) -> Result<Value, E> {
        self.visit_str(&n.to_string())
    }

    fn visit_f64<E: de::Error>(self, n: f64) -> Result<Value, E> {
        if n.is_finite() {
            return self.scalar(1, || Value::Float(n));
        }
        self.visit_str(match n {
            f64::INFINITY => ".inf",
            f64::NEG_INFINITY => "-.inf",
            _ => ".nan",
        })
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Value, E> {
        self.scalar(text.len() + 1, || Value::Text(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inside = self.enter()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(inside)? {
            list.push(item);
        }
        self.checked(Value::List(list.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let inside = self.enter()?;
        let mut keys = HashSet::new();
        let mut map = Vec::new();
        while let Some(key) = entries.next_key_seed(Seed { keys: Some(&keys), ..inside })? {
            let key = key.printed();
            keys.insert(key.clone());
            map.push((key, entries.next_value_seed(inside)?));
        }
        self.checked(Value::Map(map.into()))
    }

    /// A tagged value of YAML: its content, the tag dropped.
    fn visit_enum<A: EnumAccess<'de>>(self, tagged: A) -> Result<Value, A::Error> {
        let (IgnoredAny, content) = tagged.variant()?;
        content.newtype_variant_seed(self)
    }
}

#[cfg(test)]
mod tests {
    use super::Value;

    fn text(text: &str) -> Value {
        Value::Text(text.into())
    }

    #[test]
    fn prints_scalars_bare_and_containers_as_json() {
        let list = Value::List([Value::Null, text("a\"\u{1}\n"), Value::Float(1.0)].into());
        let map = Value::Map([("k".into(), list), ("n".into(), Value::Int(-1))].into());
        for (value, printed) in [
            (Value::Null, "null"),
            (Value::Bool(true), "true"),
            (Value::UInt(u64::MAX), "18446744073709551615"),
            (Value::Float(1e300), "1e300"),
            (text("a\"b"), "a\"b"),
            (map, "{\"k\":[null,\"a\\\"\\u0001\\n\",1.0],\"n\":-1}"),
        ] {
            assert_eq!(&*value.printed(), printed);
        }
    }
}
