//! Encoding of protobuf fields without an intermediate message, which is several times faster for
//! lists of thousands of skills. Source: protobuf.dev, "Encoding".

use crate::model::DynamicValue;
use crate::model::value::compact::{CompactEntries, ValueRef, encode};
use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_types::Struct;

/// Largest integer up to which all integers are exact in an `f64`.
const MAX_EXACT_INTEGER: u64 = 1 << 53;

/// Writes a text, unless it is empty.
pub fn write_text(number: u32, text: &str, out: &mut Vec<u8>) {
    if !text.is_empty() {
        write_repeated_text(number, text, out);
    }
}

/// Writes a text even if it is empty, as an element of a repeated field.
pub fn write_repeated_text(number: u32, text: &str, out: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

/// Writes an unsigned number, even if it is 0.
pub fn write_number(number: u32, value: u64, out: &mut Vec<u8>) {
    encode_key(number, WireType::Varint, out);
    encode_varint(value, out);
}

/// Writes a message with the fields that `fill` writes.
pub fn write_message(number: u32, out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    encode_key(number, WireType::LengthDelimited, out);
    let start = out.len();
    fill(out);
    // The length precedes the fields but is known only after writing them.
    let len = out.len() - start;
    encode_varint(len as u64, out);
    let prefix = out.len() - start - len;
    out[start..].rotate_right(prefix);
}

/// Writes a mapping as a `google.protobuf.Struct`. Other values give an empty struct.
pub fn write_struct(number: u32, value: ValueRef<'_>, out: &mut Vec<u8>) {
    write_message(number, out, |out| {
        if let ValueRef::Map(entries) = value {
            write_struct_fields(entries, out);
        }
    });
}

/// Converts a mapping to a `google.protobuf.Struct`. Other values give an empty struct.
pub fn to_struct(value: &DynamicValue) -> Struct {
    let (compact, mut bytes) = (encode(value), Vec::new());
    if let ValueRef::Map(entries) = ValueRef::decode(&compact) {
        write_struct_fields(entries, &mut bytes);
    }
    Struct::decode(&*bytes).expect("the encoder writes valid messages")
}

fn write_struct_fields(entries: CompactEntries<'_>, out: &mut Vec<u8>) {
    for (key, value) in entries {
        write_message(1, out, |out| {
            write_text(1, key, out);
            write_message(2, out, |out| write_value(value, out));
        });
    }
}

/// Writes a `google.protobuf.Value`.
fn write_value(value: ValueRef<'_>, out: &mut Vec<u8>) {
    let double = |value: f64, out: &mut Vec<u8>| {
        encode_key(2, WireType::SixtyFourBit, out);
        out.extend_from_slice(&value.to_le_bytes());
    };
    match value {
        ValueRef::Null => write_number(1, 0, out),
        ValueRef::Bool(b) => write_number(4, b.into(), out),
        // Integers up to 2^53 are exact in an `f64`.
        #[allow(clippy::cast_precision_loss)]
        ValueRef::Int(n) if n.unsigned_abs() <= MAX_EXACT_INTEGER => double(n as f64, out),
        ValueRef::Int(n) => write_repeated_text(3, &n.to_string(), out),
        ValueRef::UInt(n) => write_repeated_text(3, &n.to_string(), out),
        ValueRef::Float(x) if x.is_finite() => double(x, out),
        ValueRef::Float(x) => write_repeated_text(3, &x.to_string(), out),
        ValueRef::Text(text) => write_repeated_text(3, text, out),
        ValueRef::Map(_) => write_struct(5, value, out),
        ValueRef::List(items) => write_message(6, out, |out| {
            for item in items {
                write_message(1, out, |out| write_value(item, out));
            }
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::{to_struct, write_struct};
    use crate::model::DynamicValue;
    use crate::model::value::compact::{ValueRef, encode};
    use crate::parse::json;
    use prost::Message as _;
    use prost_types::{ListValue, Struct, Value as Wire, value::Kind};

    #[derive(Clone, PartialEq, prost::Message)]
    struct Holder {
        #[prost(message, optional, tag = "24")]
        held: Option<Struct>,
    }

    fn read_back(value: &DynamicValue) -> Struct {
        let mut bytes = Vec::new();
        write_struct(24, ValueRef::decode(&encode(value)), &mut bytes);
        let holder = Holder::decode(&*bytes).expect("valid message");
        assert_eq!(holder.encoded_len(), bytes.len(), "no unknown fields");
        let held = holder.held.expect("field is present");
        assert_eq!(held, to_struct(value));
        held
    }

    #[test]
    fn every_kind_of_value() {
        let long = "x".repeat(300);
        let text = format!(
            r#"{{"null":null,"yes":true,"no":false,"one":1,"half":0.5,"big":18446744073709551615,
               "small":-9007199254740993,"":"","list":[[],{{}},"{long}"],"deep":{{"a":{{"b":[1]}}}}}}"#
        );
        let value = json::parse(text.as_bytes()).expect("JSON");
        let mut read = read_back(&value);
        let mut field = |key: &str| read.fields.remove(key).and_then(|value| value.kind);
        let wire = |kind| Wire { kind: Some(kind) };
        let list = |kinds: Vec<Kind>| {
            Kind::ListValue(ListValue { values: kinds.into_iter().map(wire).collect() })
        };
        let map = |key: &str, kind| {
            Kind::StructValue(Struct { fields: [(key.to_owned(), wire(kind))].into() })
        };
        assert_eq!(field("null"), Some(Kind::NullValue(0)));
        assert_eq!(field("yes"), Some(Kind::BoolValue(true)));
        assert_eq!(field("no"), Some(Kind::BoolValue(false)));
        assert_eq!(field("one"), Some(Kind::NumberValue(1.0)));
        assert_eq!(field("half"), Some(Kind::NumberValue(0.5)));
        assert_eq!(field("big"), Some(Kind::StringValue(u64::MAX.to_string())));
        assert_eq!(field("small"), Some(Kind::StringValue("-9007199254740993".to_owned())));
        assert_eq!(field(""), Some(Kind::StringValue(String::new())));
        let empty = Kind::StructValue(Struct::default());
        assert_eq!(field("list"), Some(list(vec![list(vec![]), empty, Kind::StringValue(long)])));
        let deep = map("a", map("b", list(vec![Kind::NumberValue(1.0)])));
        assert_eq!(field("deep"), Some(deep));
        assert!(read.fields.is_empty(), "{read:?}");
        let infinite =
            DynamicValue::Map(Box::new([("x".into(), DynamicValue::Float(f64::INFINITY))]));
        let expected = Wire { kind: Some(Kind::StringValue("inf".to_owned())) };
        assert_eq!(read_back(&infinite).fields["x"], expected);
    }

    #[test]
    fn non_mapping_is_empty_struct() {
        assert_eq!(read_back(&DynamicValue::Null), Struct::default());
    }
}
