//! Client side of the gRPC service. A [`Client`] connects to one daemon, calls it, joins pages and
//! watches. A [`Mirror`] is a live copy of a daemon's catalog. A [`Fleet`] finds the daemon of an
//! environment.
//!
//! This program lists the skills below all published roots, and reads one skill:
//!
//! ```
//! use caproot::client::{Client, ClientCredentials};
//! use caproot_core::proto::caproot::v1::{ListSkillsRequest, ReadResourceRequest};
//! use std::time::Duration;
//! # mod demo { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/support/demo.rs")); }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let address = demo::start_demo_daemon().await.to_string();
//! // `address` is the daemon's, such as `unix:/run/caproot/caproot.sock`.
//! let (endpoint, credentials) = (address.parse()?, ClientCredentials::default());
//! let mut client = Client::connect(&endpoint, &credentials, Duration::from_secs(30)).await?;
//!
//! let published = client.list_roots().await?.roots;
//! let selected = published.into_iter().filter_map(|root| root.selected_capability_root);
//! let request = ListSkillsRequest {
//!     selected_capability_roots: selected.collect(),
//!     ..ListSkillsRequest::default()
//! };
//! let listed = client.list_skills(&request).await?;
//! let triage = listed.skills.iter().find(|skill| skill.name == "triage-logs").ok_or("no skill")?;
//! assert_eq!(triage.package, "skill://demo/triage-logs");
//!
//! // Without a resource, the request reads the SKILL.md of the package.
//! let request = ReadResourceRequest {
//!     root: request.selected_capability_roots.first().cloned(),
//!     package: triage.package.clone(),
//!     ..ReadResourceRequest::default()
//! };
//! let mut text = Vec::new();
//! let mut append = |bytes: &[u8]| Ok(text.extend_from_slice(bytes));
//! client.read_resource(&request, 0, &mut append).await?;
//! assert!(String::from_utf8(text)?.starts_with("---\nname: triage-logs"));
//! # Ok(())
//! # }
//! ```
//!
//! If a root cannot be used, `listed` has no skills of the root, and the reason in its `roots`. An
//! error of a call is a [`CallError`]; [`error_reason`] returns its reason.

mod auth_channel;
mod call;
mod call_channel;
mod connect;
mod credentials;
mod dial;
mod executor_channel;
mod executor_stream;
pub mod fleet;
mod grpc_call;
pub mod json;
mod message_cost;
mod mirror;
mod pages;
mod read;
mod response_budget;
mod retry;
mod selected_roots;
mod spiffe_verifier;
mod tls_error;
mod tls_probe;
mod watch;

pub use auth_channel::TlsRequired;
pub use call::{CallError, Client, error_reason, error_reason_name};
pub use caproot_core::document::{ConfigError, ConfigErrors, TextPosition};
pub use caproot_core::net::byte_stream::ByteStream;
pub use caproot_core::net::certs::{SpiffeId, SpiffeIdError};
pub use caproot_core::net::endpoint::{DaemonEndpoint, EndpointError};
pub use caproot_core::wire::handle::{enclosing_package, is_of_root, root_id};
pub use connect::{ConnectError, connect, default_endpoints, find_default_endpoint, open_channel};
#[cfg(feature = "manager")]
pub(crate) use credentials::BearerToken;
pub use credentials::{ClientCredentials, ClientToken};
#[cfg(feature = "mcp")]
pub(crate) use credentials::{bearer_header, read_token_file};
#[cfg(feature = "nats")]
pub use fleet::NatsDialer;
pub use fleet::{
    DialLimits, ExecutorConfig, ExecutorDialer, ExecutorRegistry, Fleet, FleetError, FleetStats,
    OmittedExecutor, PublishedSelection,
};
#[cfg(any(feature = "cli", feature = "mcp"))]
pub(crate) use mirror::MirrorStream;
#[cfg(feature = "cli")]
pub(crate) use mirror::MirrorUpdate;
pub use mirror::{
    ChangesSince, Mirror, MirrorCatalog, MirrorSelection, MirrorSnapshot, MirrorState, ResumePoint,
};
pub use read::MAX_CURSOR_BYTES;
pub use retry::RetryPolicy;
#[cfg(any(feature = "cli", feature = "mcp"))]
pub(crate) use selected_roots::published_selection;
pub use selected_roots::{SelectedRootsError, parse_selected_roots};
pub use tls_error::TlsError;
pub use watch::{SkillWatch, WatchMessage};

#[cfg(test)]
pub(crate) use mirror::MirrorReplica;
