//! Addresses of daemons, certificates, wrappers of connections, and random delays.

#[cfg(any(feature = "client", feature = "daemon"))]
pub(crate) mod byte_stream;
pub mod certs;
#[cfg(feature = "client")]
pub(crate) mod dial_rate;
pub mod endpoint;
#[cfg(feature = "client")]
pub(crate) mod jitter;
