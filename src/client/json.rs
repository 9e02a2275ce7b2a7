//! Proto3 JSON of the service's messages in both directions, by the descriptors of the build.

use crate::proto::FILE_DESCRIPTOR_SET;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use std::sync::LazyLock;

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("the descriptors of the build are valid")
});

/// Message of `caproot.v1` that has a JSON form.
pub trait JsonMessage: Message + Default {
    /// Name of the message in its package.
    const NAME: &'static str;
}

macro_rules! named {
    ($($name:ident),+ $(,)?) => {
        $(impl JsonMessage for crate::proto::caproot::v1::$name {
            const NAME: &'static str = stringify!($name);
        })+
    };
}

named!(
    GetExecutorResponse,
    ListResourcesResponse,
    ListRootsResponse,
    ListSkillsResponse,
    Plugin,
    PluginComponents,
    ReadResourceResponse,
    ResolveRootsResponse,
    SelectedCapabilityRoot,
    WatchSkillsResponse,
);

fn descriptor<M: JsonMessage>() -> MessageDescriptor {
    let name = format!("caproot.v1.{}", M::NAME);
    POOL.get_message_by_name(&name)
        .expect("the descriptors of the build contain every message")
}

/// Returns the message with its descriptor. Serde serializes it as proto3 JSON. Fails only if the
/// message is nested more deeply than decoders accept.
pub fn to_dynamic<M: JsonMessage>(message: &M) -> Result<DynamicMessage, prost::DecodeError> {
    DynamicMessage::decode(descriptor::<M>(), message.encode_to_vec().as_slice())
}

/// Reads proto3 JSON. Unknown fields are rejected.
pub fn parse<M: JsonMessage>(value: serde_json::Value) -> Result<M, String> {
    let message = DynamicMessage::deserialize(descriptor::<M>(), value);
    let message = message.map_err(|error| error.to_string())?;
    message.transcode_to().map_err(|error| error.to_string())
}
