//! Frontmatter of a skill as JSON for hosts, with hidden characters escaped.

use caproot_core::proto::caproot::v1::Skill;
use caproot_core::text::escape_hidden_chars;
use prost_types::value::Kind;
use serde_json::{Map, Value};

/// Largest integer up to which a `double` is exact.
const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_992.0;

/// Returns a field of the frontmatter that is text, unless the text is empty.
pub fn text_field<'a>(skill: &'a Skill, key: &str) -> Option<&'a str> {
    match &skill.frontmatter.as_ref()?.fields.get(key)?.kind {
        Some(Kind::StringValue(text)) if !text.is_empty() => Some(text),
        _ => None,
    }
}

/// Returns all fields of the frontmatter except the name and the description.
pub fn extra_fields(skill: &Skill) -> Map<String, Value> {
    let mut fields = skill
        .frontmatter
        .as_ref()
        .map_or_else(Map::new, struct_json);
    fields.remove("name");
    fields.remove("description");
    fields
}

/// The recursion is bounded: protobuf decoders reject deep nesting.
fn struct_json(fields: &prost_types::Struct) -> Map<String, Value> {
    fields
        .fields
        .iter()
        .map(|(key, value)| (escape_hidden_chars(key).into_owned(), value_json(value)))
        .collect()
}

fn value_json(value: &prost_types::Value) -> Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(truth)) => Value::Bool(*truth),
        Some(Kind::StringValue(text)) => Value::String(escape_hidden_chars(text).into_owned()),
        Some(Kind::NumberValue(number)) => number_json(*number),
        Some(Kind::StructValue(fields)) => Value::Object(struct_json(fields)),
        Some(Kind::ListValue(list)) => list.values.iter().map(value_json).collect(),
    }
}

/// Converts whole numbers without a decimal point, as the author wrote them.
fn number_json(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() <= MAX_SAFE_INTEGER {
        #[allow(clippy::cast_possible_truncation)] // The number is whole and in range.
        let whole = number as i64;
        return whole.into();
    }
    // A number that is not finite becomes null.
    number.into()
}

#[cfg(test)]
mod tests {
    use super::{extra_fields, text_field};
    use crate::agent::mcp::view::tests::skill;
    use caproot_core::proto::caproot::v1::Skill;
    use prost_types::value::Kind;
    use prost_types::{ListValue, Struct, Value};
    use serde_json::json;

    fn value(kind: Kind) -> Value {
        Value { kind: Some(kind) }
    }

    /// Returns a skill with an additional field.
    fn skill_with(key: &str, kind: Kind) -> Skill {
        let mut skill = skill("skill://r/a", "a");
        let fields = &mut skill.frontmatter.as_mut().expect("frontmatter").fields;
        fields.insert(key.to_owned(), value(kind));
        skill
    }

    #[test]
    fn fields_keep_their_values() {
        let values = [1.0, -2.0, 2.5, 1e300].map(|n| value(Kind::NumberValue(n)));
        let list = Kind::ListValue(ListValue {
            values: values.into(),
        });
        let mut skill = skill_with("list", list);
        let fields = &mut skill.frontmatter.as_mut().expect("frontmatter").fields;
        fields.insert("none".into(), value(Kind::NullValue(0)));
        let text = value(Kind::StringValue("a\u{202e}".into()));
        let inner = [
            ("yes".to_owned(), value(Kind::BoolValue(true))),
            ("\u{200b}".to_owned(), text),
        ];
        let inner = Struct {
            fields: inner.into_iter().collect(),
        };
        fields.insert("map".into(), value(Kind::StructValue(inner)));

        assert_eq!(text_field(&skill, "description"), Some("Does  it."));
        let expected = json!({"list": [1, -2, 2.5, 1e300], "none": null,
            "map": {"yes": true, r"\u{200b}": r"a\u{202e}"}});
        assert_eq!(serde_json::Value::Object(extra_fields(&skill)), expected);
    }

    #[test]
    fn an_empty_field_is_no_text() {
        let number = skill_with("name", Kind::NumberValue(1.0));
        let empty = skill_with("name", Kind::StringValue(String::new()));
        assert_eq!(text_field(&number, "name"), None);
        assert_eq!(text_field(&empty, "name"), None);
        assert_eq!(text_field(&Skill::default(), "name"), None);
    }
}
