//! Limits of the protocol, which the daemon keeps and a client may rely on.

/// Maximum bytes of a handle.
pub const MAX_HANDLE_BYTES: usize = 2_048;
/// Maximum bytes of a root id.
pub const MAX_ROOT_ID_BYTES: usize = 256;
/// Maximum bytes of a page of a read.
pub const MAX_READ_BYTES: usize = 1 << 20;
/// Default bytes of a page of a read.
pub const DEFAULT_READ_BYTES: usize = 8_192;
/// Maximum skills on a page of a list.
pub const MAX_PAGE_SIZE: usize = 1_000;
/// Maximum bytes of a page of a list.
pub const MAX_PAGE_BYTES: usize = 1 << 20;
/// Maximum bytes of a response: the default limit of gRPC clients.
pub const MAX_RESPONSE_BYTES: usize = 4 << 20;
