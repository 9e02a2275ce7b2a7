//! Compact encoding of a value in one allocation, a few bytes larger than its text. The daemon
//! keeps thousands of values for its whole lifetime and rarely reads them.

use super::DynamicValue;

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const INT: u8 = 3;
const UINT: u8 = 4;
const FLOAT: u8 = 5;
const TEXT: u8 = 6;
const LIST: u8 = 7;
const MAP: u8 = 8;

/// Decoded view of an encoded value. `ValueRef::decode(&encode(v)).to_value() == v`.
#[derive(Debug, Clone)]
#[allow(missing_docs)] // documented by `DynamicValue`
pub enum ValueRef<'a> {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Float(f64),
    Text(&'a str),
    List(CompactItems<'a>),
    Map(CompactEntries<'a>),
}

/// Iterator over the items of an encoded list, with the bytes of the remaining items.
#[derive(Debug, Clone)]
pub struct CompactItems<'a>(pub(crate) &'a [u8]);

/// Iterator over the entries of an encoded mapping, with the bytes of the remaining entries.
#[derive(Debug, Clone)]
pub struct CompactEntries<'a>(pub(crate) &'a [u8]);

/// Encodes a value.
#[must_use]
pub fn encode(value: &DynamicValue) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.wire_size());
    encode_into(value, &mut out);
    out
}

/// Appends an encoded value to `out`.
pub fn encode_into(value: &DynamicValue, out: &mut Vec<u8>) {
    match value {
        DynamicValue::Null => out.push(NULL),
        DynamicValue::Bool(b) => out.push(if *b { TRUE } else { FALSE }),
        DynamicValue::Int(n) => encode_number(INT, n.to_le_bytes(), out),
        DynamicValue::UInt(n) => encode_number(UINT, n.to_le_bytes(), out),
        DynamicValue::Float(n) => encode_number(FLOAT, n.to_le_bytes(), out),
        DynamicValue::Text(text) => encode_text_value(text, out),
        DynamicValue::List(items) => encode_container(LIST, out, |out| {
            items.iter().for_each(|item| encode_into(item, out));
        }),
        DynamicValue::Map(entries) => encode_container(MAP, out, |out| {
            for (key, value) in entries {
                encode_text(key, out);
                encode_into(value, out);
            }
        }),
    }
}

fn encode_number(tag: u8, bytes: [u8; 8], out: &mut Vec<u8>) {
    out.push(tag);
    out.extend_from_slice(&bytes);
}

/// Appends an encoded text, such as an item of [`CompactItems`].
pub fn encode_text_value(text: &str, out: &mut Vec<u8>) {
    out.push(TEXT);
    encode_text(text, out);
}

/// Appends the length of a text as a varint (seven bits per byte, lowest first), and the text. Such a text
/// and a value are an entry of [`CompactEntries`].
pub fn encode_text(text: &str, out: &mut Vec<u8>) {
    let mut left = text.len();
    while left > 0x7f {
        out.push(0x80 | left.to_le_bytes()[0]);
        left >>= 7;
    }
    out.push(left.to_le_bytes()[0]);
    out.extend_from_slice(text.as_bytes());
}

fn encode_container(tag: u8, out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    let at = out.len();
    out.extend_from_slice(&[0; 8]);
    fill(out);
    let len = (out.len() - at - 8) as u64;
    out[at..at + 8].copy_from_slice(&len.to_le_bytes());
}

impl<'a> ValueRef<'a> {
    /// Decodes a value from [`encode`].
    #[must_use]
    pub fn decode(encoded: &'a [u8]) -> Self {
        decode_value(&mut { encoded })
    }

    /// Converts the view to an owned value.
    #[must_use]
    pub fn to_value(self) -> DynamicValue {
        match self {
            Self::Null => DynamicValue::Null,
            Self::Bool(b) => DynamicValue::Bool(b),
            Self::Int(n) => DynamicValue::Int(n),
            Self::UInt(n) => DynamicValue::UInt(n),
            Self::Float(n) => DynamicValue::Float(n),
            Self::Text(text) => DynamicValue::Text(text.into()),
            Self::List(items) => DynamicValue::List(items.map(Self::to_value).collect()),
            Self::Map(entries) => {
                let entries = entries.map(|(key, value)| (key.into(), value.to_value()));
                DynamicValue::Map(entries.collect())
            }
        }
    }

    /// Returns the text if the value is a text.
    #[must_use]
    pub fn into_text(self) -> Option<&'a str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the entries; none if the value is not a mapping.
    #[must_use]
    pub fn entries(self) -> CompactEntries<'a> {
        match self {
            Self::Map(entries) => entries,
            _ => CompactEntries(&[]),
        }
    }
}

impl<'a> Iterator for CompactItems<'a> {
    type Item = ValueRef<'a>;

    fn next(&mut self) -> Option<ValueRef<'a>> {
        (!self.0.is_empty()).then(|| decode_value(&mut self.0))
    }
}

impl<'a> Iterator for CompactEntries<'a> {
    type Item = (&'a str, ValueRef<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        (!self.0.is_empty()).then(|| (decode_text(&mut self.0), decode_value(&mut self.0)))
    }
}

/// Decodes the first value of `bytes` and advances `bytes`. The input is always from
/// [`encode_into`].
fn decode_value<'a>(bytes: &mut &'a [u8]) -> ValueRef<'a> {
    let tag = take_bytes(bytes, 1).first().copied().unwrap_or(NULL);
    match tag {
        FALSE | TRUE => ValueRef::Bool(tag == TRUE),
        INT => ValueRef::Int(i64::from_le_bytes(take_eight_bytes(bytes))),
        UINT => ValueRef::UInt(u64::from_le_bytes(take_eight_bytes(bytes))),
        FLOAT => ValueRef::Float(f64::from_le_bytes(take_eight_bytes(bytes))),
        TEXT => ValueRef::Text(decode_text(bytes)),
        LIST => ValueRef::List(CompactItems(decode_container(bytes))),
        MAP => ValueRef::Map(CompactEntries(decode_container(bytes))),
        _ => ValueRef::Null,
    }
}

fn decode_text<'a>(bytes: &mut &'a [u8]) -> &'a str {
    let mut len = 0;
    let mut shift = 0;
    while let Some((byte, rest)) = bytes.split_first() {
        *bytes = rest;
        len |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
        shift += 7;
    }
    std::str::from_utf8(take_bytes(bytes, len)).unwrap_or_default()
}

fn decode_container<'a>(bytes: &mut &'a [u8]) -> &'a [u8] {
    let len = usize::try_from(u64::from_le_bytes(take_eight_bytes(bytes))).unwrap_or(usize::MAX);
    take_bytes(bytes, len)
}

fn take_eight_bytes(bytes: &mut &[u8]) -> [u8; 8] {
    take_bytes(bytes, 8).try_into().unwrap_or_default()
}

fn take_bytes<'a>(bytes: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(len.min(bytes.len()));
    *bytes = rest;
    taken
}

#[cfg(test)]
mod tests {
    use super::{ValueRef, encode};
    use crate::daemon::model::DynamicValue;
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = DynamicValue> {
        let scalar = prop_oneof![
            Just(DynamicValue::Null),
            any::<bool>().prop_map(DynamicValue::Bool),
            any::<i64>().prop_map(DynamicValue::Int),
            any::<u64>().prop_map(DynamicValue::UInt),
            any::<f64>()
                .prop_filter("finite", |n| n.is_finite())
                .prop_map(DynamicValue::Float),
            ".{0,300}".prop_map(|text| DynamicValue::Text(text.into())),
        ];
        scalar.prop_recursive(4, 40, 6, |inner| {
            let list = proptest::collection::vec(inner.clone(), 0..6);
            let map = proptest::collection::vec((".{0,12}", inner), 0..6);
            prop_oneof![
                list.prop_map(|items| DynamicValue::List(items.into())),
                map.prop_map(|entries| {
                    DynamicValue::Map(entries.into_iter().map(|(k, v)| (k.into(), v)).collect())
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn decoding_reverses_encoding(value in value()) {
            prop_assert_eq!(ValueRef::decode(&encode(&value)).to_value(), value);
        }
    }
}
