#![doc = include_str!("../README.md")]

mod call;
mod connect;
pub mod fleet;
mod grpc_call;
pub mod json;
mod message_cost;
mod mirror;
mod pages;
#[cfg(target_os = "linux")]
pub mod pull;
mod read;
mod selected_roots;
mod trust;
mod watch;

pub use call::{CallError, Client, error_reason, error_reason_name};
pub use caproot_core::document::{ConfigError, ConfigErrors, TextPosition};
pub use caproot_core::net::byte_stream::ByteStream;
pub use caproot_core::net::certs::{SpiffeId, SpiffeIdError};
pub use caproot_core::net::endpoint::{DaemonEndpoint, EndpointError};
pub use caproot_core::proto;
pub use caproot_core::wire::handle::{enclosing_package, is_of_root, root_id};
pub use connect::{
    BearerToken, ClientCredentials, ClientToken, ConnectError, RetryPolicy, TlsError, TlsRequired,
    bearer_header, connect, find_default_endpoint, open_channel, read_token_file,
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
pub use selected_roots::{PublishedRootId, parse_selected_roots, published_selection};
pub use trust::{
    ApprovedListing, ApprovedVersions, LockView, Trust, approved_root_id, declaration_digest,
    is_for_product, listed_package_files, published_name, rewrite_handles, shown_environment,
    shown_id,
};
pub use watch::{SkillWatch, WatchMessage};
