//! Addresses of daemons, certificates, wrappers of connections, and random delays.

pub mod byte_stream;
pub mod certs;
pub mod dial_rate;
pub mod endpoint;
pub mod jitter;
