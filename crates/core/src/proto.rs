//! Generated types of `proto/caproot/v1`, for the gRPC service and for clients. A program with its
//! own channel can use the generated client:
//!
//! ```no_run
//! use caproot_core::proto::caproot::v1::ListRootsRequest;
//! use caproot_core::proto::caproot::v1::capability_service_client::CapabilityServiceClient;
//! use tonic::transport::Endpoint;
//!
//! # async fn list_roots() -> Result<(), Box<dyn std::error::Error>> {
//! let channel = Endpoint::from_static("http://127.0.0.1:50051").connect().await?;
//! let mut service = CapabilityServiceClient::new(channel);
//! let published = service.list_roots(ListRootsRequest {}).await?.into_inner().roots;
//! assert_eq!(published[0].id, "demo");
//! # Ok(())
//! # }
//! ```
#![allow(
    missing_docs,
    clippy::pedantic,
    clippy::doc_lazy_continuation,
    clippy::doc_overindented_list_items,
    unused_qualifications
)]

use prost::Message as _;
use prost_types::FileDescriptorSet;
use std::collections::BTreeMap;

include!(concat!(env!("OUT_DIR"), "/caproot.rs"));

/// Generated types of `proto/caproot/link/v1`, for executors that dial out.
pub mod link {
    include!(concat!(env!("OUT_DIR"), "/caproot_link.rs"));
}

/// Serialized `FileDescriptorSet` of the service and its imports, including comments.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/caproot.v1.bin"));

impl caproot::v1::Skill {
    /// Whether the skill is offered to models. A person or the program may name any skill.
    #[must_use]
    pub fn is_offered(&self) -> bool {
        self.not_offered() == caproot::v1::NotOffered::Unspecified
    }

    /// Returns the handle of the plugin of the skill. `None` without `plugin_depth`.
    #[must_use]
    pub fn plugin_package(&self) -> Option<&str> {
        let Some(further) = self.plugin_depth?.checked_sub(1) else {
            return Some(&self.package);
        };
        let (end, _) = self.package.rmatch_indices('/').nth(further as usize)?;
        let plugin = &self.package[..end];
        // An executor may send a depth that leads beyond the root.
        plugin.contains("://").then_some(plugin)
    }
}

/// Returns the comment of each field of a message of the service, on one line.
pub fn field_comments(message: &str) -> BTreeMap<String, String> {
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).expect("the set of the build");
    let mut comments = BTreeMap::new();
    for file in &set.file {
        if file.package() != "caproot.v1" {
            continue;
        }
        let locations = file.source_code_info.iter().flat_map(|info| &info.location);
        for location in locations {
            // descriptor.proto: a file has messages in field 4, and a message has fields in field 2.
            let [4, parent, 2, field] = location.path[..] else {
                continue;
            };
            let field = usize::try_from(parent)
                .ok()
                .and_then(|index| file.message_type.get(index))
                .filter(|parent| parent.name() == message)
                .zip(usize::try_from(field).ok())
                .and_then(|(parent, index)| parent.field.get(index));
            let Some(field) = field else {
                continue;
            };

            let words: Vec<_> = location.leading_comments().split_whitespace().collect();
            comments.insert(field.name().to_owned(), words.join(" "));
        }
    }
    comments
}

/// Message of `caproot.v1` with its name.
pub trait NamedMessage: prost::Message + Default {
    /// Name of the message in its package.
    const NAME: &'static str;
}

macro_rules! named {
    ($($name:ident),+ $(,)?) => {
        $(impl NamedMessage for caproot::v1::$name {
            const NAME: &'static str = stringify!($name);
        })+

        /// Name of each [`NamedMessage`], and the size of its type in memory.
        #[doc(hidden)]
        pub const MESSAGE_SIZES: &[(&str, usize)] = &[
            $((stringify!($name), size_of::<caproot::v1::$name>()),)+
        ];
    };
}

named!(
    Diagnostic,
    GetExecutorResponse,
    ListResourcesResponse,
    ListRootsResponse,
    ListSkillsResponse,
    Marketplace,
    MarketplaceEntry,
    McpServer,
    Plugin,
    PublishedRoot,
    ReadResourceResponse,
    ResolveRootsResponse,
    ResolvedRoot,
    Resource,
    RootStatus,
    SelectedCapabilityRoot,
    Skill,
    ToolDependency,
    WatchSkillsResponse,
);

/// Domain of `google.rpc.ErrorInfo` in the errors of the daemon.
pub const ERROR_DOMAIN: &str = "caproot";

impl caproot::v1::ErrorReason {
    const PREFIX: &str = "ERROR_REASON_";

    /// Returns the name in `google.rpc.ErrorInfo.reason`, such as `TOO_LARGE`.
    #[must_use]
    pub fn wire_name(self) -> &'static str {
        self.as_str_name().trim_start_matches(Self::PREFIX)
    }

    /// Returns the reason with a name in `google.rpc.ErrorInfo.reason`.
    #[must_use]
    pub fn from_wire_name(name: &str) -> Option<Self> {
        let reason = Self::from_str_name(&format!("{}{name}", Self::PREFIX));
        reason.filter(|reason| *reason != Self::Unspecified)
    }
}

impl caproot::v1::ComponentKind {
    const PREFIX: &str = "COMPONENT_KIND_";

    /// Returns the word for the kind, such as `lsp_server`.
    #[must_use]
    pub fn word(self) -> String {
        let name = self.as_str_name();
        name.trim_start_matches(Self::PREFIX).to_lowercase()
    }
}

/// Returns the name of a code in the gRPC specification.
#[must_use]
pub fn grpc_code_name(code: tonic::Code) -> &'static str {
    use tonic::Code;
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use super::caproot::v1::{ErrorReason, Skill};
    use super::grpc_code_name;
    use tonic::Code;

    #[test]
    fn wire_names_of_reasons() {
        assert_eq!(ErrorReason::TooLarge.wire_name(), "TOO_LARGE");
        assert_eq!(
            ErrorReason::from_wire_name("TOO_LARGE"),
            Some(ErrorReason::TooLarge)
        );
        for bad in ["", "UNSPECIFIED", "too_large", "ERROR_REASON_TOO_LARGE"] {
            assert_eq!(ErrorReason::from_wire_name(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_plugin_of_a_skill_is_in_its_root() {
        for (plugin_depth, plugin) in [
            (None, None),
            (Some(0), Some("skill://r/p/skills/a")),
            (Some(2), Some("skill://r/p")),
            (Some(3), Some("skill://r")),
            (Some(4), None),
            (Some(u32::MAX), None),
        ] {
            let skill = Skill {
                package: "skill://r/p/skills/a".to_owned(),
                plugin_depth,
                ..Skill::default()
            };
            assert_eq!(skill.plugin_package(), plugin, "{plugin_depth:?}");
        }
        let nameless = Skill {
            plugin_depth: Some(1),
            ..Skill::default()
        };
        assert_eq!(nameless.plugin_package(), None);
    }

    #[test]
    fn grpc_code_names() {
        for (code, expected) in [
            (Code::Ok, "OK"),
            (Code::PermissionDenied, "PERMISSION_DENIED"),
            (Code::Unauthenticated, "UNAUTHENTICATED"),
        ] {
            assert_eq!(grpc_code_name(code), expected);
        }
    }
}
