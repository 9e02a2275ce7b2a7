//! Limits of the daemon.

/// Number of things.
type Count = usize;
/// Size in bytes.
type Size = u64;

/// Passes the table of the limits to the macro `$callback`. Each row is a field of the message
/// `Limits`, and the comment of the field describes the limit. A row of `configurable` is a key of
/// the config file in addition. It has the unit, the default, the least and the greatest value, and
/// whether a reload applies a change or the daemon needs a restart. With a value outside of the
/// bounds, the daemon would be useless or could use up the memory. A row of `fixed` has the value.
macro_rules! limit_table {
    ($callback:ident) => {
        $callback! {
            configurable {
                max_roots: Count = 256, [1, 4_096];
                max_depth: Count = 16, [1, 1_000];
                max_directories: Count = 50_000, [1, 10_000_000];
                max_entries: Count = 500_000, [1, 100_000_000];
                max_skills: Count = 20_000, [1, 1_000_000];
                max_file_bytes: Size = 256 << 20, [1 << 10, 16 << 30];
                max_cached_roots: Count = 1_024, [1, 65_536];
                max_reads_per_root: Count = 64, [1, 1_024];
                max_streams: Count = 2_048, [1, 65_536];
                max_history: Count = 64, [1, 1_024];
                max_diagnostics: Count = MAX_DIAGNOSTICS, [1, MAX_DIAGNOSTICS as u64];
                max_connections: Count = 1_024, [1, 65_536];
                max_connections_per_caller: Count = 256, [1, 65_536];
                max_streams_per_caller: Count = 1_024, [1, 65_536];
                max_calls: Count = 4_096, [1, 65_536];
                max_calls_per_caller: Count = 2_048, [1, 65_536];
            }
            fixed {
                max_read_bytes = MAX_READ_BYTES;
                default_read_bytes = DEFAULT_READ_BYTES;
                max_page_size = MAX_PAGE_SIZE;
                max_page_bytes = MAX_PAGE_BYTES;
                max_frontmatter_bytes = MAX_FRONTMATTER_BYTES;
                max_manifest_bytes = MAX_MANIFEST_BYTES;
                max_handle_bytes = MAX_HANDLE_BYTES;
            }
        }
    };
}
pub(crate) use limit_table;

macro_rules! define_limits {
    (
        configurable { $($name:ident: $unit:ident = $default:expr, $bounds:tt;)* }
        fixed $fixed:tt
    ) => {
        /// Configurable limits. `Default` returns the documented defaults.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[allow(missing_docs)] // documented at `Limits` in capability_service.proto
        pub struct Limits {
            $(pub $name: $unit,)*
        }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }
    };
}

limit_table!(define_limits);

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
/// Maximum diagnostics of one root in one response.
pub const MAX_DIAGNOSTICS: usize = 1_000;
/// Maximum bytes of all incomplete requests and unsent responses of all callers.
pub const MAX_BUFFERED_BYTES: usize = 512 << 20;
/// Maximum bytes of all incomplete requests and unsent responses of one caller.
pub const MAX_BUFFERED_BYTES_PER_CALLER: usize = 128 << 20;
