//! HTTP for sources and managers that are not executors: one client, the addresses to which it may
//! connect, and the logins at servers that answer 401.
//!
//! Begin with `http_client`.

#[cfg(feature = "mcp")]
pub mod address_check;
#[cfg(feature = "mcp")]
pub mod authorization;
#[cfg(any(feature = "mcp", feature = "manager"))]
pub mod http_client;

#[cfg(feature = "mcp")]
pub use authorization::{AuthorizationFailed, AuthorizationRequest, ServerAuthorization};
