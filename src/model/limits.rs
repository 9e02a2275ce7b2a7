//! Limits of the daemon.

/// Configurable limits. `Default` returns the documented defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // documented at `Limits` in capability_service.proto
pub struct Limits {
    pub max_roots: usize,
    pub max_depth: usize,
    pub max_directories: usize,
    pub max_entries: usize,
    pub max_skills: usize,
    pub max_file_bytes: u64,
    pub max_cached_roots: usize,
    pub max_reads_per_root: usize,
    pub max_streams: usize,
    pub max_history: usize,
    pub max_diagnostics: usize,
    pub max_connections: usize,
    pub max_connections_per_caller: usize,
    pub max_streams_per_caller: usize,
    pub max_calls: usize,
    pub max_calls_per_caller: usize,
}

impl Limits {
    /// Maximum bytes of a request: `max_roots` roots, each with the longest id, environment id and
    /// path, and all other fields.
    #[must_use]
    pub fn max_request_bytes(&self) -> usize {
        const ROOT_BYTES: usize = 5 << 10;
        const OTHER_BYTES: usize = 64 << 10;
        OTHER_BYTES + self.max_roots * ROOT_BYTES
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_roots: 256,
            max_depth: 16,
            max_directories: 50_000,
            max_entries: 500_000,
            max_skills: 20_000,
            max_file_bytes: 256 << 20,
            max_cached_roots: 1_024,
            max_reads_per_root: 64,
            max_streams: 2_048,
            max_history: 64,
            max_diagnostics: MAX_DIAGNOSTICS,
            max_connections: 1_024,
            max_connections_per_caller: 256,
            max_streams_per_caller: 1_024,
            max_calls: 4_096,
            max_calls_per_caller: 2_048,
        }
    }
}

/// Maximum bytes of frontmatter between its fences.
pub const MAX_FRONTMATTER_BYTES: usize = 64 << 10;
/// Maximum bytes of a sidecar or a manifest.
pub const MAX_MANIFEST_BYTES: usize = 256 << 10;
/// Maximum bytes that all YAML aliases of a document expand to.
pub const MAX_ALIAS_BYTES: usize = 256 << 10;
/// Maximum levels of nesting in YAML and JSON.
pub const MAX_NESTING: usize = 64;
/// Maximum levels of nesting of an author's fields on the wire. Protobuf parsers reject messages
/// over 100 levels deep, and a mapping takes three levels.
pub const MAX_WIRE_NESTING: usize = 30;
/// Maximum bytes of a handle.
pub const MAX_HANDLE_BYTES: usize = 2_048;
/// Maximum bytes of a page of a read.
pub const MAX_READ_BYTES: usize = 1 << 20;
/// Default bytes of a page of a read.
pub const DEFAULT_READ_BYTES: usize = 8_192;
/// Maximum skills on a page of a list.
pub const MAX_PAGE_SIZE: usize = 1_000;
/// Maximum bytes of a page of a list.
pub const MAX_PAGE_BYTES: usize = 1 << 20;
/// Maximum diagnostics of one root in one response.
pub const MAX_DIAGNOSTICS: usize = 1_000;
/// Maximum bytes of a response: the default limit of gRPC clients.
pub const MAX_RESPONSE_BYTES: usize = 4 << 20;
/// Maximum bytes of all incomplete requests and unsent responses of all callers.
pub const MAX_BUFFERED_BYTES: usize = 512 << 20;
/// Maximum bytes of all incomplete requests and unsent responses of one caller.
pub const MAX_BUFFERED_BYTES_PER_CALLER: usize = 128 << 20;
