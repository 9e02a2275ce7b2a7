//! Connections to executors: addresses, TLS, credentials, and channels that connect again and
//! retry.
//!
//! Begin with `channel`, which has the errors of a connection. `dial` opens the byte stream,
//! and `executor_channel` finds the executor of an environment again for each connection.

pub mod auth_channel;
pub mod channel;
pub mod credentials;
pub mod dial;
pub mod executor_channel;
pub mod executor_stream;
pub mod fixed_executor;
pub mod response_budget;
pub mod retry;
pub mod spiffe_verifier;
pub mod tls_error;
pub mod tls_probe;

pub use auth_channel::TlsRequired;
pub use channel::{ConnectError, connect, find_default_endpoint, open_channel};
pub use credentials::{
    BearerToken, ClientCredentials, ClientToken, bearer_header, read_token_file,
};
pub use retry::RetryPolicy;
pub use tls_error::TlsError;
