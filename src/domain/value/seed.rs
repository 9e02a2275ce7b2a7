//! Builds a `Value` from any serde format, and refuses what would cost too much to hold.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, EnumAccess, IgnoredAny};
use serde::de::{MapAccess, SeqAccess, VariantAccess, Visitor};

use super::Value;
use crate::domain::limits::MAX_NESTING;
use crate::domain::text;

/// What one document may still cost. Text costs its bytes + 1, everything else 1; a key that is no
/// text costs the bytes that it is printed in, too, since printing keys within keys doubles them.
#[derive(Debug)]
pub struct Budget {
    left: Cell<usize>,
    refusal: RefCell<Option<String>>,
}

impl Budget {
    /// A budget for one document.
    #[must_use]
    pub fn new(left: usize) -> Self {
        Self { left: Cell::new(left), refusal: RefCell::default() }
    }

    /// What builds the document's value from any deserializer. It refuses a document over this
    /// budget or over `MAX_NESTING`, and a key that a mapping has twice.
    #[must_use]
    pub fn seed(&self) -> Seed<'_> {
        Seed { budget: self, depth: 0, keys: None }
    }

    /// Why a well-formed document was refused by the rules of `seed`, if it was.
    #[must_use]
    pub fn into_refusal(self) -> Option<String> {
        self.refusal.into_inner()
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
        let why = why.to_string();
        self.refusal.replace(Some(why.clone()));
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
            let shown = text::shown(&key);
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
