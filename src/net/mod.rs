//! Addresses of daemons, certificates, and wrappers of connections.

#[cfg(any(feature = "client", feature = "daemon"))]
pub(crate) mod byte_stream;
pub mod certs;
pub mod endpoint;
