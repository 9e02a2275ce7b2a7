#![doc = include_str!("../README.md")]

mod auth_channel;
mod call;
mod connect;
mod credentials;
mod dial;
mod executor_channel;
mod executor_stream;
mod fixed_executor;
pub mod fleet;
mod grpc_call;
pub mod json;
mod message_cost;
mod mirror;
mod pages;
#[cfg(target_os = "linux")]
pub mod pull;
mod read;
mod response_budget;
mod retry;
mod selected_roots;
mod spiffe_verifier;
mod tls_error;
mod tls_probe;
mod trust;
mod watch;

pub use auth_channel::TlsRequired;
pub use call::{CallError, Client, error_reason, error_reason_name};
pub use caproot_core::document::{ConfigError, ConfigErrors, TextPosition};
pub use caproot_core::net::byte_stream::ByteStream;
pub use caproot_core::net::certs::{SpiffeId, SpiffeIdError};
pub use caproot_core::net::endpoint::{DaemonEndpoint, EndpointError};
pub use caproot_core::proto;
pub use caproot_core::wire::handle::{enclosing_package, is_of_root, root_id};
pub use connect::{ConnectError, connect, default_endpoints, find_default_endpoint, open_channel};
pub use credentials::{
    BearerToken, ClientCredentials, ClientToken, bearer_header, read_token_file,
};
#[cfg(feature = "nats")]
pub use fleet::NatsDialer;
pub use fleet::{
    DialLimits, ExecutorConfig, ExecutorDialer, ExecutorRegistry, Fleet, FleetError, FleetStats,
    OmittedExecutor, PublishedSelection,
};
pub use mirror::{
    ChangesSince, Mirror, MirrorCatalog, MirrorReplica, MirrorSelection, MirrorSnapshot,
    MirrorState, MirrorStream, MirrorUpdate, ResumePoint,
};
pub use read::MAX_CURSOR_BYTES;
pub use retry::RetryPolicy;
pub use selected_roots::{
    PublishedRootId, SelectedRootsError, parse_selected_roots, published_selection,
};
pub use tls_error::TlsError;
pub use trust::{
    ApprovedListing, Trust, approve_list, approve_skill, approved_root_id, is_for_product,
    listed_package_files, published_name, shown_environment, shown_id,
};
pub use watch::{SkillWatch, WatchMessage};
