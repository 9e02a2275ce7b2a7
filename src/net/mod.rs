//! Addresses of daemons, and certificates.

pub mod certs;
pub mod endpoint;
