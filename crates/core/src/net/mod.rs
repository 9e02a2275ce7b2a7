//! Addresses of daemons, certificates, and wrappers of connections.

pub mod byte_stream;
pub mod certs;
pub mod dial_rate;
pub mod endpoint;
pub mod routable;
