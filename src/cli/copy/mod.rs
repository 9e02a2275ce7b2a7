//! Commands that write packages of daemons to this machine, and the lock of approved packages.

pub mod lock;
pub mod pull;
