//! gRPC service of the daemon: authentication, limits, audit log, and conversion between domain
//! types and protobuf messages.

mod audit_log;
pub mod auth;
mod catalog_digests;
mod change_events;
mod connection_admission;
mod connection_pool;
mod dispatch;
mod encoded_body;
mod errors;
mod executor_info;
mod list_pages;
mod load_limit;
mod message_cache;
mod plugin_message;
mod quota;
mod readiness_messages;
mod requests;
mod resources;
mod root_messages;
mod service;
mod skill_message;
mod visible_view;
mod watch_stream;

pub use audit_log::AuditLog;
pub use auth::{AuthLayer, AuthRules, AuthService, CallerCredentials};
pub use connection_admission::{
    ConnectionAdmission, ConnectionGuard, ConnectionQuota, ListenerCapacity, ListenerPermits,
};
pub use dispatch::RpcDispatcher;
pub use executor_info::DaemonInfo;
pub use load_limit::{LoadLimit, LoadLimitLayer, REFLECTION_PREFIX};
pub use quota::{Quota, QuotaExceeded, QuotaLimit, QuotaPermit};
pub use service::GrpcService;
