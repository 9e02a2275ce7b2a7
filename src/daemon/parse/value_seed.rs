//! Builds a [`DynamicValue`] from any serde format, with limits on memory and nesting.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt;

use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, IgnoredAny, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};

use super::budget;
use crate::daemon::model::limits::MAX_NESTING;
use crate::daemon::model::value::DynamicValue;
use caproot_core::text;

/// Memory budget of one document. A text costs its bytes + 1, any other value 1. A key that is not
/// a text also costs its bytes as text, because the conversion of nested keys doubles their size.
#[derive(Debug)]
pub struct DocumentBudget {
    remaining: Cell<usize>,
    rejection: RefCell<Option<String>>,
}

impl DocumentBudget {
    /// Creates the budget for one document.
    pub fn new(left: usize) -> Self {
        Self {
            remaining: Cell::new(left),
            rejection: RefCell::default(),
        }
    }

    /// Returns the seed that deserializes the document. The seed rejects a document over this
    /// budget or `MAX_NESTING`, and duplicate keys.
    pub fn seed(&self) -> ValueSeed<'_> {
        ValueSeed {
            budget: self,
            depth: 0,
            seen_keys: None,
        }
    }

    /// Returns the reason if the seed rejected a well-formed document.
    pub fn into_rejection(self) -> Option<String> {
        self.rejection.into_inner()
    }

    fn charge<E: de::Error>(&self, cost: usize) -> Result<(), E> {
        let Some(left) = self.remaining.get().checked_sub(cost) else {
            return Err(self.reject("too large after the expansion of aliases and keys"));
        };
        self.remaining.set(left);
        if !budget::charge_work(cost) {
            return Err(self.reject("the file takes too much work"));
        }
        Ok(())
    }

    fn reject<E: de::Error>(&self, why: impl fmt::Display) -> E {
        let message = why.to_string();
        self.rejection.replace(Some(message.clone()));
        E::custom(message)
    }
}

/// Builds one [`DynamicValue`]; see [`DocumentBudget::seed`].
#[derive(Debug, Clone, Copy)]
pub struct ValueSeed<'a> {
    budget: &'a DocumentBudget,
    depth: usize,
    /// Previous keys of the mapping if the value is a key, else `None`.
    seen_keys: Option<&'a HashSet<Box<str>>>,
}

impl ValueSeed<'_> {
    fn enter_container<E: de::Error>(self) -> Result<Self, E> {
        self.budget.charge(1)?;
        if self.depth == MAX_NESTING {
            let why = format_args!("nested over {MAX_NESTING} levels deep");
            return Err(self.budget.reject(why));
        }
        Ok(Self {
            depth: self.depth + 1,
            seen_keys: None,
            ..self
        })
    }

    fn build_scalar<E: de::Error>(
        self,
        cost: usize,
        value: impl FnOnce() -> DynamicValue,
    ) -> Result<DynamicValue, E> {
        self.budget.charge(cost)?;
        self.check_key(value())
    }

    /// Rejects a duplicate key. The check is here and not in `visit_map` so that the deserializer
    /// reports the position of the key.
    fn check_key<E: de::Error>(self, value: DynamicValue) -> Result<DynamicValue, E> {
        let Some(keys) = self.seen_keys else {
            return Ok(value);
        };
        let key = value.to_text();
        if value.as_text().is_none() {
            self.budget.charge(key.len())?;
        }
        if keys.contains(&key) {
            let shown = text::quote_word(&key);
            return Err(self.budget.reject(format_args!("duplicate key {shown}")));
        }
        Ok(DynamicValue::Text(key))
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = DynamicValue;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<DynamicValue, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = DynamicValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<DynamicValue, E> {
        self.build_scalar(1, || DynamicValue::Null)
    }

    // An empty document of YAML is a missing value.
    fn visit_none<E: de::Error>(self) -> Result<DynamicValue, E> {
        self.visit_unit()
    }

    fn visit_bool<E: de::Error>(self, b: bool) -> Result<DynamicValue, E> {
        self.build_scalar(1, || DynamicValue::Bool(b))
    }

    fn visit_i64<E: de::Error>(self, n: i64) -> Result<DynamicValue, E> {
        self.build_scalar(1, || DynamicValue::Int(n))
    }

    fn visit_u64<E: de::Error>(self, n: u64) -> Result<DynamicValue, E> {
        self.build_scalar(1, || {
            i64::try_from(n).map_or(DynamicValue::UInt(n), DynamicValue::Int)
        })
    }

    fn visit_i128<E: de::Error>(self, n: i128) -> Result<DynamicValue, E> {
        self.visit_str(&n.to_string())
    }

    fn visit_u128<E: de::Error>(self, n: u128) -> Result<DynamicValue, E> {
        self.visit_str(&n.to_string())
    }

    fn visit_f64<E: de::Error>(self, n: f64) -> Result<DynamicValue, E> {
        if n.is_finite() {
            return self.build_scalar(1, || DynamicValue::Float(n));
        }
        self.visit_str(match n {
            f64::INFINITY => ".inf",
            f64::NEG_INFINITY => "-.inf",
            _ => ".nan",
        })
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<DynamicValue, E> {
        self.build_scalar(text.len() + 1, || DynamicValue::Text(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<DynamicValue, A::Error> {
        let inside = self.enter_container()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(inside)? {
            list.push(item);
        }
        self.check_key(DynamicValue::List(list.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<DynamicValue, A::Error> {
        let inside = self.enter_container()?;
        let mut keys = HashSet::new();
        let mut map = Vec::new();
        while let Some(key) = entries.next_key_seed(ValueSeed {
            seen_keys: Some(&keys),
            ..inside
        })? {
            let key = key.to_text();
            keys.insert(key.clone());
            map.push((key, entries.next_value_seed(inside)?));
        }
        self.check_key(DynamicValue::Map(map.into()))
    }

    /// Builds a tagged YAML value without its tag.
    fn visit_enum<A: EnumAccess<'de>>(self, tagged: A) -> Result<DynamicValue, A::Error> {
        let (IgnoredAny, content) = tagged.variant()?;
        content.newtype_variant_seed(self)
    }
}
