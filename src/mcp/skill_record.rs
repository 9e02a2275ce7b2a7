//! Record of one skill.

use caproot_client::{ApprovedListing, approve_skill};
use caproot_core::lock::{ApprovedFiles, Lock};
use caproot_core::proto::caproot::v1::{NotOffered, Skill};
use caproot_core::text::escape_hidden_chars;
use prost_types::Struct;
use prost_types::value::Kind;
use serde_json::{Map, Number, Value, json};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

/// Largest integer up to which a `double` is exact.
const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_992.0;

/// Skill as the daemon lists it.
#[derive(Debug, Clone, PartialEq)]
pub struct SkillRecord {
    /// Index of its root in the selection.
    pub root_index: usize,
    /// Its handle.
    pub package: String,
    /// The handle of its SKILL.md.
    main_resource: String,
    /// Its qualified name.
    pub name: String,
    /// Description of the daemon.
    description: String,
    /// Digest of its SKILL.md. Empty if the SKILL.md is too large.
    pub digest: String,
    /// Size of its SKILL.md.
    pub size: u64,
    /// Frontmatter of the author. `None` without the fields that the standard requires.
    pub frontmatter: Option<AuthorFrontmatter>,
    /// Reason why the skill is not offered to models.
    pub not_offered: NotOffered,
    /// Whether a person may choose the skill.
    pub is_user_invocable: bool,
    /// Hash of the listed fields, without the size.
    pub listing_hash: u64,
    /// Approved files; `None` if the skill needs no approval.
    pub approved_files: Option<Arc<ApprovedFiles>>,
}

/// Frontmatter of a skill.
#[derive(Debug, Clone, PartialEq)]
pub struct AuthorFrontmatter {
    pub name: String,
    pub description: String,
    /// All fields as a JSON object. Text takes a fraction of the memory of the parsed form.
    json: Box<str>,
}

impl SkillRecord {
    /// Creates the record of a skill. `root` is the index of its root in the selection.
    pub fn from_skill(root: usize, skill: Skill) -> Self {
        let not_offered = skill.not_offered();
        let author = skill.frontmatter.and_then(AuthorFrontmatter::from_struct);
        let mut shown = DefaultHasher::new();
        (root, &skill.package, &skill.name, &skill.description).hash(&mut shown);
        author.as_ref().map(|author| &author.json).hash(&mut shown);
        Self {
            root_index: root,
            package: skill.package,
            main_resource: skill.main_resource,
            name: skill.name,
            description: skill.description,
            digest: skill.digest,
            size: skill.size_bytes,
            frontmatter: author,
            not_offered,
            is_user_invocable: skill.user_invocable,
            listing_hash: shown.finish(),
            approved_files: None,
        }
    }

    /// Returns the record with the texts of a lock. Returns `None` if the skill is not approved.
    pub fn approve(&self, lock: &Lock) -> Option<Self> {
        let listed = Skill {
            package: self.package.clone(),
            main_resource: self.main_resource.clone(),
            name: self.name.clone(),
            digest: self.digest.clone(),
            not_offered: self.not_offered.into(),
            ..Skill::default()
        };
        let ApprovedListing { skill, version } = approve_skill(lock, &listed)?;
        let bare_name = version.name.rsplit(':').next().unwrap_or_default();
        let author = AuthorFrontmatter {
            name: bare_name.to_owned(),
            description: skill.description.clone(),
            json: json!({ "name": bare_name, "description": skill.description })
                .to_string()
                .into(),
        };
        Some(Self {
            frontmatter: Some(author),
            approved_files: Some(Arc::new(version.files.clone())),
            ..Self::from_skill(self.root_index, skill)
        })
    }

    /// Removes the frontmatter, which is most of the text.
    pub fn without_frontmatter(self) -> Self {
        Self {
            frontmatter: None,
            ..self
        }
    }

    /// Returns the number of text bytes.
    pub fn text_bytes(&self) -> usize {
        let texts = [
            &self.package,
            &self.main_resource,
            &self.name,
            &self.description,
            &self.digest,
        ];
        let author = self.frontmatter.as_ref().map_or(0, |author| {
            author.name.len() + author.description.len() + author.json.len()
        });
        author + texts.map(String::len).iter().sum::<usize>()
    }

    /// Whether the skill is offered to models.
    pub fn is_offered(&self) -> bool {
        self.not_offered == NotOffered::Unspecified
    }

    /// Whether the skill is a prompt: only a person may choose the skill.
    pub fn is_prompt(&self) -> bool {
        self.is_user_invocable && self.not_offered == NotOffered::PeopleOnly
    }

    /// Returns the description: the frontmatter's if the record has the frontmatter.
    pub fn description(&self) -> &str {
        self.frontmatter
            .as_ref()
            .map_or(&self.description, |author| &author.description)
    }
}

impl AuthorFrontmatter {
    /// Returns `None` if the name or the description is missing or not text.
    fn from_struct(frontmatter: Struct) -> Option<Self> {
        let object = struct_json(frontmatter);
        Some(Self {
            name: non_empty_text(&object, "name")?,
            description: non_empty_text(&object, "description")?,
            json: Value::Object(object).to_string().into_boxed_str(),
        })
    }

    /// Returns all fields except the name and the description, with hidden characters escaped.
    pub fn extra_fields(&self) -> Map<String, Value> {
        let mut fields: Map<String, Value> = serde_json::from_str(&self.json).unwrap_or_default();
        fields.remove("name");
        fields.remove("description");
        if self.json.is_ascii() {
            fields
        } else {
            escape_hidden_fields(fields)
        }
    }
}

fn non_empty_text(object: &Map<String, Value>, key: &str) -> Option<String> {
    let text = object.get(key)?.as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}

fn escape_hidden_fields(fields: Map<String, Value>) -> Map<String, Value> {
    let mut escaped = Map::new();
    for (key, value) in fields {
        let key = escape_hidden_chars(&key).into_owned();
        escaped.insert(key, escape_hidden_values(value));
    }
    escaped
}

/// The recursion is bounded: protobuf decoders reject deep nesting.
fn escape_hidden_values(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(escape_hidden_chars(&text).into_owned()),
        Value::Array(items) => items.into_iter().map(escape_hidden_values).collect(),
        Value::Object(fields) => Value::Object(escape_hidden_fields(fields)),
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_)) => plain,
    }
}

fn struct_json(fields: Struct) -> Map<String, Value> {
    fields
        .fields
        .into_iter()
        .map(|(key, value)| (key, value_json(value.kind)))
        .collect()
}

/// The recursion is bounded: protobuf decoders reject deep nesting.
fn value_json(kind: Option<Kind>) -> Value {
    match kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(truth)) => Value::Bool(truth),
        Some(Kind::StringValue(text)) => Value::String(text),
        Some(Kind::NumberValue(number)) => number_json(number),
        Some(Kind::StructValue(fields)) => Value::Object(struct_json(fields)),
        Some(Kind::ListValue(list)) => list
            .values
            .into_iter()
            .map(|value| value_json(value.kind))
            .collect(),
    }
}

/// Converts whole numbers without a decimal point, as the author wrote them.
fn number_json(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() <= MAX_SAFE_INTEGER {
        #[allow(clippy::cast_possible_truncation)] // The number is whole and in range.
        let whole = number as i64;
        return Value::Number(Number::from(whole));
    }
    Number::from_f64(number).map_or(Value::Null, Value::Number)
}

#[cfg(test)]
pub(super) mod tests {
    use super::{Skill, SkillRecord};
    use caproot_client::root_id;
    use caproot_core::proto::caproot::v1::Authority;
    use prost_types::value::Kind;
    use prost_types::{ListValue, Struct, Value};
    use serde_json::json;

    fn value(kind: Kind) -> Value {
        Value { kind: Some(kind) }
    }

    fn text(text: &str) -> Value {
        value(Kind::StringValue(text.into()))
    }

    /// Returns a skill with this handle and this name in its frontmatter.
    pub(in crate::mcp) fn skill(package: &str, name: &str) -> Skill {
        let fields = [("name", text(name)), ("description", text("Does  it."))];
        let fields = fields
            .map(|(key, value)| (key.to_owned(), value))
            .into_iter()
            .collect();
        let id = root_id(package).expect("a handle").as_str().to_owned();
        Skill {
            authority: Some(Authority {
                kind: "executor".into(),
                id,
            }),
            package: package.into(),
            main_resource: format!("{package}/SKILL.md"),
            name: name.into(),
            description: "Does it.".into(),
            digest: "sha256:1".into(),
            user_invocable: true,
            frontmatter: Some(Struct { fields }),
            ..Skill::default()
        }
    }

    #[test]
    fn frontmatter_fields_keep_their_values() {
        let mut skill = skill("skill://r/a", "a");
        let fields = &mut skill.frontmatter.as_mut().expect("frontmatter").fields;
        let list = [1.0, -2.0, 2.5, 1e300]
            .map(|n| value(Kind::NumberValue(n)))
            .to_vec();
        fields.insert(
            "list".into(),
            value(Kind::ListValue(ListValue { values: list })),
        );
        fields.insert("none".into(), value(Kind::NullValue(0)));
        let inner = [("yes".to_owned(), value(Kind::BoolValue(true)))]
            .into_iter()
            .collect();
        fields.insert(
            "map".into(),
            value(Kind::StructValue(Struct { fields: inner })),
        );
        let entry = SkillRecord::from_skill(0, skill);
        assert_eq!(entry.description(), "Does  it.");
        let others = entry.frontmatter.expect("frontmatter").extra_fields();
        let expected = json!({"list": [1, -2, 2.5, 1e300], "none": null, "map": {"yes": true}});
        assert_eq!(serde_json::Value::Object(others), expected);
    }

    #[test]
    fn frontmatter_needs_name_and_description() {
        let bare = |key: &str| {
            let mut skill = skill("skill://r/a", "a");
            skill
                .frontmatter
                .as_mut()
                .expect("frontmatter")
                .fields
                .remove(key);
            SkillRecord::from_skill(0, skill)
        };
        assert!(bare("name").frontmatter.is_none() && bare("description").frontmatter.is_none());
        let full = SkillRecord::from_skill(0, skill("skill://r/a", "a"));
        let weight = full.text_bytes();
        let bare = full.without_frontmatter();
        assert_eq!(
            (bare.frontmatter.as_ref(), bare.description()),
            (None, "Does it.")
        );
        assert!(bare.text_bytes() < weight);
    }
}
