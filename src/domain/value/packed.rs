//! A value in one piece of memory, a few bytes larger than the text in it: thousands of them are held
//! for as long as the daemon runs, and read now and then. Leaves what the piece belongs to, and for
//! how long it lives, to others.

use super::Value;

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const INT: u8 = 3;
const UINT: u8 = 4;
const FLOAT: u8 = 5;
const TEXT: u8 = 6;
const LIST: u8 = 7;
const MAP: u8 = 8;

/// A value that was packed. Law: `Part::of(&pack(v)).to_value() == v`.
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as of `Value`
pub enum Part<'a> {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Float(f64),
    Text(&'a str),
    List(Items<'a>),
    Map(Entries<'a>),
}

/// The items of a list that are left.
#[derive(Debug, Clone)]
pub struct Items<'a>(&'a [u8]);

/// The entries of a mapping that are left.
#[derive(Debug, Clone)]
pub struct Entries<'a>(&'a [u8]);

/// Packs a value.
#[must_use]
pub fn pack(value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.weight());
    append(value, &mut out);
    out
}

/// Packs a value behind others.
pub(in crate::domain) fn append(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(NULL),
        Value::Bool(b) => out.push(if *b { TRUE } else { FALSE }),
        Value::Int(n) => number(INT, n.to_le_bytes(), out),
        Value::UInt(n) => number(UINT, n.to_le_bytes(), out),
        Value::Float(n) => number(FLOAT, n.to_le_bytes(), out),
        Value::Text(text) => tagged_text(text, out),
        Value::List(items) => {
            container(LIST, out, |out| {
                for item in items {
                    append(item, out);
                }
            });
        }
        Value::Map(entries) => container(MAP, out, |out| {
            for (key, value) in entries {
                text(key, out);
                append(value, out);
            }
        }),
    }
}

/// Packs one entry of a mapping that [`Entries::of`] reads.
pub(in crate::domain) fn append_entry(key: &str, value: &str, out: &mut Vec<u8>) {
    text(key, out);
    tagged_text(value, out);
}

/// Packs one item of a list that [`Items::of`] reads.
pub(in crate::domain) fn append_item(item: &str, out: &mut Vec<u8>) {
    tagged_text(item, out);
}

fn number(tag: u8, bytes: [u8; 8], out: &mut Vec<u8>) {
    out.push(tag);
    out.extend_from_slice(&bytes);
}

fn tagged_text(value: &str, out: &mut Vec<u8>) {
    out.push(TEXT);
    text(value, out);
}

/// Its length, seven bits a byte, the lowest first, and itself.
fn text(text: &str, out: &mut Vec<u8>) {
    let mut left = text.len();
    while left > 0x7f {
        out.push(0x80 | low_bits(left));
        left >>= 7;
    }
    out.push(low_bits(left));
    out.extend_from_slice(text.as_bytes());
}

fn low_bits(n: usize) -> u8 {
    u8::try_from(n & 0x7f).expect("seven bits")
}

fn container(tag: u8, out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    let at = out.len();
    out.extend_from_slice(&[0; 8]);
    fill(out);
    let len = (out.len() - at - 8) as u64;
    out[at..at + 8].copy_from_slice(&len.to_le_bytes());
}

impl<'a> Part<'a> {
    /// What [`pack`] packed.
    #[must_use]
    pub fn of(packed: &'a [u8]) -> Self {
        take(&mut { packed })
    }

    /// The same as a tree.
    #[must_use]
    pub fn to_value(self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(b) => Value::Bool(b),
            Self::Int(n) => Value::Int(n),
            Self::UInt(n) => Value::UInt(n),
            Self::Float(n) => Value::Float(n),
            Self::Text(text) => Value::Text(text.into()),
            Self::List(items) => Value::List(items.map(Self::to_value).collect()),
            Self::Map(entries) => {
                Value::Map(entries.map(|(key, value)| (key.into(), value.to_value())).collect())
            }
        }
    }
}

impl<'a> Items<'a> {
    /// The items that lie in these bytes, one behind the other.
    pub(in crate::domain) fn of(packed: &'a [u8]) -> Self {
        Self(packed)
    }
}

impl<'a> Entries<'a> {
    /// The entries that lie in these bytes, one behind the other.
    pub(in crate::domain) fn of(packed: &'a [u8]) -> Self {
        Self(packed)
    }

    /// The bytes that are left.
    pub(in crate::domain) fn bytes(&self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Part<'a>;

    fn next(&mut self) -> Option<Part<'a>> {
        (!self.0.is_empty()).then(|| take(&mut self.0))
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = (&'a str, Part<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        (!self.0.is_empty()).then(|| (take_text(&mut self.0), take(&mut self.0)))
    }
}

/// Takes one value off the front. Only what [`append`] wrote is ever read.
fn take<'a>(bytes: &mut &'a [u8]) -> Part<'a> {
    let tag = cut(bytes, 1).first().copied().unwrap_or(NULL);
    match tag {
        FALSE | TRUE => Part::Bool(tag == TRUE),
        INT => Part::Int(i64::from_le_bytes(eight(bytes))),
        UINT => Part::UInt(u64::from_le_bytes(eight(bytes))),
        FLOAT => Part::Float(f64::from_le_bytes(eight(bytes))),
        TEXT => Part::Text(take_text(bytes)),
        LIST => Part::List(Items(take_container(bytes))),
        MAP => Part::Map(Entries(take_container(bytes))),
        _ => Part::Null,
    }
}

fn take_text<'a>(bytes: &mut &'a [u8]) -> &'a str {
    let (mut len, mut shift) = (0, 0);
    while let Some((byte, rest)) = bytes.split_first() {
        *bytes = rest;
        len |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
        shift += 7;
    }
    std::str::from_utf8(cut(bytes, len)).unwrap_or_default()
}

fn take_container<'a>(bytes: &mut &'a [u8]) -> &'a [u8] {
    let len = usize::try_from(u64::from_le_bytes(eight(bytes))).unwrap_or(usize::MAX);
    cut(bytes, len)
}

fn eight(bytes: &mut &[u8]) -> [u8; 8] {
    cut(bytes, 8).try_into().unwrap_or_default()
}

fn cut<'a>(bytes: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(len.min(bytes.len()));
    *bytes = rest;
    taken
}

#[cfg(test)]
mod tests {
    use super::{Part, pack};
    use crate::domain::Value;
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = Value> {
        let scalar = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(Value::Int),
            any::<u64>().prop_map(Value::UInt),
            any::<f64>().prop_filter("finite", |n| n.is_finite()).prop_map(Value::Float),
            ".{0,300}".prop_map(|text| Value::Text(text.into())),
        ];
        scalar.prop_recursive(4, 40, 6, |inner| {
            let list = proptest::collection::vec(inner.clone(), 0..6);
            let map = proptest::collection::vec((".{0,12}", inner), 0..6);
            prop_oneof![
                list.prop_map(|items| Value::List(items.into())),
                map.prop_map(|entries| {
                    Value::Map(entries.into_iter().map(|(k, v)| (k.into(), v)).collect())
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_unpacked_is_what_was_packed(value in value()) {
            prop_assert_eq!(Part::of(&pack(&value)).to_value(), value);
        }
    }
}
