//! Client side of the gRPC service. A [`Client`] connects to one daemon, calls it, joins pages and
//! watches. A [`Mirror`] is a live copy of a daemon's catalog. A [`Fleet`] finds the daemon of an
//! environment.

mod auth_channel;
mod call;
mod connect;
mod credentials;
pub mod fleet;
mod handle;
pub mod json;
mod list;
mod mirror;
mod pages;
mod read;
mod resolve;
mod resources;
mod retry;
mod selected_roots;
mod tls_error;
mod tls_probe;
mod watch;

pub use crate::endpoint::{DaemonEndpoint, EndpointError};
pub use crate::yaml_document::TextPosition;
pub use auth_channel::TlsRequired;
pub use call::{CallError, Client, error_reason, error_reason_name};
pub use connect::{ConnectError, connect, default_endpoints, find_default_endpoint, open_channel};
pub use credentials::ClientCredentials;
pub use fleet::{
    ExecutorConfig, ExecutorRegistry, Fleet, FleetError, FleetFileError, FleetFileErrors,
};
pub use handle::{enclosing_package, root_id};
#[cfg(any(feature = "cli", feature = "mcp"))]
pub(crate) use mirror::MirrorStream;
#[cfg(feature = "cli")]
pub(crate) use mirror::MirrorUpdate;
pub use mirror::{
    ChangesSince, Mirror, MirrorCatalog, MirrorSelection, MirrorSnapshot, MirrorState, ResumePoint,
};
pub use read::MAX_CURSOR_BYTES;
pub use retry::RetryPolicy;
pub use selected_roots::{SelectedRootsError, parse_selected_roots};
pub use tls_error::TlsError;
pub use watch::{SkillWatch, WatchMessage};

#[cfg(test)]
pub(crate) use mirror::MirrorReplica;
