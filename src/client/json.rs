//! The proto3 JSON of the service's messages, both ways, from the descriptors that the build wrote.

use crate::proto::FILE_DESCRIPTOR_SET;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use std::sync::LazyLock;

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(FILE_DESCRIPTOR_SET)
        .expect("the build wrote descriptors that can be read")
});

/// A message of `caproot.v1` that has a JSON form.
pub trait JsonMessage: Message + Default {
    /// Its name in the package.
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
    ReadResourceResponse,
    ResolveRootsResponse,
    SelectedCapabilityRoot,
    WatchSkillsResponse,
);

fn descriptor<M: JsonMessage>() -> MessageDescriptor {
    let name = format!("caproot.v1.{}", M::NAME);
    POOL.get_message_by_name(&name).expect("every message of the build is in its descriptors")
}

/// The message with its descriptor: it serializes, by serde, as proto3 JSON. Fails only on nesting
/// that no decoder takes.
pub fn to_dynamic<M: JsonMessage>(message: &M) -> Result<DynamicMessage, prost::DecodeError> {
    DynamicMessage::decode(descriptor::<M>(), message.encode_to_vec().as_slice())
}

/// Reads proto3 JSON; fields that the message does not have are refused.
pub fn parse<M: JsonMessage>(value: serde_json::Value) -> Result<M, String> {
    let message = DynamicMessage::deserialize(descriptor::<M>(), value);
    let message = message.map_err(|error| error.to_string())?;
    message.transcode_to().map_err(|error| error.to_string())
}
