//! Memory of a message, computed from its bytes before they are decoded. An empty message takes two
//! bytes on the wire and hundreds in memory, so a limit of wire bytes alone is no limit of memory.
//!
//! The sizes come from the descriptors of the build. Each size is at least the size in memory of the
//! type that prost generates.

use caproot_core::proto::{FILE_DESCRIPTOR_SET, NamedMessage};
use prost::DecodeError;
use prost::Message as _;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};
use std::collections::HashMap;
use std::sync::LazyLock;

/// Maximum levels of nesting: the limit of prost.
const MAX_DEPTH: u32 = 100;
/// Header of an allocation, and its rounding.
const ALLOCATION_BYTES: usize = 32;
/// Size of a `String`, `Vec` or `BTreeMap`.
const CONTAINER_BYTES: usize = 24;
/// Size of a number, a flag or the tag of an enum, with its alignment.
const WORD_BYTES: usize = 8;
/// Number of entries of a node of a `BTreeMap`. A map with one entry has a whole node.
const MAP_NODE_ENTRIES: usize = 11;

static LAYOUTS: LazyLock<MessageLayouts> = LazyLock::new(MessageLayouts::from_descriptors);

/// Reason why the memory of a message is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CostError {
    /// The message takes more than the limit.
    OverLimit,
    /// The bytes are no protobuf message.
    Malformed,
}

impl From<DecodeError> for CostError {
    fn from(_: DecodeError) -> Self {
        Self::Malformed
    }
}

/// Memory of a decoded message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageCost {
    /// Bytes, including the type of the message itself.
    pub bytes: usize,
    /// Number of messages, including nested ones and entries of maps.
    pub messages: usize,
}

/// Returns the memory of the message in `bytes`. Stops at the first field over `max_bytes`.
pub fn measure<M: NamedMessage>(bytes: &[u8], max_bytes: usize) -> Result<MessageCost, CostError> {
    let index = LAYOUTS.by_name.get(&format!(".caproot.v1.{}", M::NAME));
    let index = *index.ok_or(CostError::Malformed)?;
    let mut walk = CostWalk {
        cost: MessageCost {
            bytes: LAYOUTS.messages[index].size,
            messages: 0,
        },
        max_bytes,
    };
    walk.add_message(index, bytes, 0)?;
    Ok(walk.cost)
}

/// Returns the memory of the message that was encoded to `bytes`.
pub fn encoded_memory<M: NamedMessage>(bytes: &[u8]) -> usize {
    measure::<M>(bytes, usize::MAX).map_or(usize::MAX, |cost| cost.bytes)
}

/// Layouts of all messages in memory.
struct MessageLayouts {
    messages: Vec<MessageLayout>,
    /// Index of each message by its full name with a leading dot.
    by_name: HashMap<String, usize>,
}

#[derive(Default)]
struct MessageLayout {
    /// Size of the type.
    size: usize,
    /// Fields by number. Numbers without a field are decoded to nothing.
    fields: Vec<Option<FieldLayout>>,
}

#[derive(Clone, Copy)]
struct FieldLayout {
    content: FieldContent,
    /// Memory of the first occurrence, besides the type of the message and the content.
    first: usize,
    /// Memory of each further occurrence.
    further: usize,
}

#[derive(Clone, Copy)]
enum FieldContent {
    /// Numbers, packed into one field if there are many.
    Number,
    /// Text or bytes.
    Text,
    /// Message with this index.
    Message(usize),
}

impl MessageLayouts {
    fn from_descriptors() -> Self {
        let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET)
            .expect("the descriptors of the build are valid");
        let mut descriptors = Vec::new();
        for file in &set.file {
            let prefix = format!(".{}", file.package());
            collect_messages(&prefix, &file.message_type, &mut descriptors);
        }

        let by_name: HashMap<_, _> = descriptors
            .iter()
            .enumerate()
            .map(|(index, (name, _))| (name.clone(), index))
            .collect();
        let sizes = TypeSizes {
            descriptors: &descriptors,
            by_name: &by_name,
        };
        let messages = descriptors
            .iter()
            .map(|(_, descriptor)| sizes.message_layout(descriptor))
            .collect();
        Self { messages, by_name }
    }
}

/// Collects messages with their nested messages, which include the entries of maps.
fn collect_messages<'a>(
    prefix: &str,
    messages: &'a [DescriptorProto],
    collected: &mut Vec<(String, &'a DescriptorProto)>,
) {
    for message in messages {
        let name = format!("{prefix}.{}", message.name());
        collect_messages(&name, &message.nested_type, collected);
        collected.push((name, message));
    }
}

/// Sizes of the generated types.
struct TypeSizes<'a> {
    descriptors: &'a [(String, &'a DescriptorProto)],
    by_name: &'a HashMap<String, usize>,
}

impl TypeSizes<'_> {
    fn message_layout(&self, message: &DescriptorProto) -> MessageLayout {
        let mut layout = MessageLayout {
            size: self.message_size(message),
            fields: Vec::new(),
        };
        for field in &message.field {
            let number = usize::try_from(field.number()).unwrap_or_default();
            if layout.fields.len() <= number {
                layout.fields.resize(number + 1, None);
            }
            layout.fields[number] = Some(self.field_layout(field));
        }
        layout
    }

    fn field_layout(&self, field: &FieldDescriptorProto) -> FieldLayout {
        let content = match field.r#type() {
            Type::String | Type::Bytes => FieldContent::Text,
            Type::Message | Type::Group => FieldContent::Message(self.message_index(field)),
            _ => FieldContent::Number,
        };

        let (first, further) = if field.label() != Label::Repeated {
            (0, 0)
        } else if let Some(entry) = self.map_entry(field) {
            // The nodes of a map are at least about half full.
            let size = self.message_size(entry);
            (MAP_NODE_ENTRIES * size + 2 * ALLOCATION_BYTES, 3 * size)
        } else {
            // A vector begins with four places, and doubles them.
            let size = self.element_size(field);
            (4 * size + ALLOCATION_BYTES, 2 * size)
        };

        FieldLayout {
            content,
            first,
            further,
        }
    }

    fn message_size(&self, message: &DescriptorProto) -> usize {
        let mut size = 0;
        let mut variants = vec![0; message.oneof_decl.len()];
        for field in &message.field {
            let is_list = field.label() == Label::Repeated;
            let field_size = if is_list {
                CONTAINER_BYTES
            } else {
                self.element_size(field)
            };
            // A field that is `optional` has a oneof of its own.
            match field.oneof_index.map(usize::try_from) {
                Some(Ok(index)) => variants[index] = field_size.max(variants[index]),
                _ => size += field_size,
            }
        }
        let tags = message.oneof_decl.len() * WORD_BYTES;
        size + tags + variants.iter().sum::<usize>()
    }

    /// Returns the size of one value of a field. A message has a tag, because it may be absent.
    fn element_size(&self, field: &FieldDescriptorProto) -> usize {
        match field.r#type() {
            Type::String | Type::Bytes => CONTAINER_BYTES,
            // No message contains itself without a list or a map between, so this ends.
            Type::Message | Type::Group => {
                let (_, message) = self.descriptors[self.message_index(field)];
                self.message_size(message) + WORD_BYTES
            }
            _ => WORD_BYTES,
        }
    }

    fn message_index(&self, field: &FieldDescriptorProto) -> usize {
        self.by_name[field.type_name()]
    }

    /// Returns the type of the entries, if the field is a map.
    fn map_entry(&self, field: &FieldDescriptorProto) -> Option<&DescriptorProto> {
        let index = *self.by_name.get(field.type_name())?;
        let (_, message) = self.descriptors[index];
        let is_entry = message
            .options
            .as_ref()
            .is_some_and(prost_types::MessageOptions::map_entry);
        is_entry.then_some(message)
    }
}

/// Sum over the fields of a message.
struct CostWalk {
    cost: MessageCost,
    max_bytes: usize,
}

impl CostWalk {
    /// Adds the fields of a message, besides the type of the message.
    fn add_message(&mut self, index: usize, mut bytes: &[u8], depth: u32) -> Result<(), CostError> {
        if depth > MAX_DEPTH {
            return Err(CostError::Malformed);
        }
        self.cost.messages += 1;
        let layout = &LAYOUTS.messages[index];
        // Fields that occurred, by number. A field over 63 counts as new each time.
        let mut occurred = 0_u64;

        while !bytes.is_empty() {
            let (number, wire_type) = decode_key(&mut bytes)?;
            let field = layout.fields.get(number as usize).copied().flatten();
            let Some(field) = field else {
                skip_field(wire_type, number, &mut bytes, DecodeContext::default())?;
                continue;
            };

            let bit = 1_u64.checked_shl(number).unwrap_or_default();
            let is_first = occurred & bit == 0;
            occurred |= bit;
            self.add_bytes(if is_first { field.first } else { field.further })?;

            if wire_type == WireType::LengthDelimited {
                // A length that does not fit is beyond the end, too.
                let len = usize::try_from(decode_varint(&mut bytes)?).unwrap_or(usize::MAX);
                let (content, rest) = bytes.split_at_checked(len).ok_or(CostError::Malformed)?;
                bytes = rest;
                self.add_content(field.content, content, depth)?;
            } else {
                skip_field(wire_type, number, &mut bytes, DecodeContext::default())?;
            }
        }
        Ok(())
    }

    fn add_content(
        &mut self,
        content: FieldContent,
        bytes: &[u8],
        depth: u32,
    ) -> Result<(), CostError> {
        match content {
            FieldContent::Text if bytes.is_empty() => Ok(()),
            FieldContent::Text => self.add_bytes(bytes.len() + ALLOCATION_BYTES),
            // A packed number takes at least one byte on the wire.
            FieldContent::Number => self.add_bytes(bytes.len() * 2 * WORD_BYTES),
            FieldContent::Message(index) => self.add_message(index, bytes, depth + 1),
        }
    }

    fn add_bytes(&mut self, bytes: usize) -> Result<(), CostError> {
        self.cost.bytes = self.cost.bytes.saturating_add(bytes);
        if self.cost.bytes > self.max_bytes {
            return Err(CostError::OverLimit);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{CostError, LAYOUTS, measure};
    use caproot_core::proto::MESSAGE_SIZES;
    use caproot_core::proto::caproot::v1::{ListSkillsResponse, Skill};
    use prost::Message as _;
    use prost_types::value::Kind;
    use prost_types::{ListValue, Struct, Value};

    fn layout_size(name: &str) -> usize {
        LAYOUTS.messages[LAYOUTS.by_name[name]].size
    }

    #[test]
    fn sizes_are_at_least_those_of_the_generated_types() {
        for (name, real) in MESSAGE_SIZES {
            let layout = layout_size(&format!(".caproot.v1.{name}"));
            assert!(layout >= *real, "{name}: {layout} {real}");
            // Much larger sizes would reject valid messages.
            assert!(layout <= 2 * real, "{name}: {layout} {real}");
        }
        assert!(layout_size(".google.protobuf.Value") >= size_of::<Value>());
        assert!(layout_size(".google.protobuf.Struct") >= size_of::<Struct>());
        assert!(layout_size(".google.protobuf.ListValue") >= size_of::<ListValue>());
    }

    #[test]
    fn empty_elements_cost_their_memory() {
        let page = ListSkillsResponse {
            skills: vec![Skill::default(); 1_000],
            ..ListSkillsResponse::default()
        };
        let bytes = page.encode_to_vec();
        assert_eq!(bytes.len(), 2_000);
        let cost = measure::<ListSkillsResponse>(&bytes, usize::MAX).expect("a message");
        assert!(cost.bytes >= 1_000 * size_of::<Skill>());
        assert_eq!(cost.messages, 1_001);
        let over = measure::<ListSkillsResponse>(&bytes, cost.bytes - 1);
        assert_eq!(over, Err(CostError::OverLimit));
    }

    /// A map with one entry has a whole node.
    #[test]
    fn maps_and_lists_cost_their_nodes() {
        let null = Value {
            kind: Some(Kind::NullValue(0)),
        };
        let map = Struct {
            fields: [("a".to_owned(), null.clone())].into(),
        };
        let maps = vec![
            Value {
                kind: Some(Kind::StructValue(map)),
            };
            1_000
        ];
        let list = Value {
            kind: Some(Kind::ListValue(ListValue { values: maps })),
        };
        let skill = Skill {
            frontmatter: Some(Struct {
                fields: [("list".to_owned(), list)].into(),
            }),
            ..Skill::default()
        };
        let cost = measure::<Skill>(&skill.encode_to_vec(), usize::MAX).expect("a message");
        let node = 11 * (size_of::<String>() + size_of::<Value>());
        assert!(
            cost.bytes >= 1_000 * (node + size_of::<Value>()),
            "{cost:?}"
        );
        assert_eq!(cost.messages, 1 + 1 + 1 + 1 + 1 + 1_000 * 4);
    }

    #[test]
    fn malformed_bytes_are_rejected() {
        let mut nested = Vec::new();
        for _ in 0..400 {
            // `ListValue` with one `Value`, which is a list.
            nested = length_delimited(&[0x0a], length_delimited(&[0x32], nested));
        }
        let value = length_delimited(&[0x32], nested);
        let entry = length_delimited(&[0x12], value);
        let frontmatter = length_delimited(&[0x0a], entry);
        let deep = length_delimited(&[0xc2, 0x01], frontmatter);
        assert!(Skill::decode(&*deep).is_err());
        for bytes in [&deep[..], &[0x0a, 5, 0], &[0x0a], &[0xff; 20]] {
            assert_eq!(
                measure::<Skill>(bytes, usize::MAX),
                Err(CostError::Malformed)
            );
        }
    }

    /// Returns a field with a content.
    fn length_delimited(key: &[u8], content: Vec<u8>) -> Vec<u8> {
        let mut bytes = key.to_vec();
        prost::encoding::encode_varint(content.len() as u64, &mut bytes);
        bytes.extend(content);
        bytes
    }
}
