//! Proto3 JSON of the service's messages in both directions, by the descriptors of the build.

use super::message_cost::measure;
use caproot_core::proto::caproot::v1::{ListSkillsResponse, Plugin, ResolveRootsResponse, Skill};
use caproot_core::proto::{FILE_DESCRIPTOR_SET, NamedMessage};
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use serde::ser::{Error as _, SerializeSeq as _};
use serde::{Serialize, Serializer};
use std::sync::LazyLock;

/// Maximum number of values of a message in JSON: messages, including those of
/// `google.protobuf.Struct`.
const MAX_VALUES: usize = 65_536;

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("the descriptors of the build are valid")
});

fn descriptor<M: NamedMessage>() -> MessageDescriptor {
    let name = format!("caproot.v1.{}", M::NAME);
    POOL.get_message_by_name(&name)
        .expect("the descriptors of the build contain every message")
}

/// Error of a conversion from or to JSON.
#[derive(Debug, thiserror::Error)]
pub enum MessageJsonError {
    /// The JSON is not of the message.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// The message is nested more deeply than decoders accept.
    #[error("{0}")]
    Decode(#[from] prost::DecodeError),
    /// The message has too many values: a value with its descriptor takes about 1 KiB.
    #[error("a message has over {MAX_VALUES} values, too many for JSON; print it as text")]
    TooManyValues,
}

/// Returns the message with its descriptor. Serde serializes it as proto3 JSON. Fails only if the
/// message is nested more deeply than decoders accept.
pub fn to_dynamic<M: NamedMessage>(message: &M) -> Result<DynamicMessage, MessageJsonError> {
    let bytes = message.encode_to_vec();
    Ok(DynamicMessage::decode(descriptor::<M>(), &*bytes)?)
}

/// Returns a message with a `google.protobuf.Struct` like [`to_dynamic`]. Fails if the message has
/// over 65,536 values.
pub fn to_limited_dynamic<M: NamedMessage>(
    message: &M,
) -> Result<DynamicMessage, MessageJsonError> {
    let cost = measure::<M>(&message.encode_to_vec(), usize::MAX);
    if cost.is_ok_and(|cost| cost.messages > MAX_VALUES) {
        return Err(MessageJsonError::TooManyValues);
    }
    to_dynamic(message)
}

/// List of skills that serde serializes as proto3 JSON, one skill after the other. The descriptors of
/// all skills together would take much more memory than the skills.
#[derive(Debug, Serialize)]
pub struct SkillListJson<'a> {
    #[serde(
        skip_serializing_if = "<[_]>::is_empty",
        serialize_with = "serialize_messages"
    )]
    skills: &'a [Skill],
    #[serde(flatten)]
    rest: DynamicMessage,
}

impl<'a> SkillListJson<'a> {
    /// Fails if the list without its skills has no JSON form.
    pub fn new(list: &'a ListSkillsResponse) -> Result<Self, MessageJsonError> {
        let rest = ListSkillsResponse {
            skills: Vec::new(),
            roots: list.roots.clone(),
            warnings: list.warnings.clone(),
            diagnostics: list.diagnostics.clone(),
            next_page_token: list.next_page_token.clone(),
            truncated: list.truncated,
            epoch: list.epoch.clone(),
            revision: list.revision,
            resume_token: list.resume_token.clone(),
        };
        Ok(Self {
            skills: &list.skills,
            rest: to_dynamic(&rest)?,
        })
    }
}

/// Resolved roots that serde serializes as proto3 JSON, one plugin after the other.
#[derive(Debug, Serialize)]
pub struct ResolvedRootsJson {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    roots: Vec<ResolvedRootJson>,
    #[serde(flatten)]
    rest: DynamicMessage,
}

#[derive(Debug, Serialize)]
struct ResolvedRootJson {
    #[serde(flatten)]
    rest: DynamicMessage,
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        serialize_with = "serialize_messages"
    )]
    plugins: Vec<Plugin>,
}

impl ResolvedRootsJson {
    /// Fails if the response without its plugins has no JSON form.
    pub fn new(mut response: ResolveRootsResponse) -> Result<Self, MessageJsonError> {
        let mut roots = Vec::with_capacity(response.roots.len());
        for mut root in std::mem::take(&mut response.roots) {
            let plugins = std::mem::take(&mut root.plugins);
            let rest = to_dynamic(&root)?;
            roots.push(ResolvedRootJson { rest, plugins });
        }
        let rest = to_dynamic(&response)?;
        Ok(Self { roots, rest })
    }
}

fn serialize_messages<M: NamedMessage, S: Serializer>(
    messages: &[M],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut list = serializer.serialize_seq(Some(messages.len()))?;
    for message in messages {
        list.serialize_element(&to_limited_dynamic(message).map_err(S::Error::custom)?)?;
    }
    list.end()
}

/// Reads proto3 JSON. Unknown fields are rejected.
pub fn parse<M: NamedMessage>(value: serde_json::Value) -> Result<M, MessageJsonError> {
    Ok(DynamicMessage::deserialize(descriptor::<M>(), value)?.transcode_to()?)
}
