//! The generated types of `proto/caproot/v1`. Only `rpc` and the orchestrator's side may use them.
#![allow(missing_docs, clippy::pedantic, unreachable_pub, unused_qualifications)]

include!(concat!(env!("OUT_DIR"), "/caproot.rs"));

/// The serialized `FileDescriptorSet` of the service and everything it imports, comments included.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/caproot.v1.bin"));
