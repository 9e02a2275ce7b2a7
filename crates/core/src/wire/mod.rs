//! Values that both sides of the protocol read and write: handles, cursors, root ids, digests and
//! limits. Pure functions of plain data, without I/O.

pub mod catalog_digest;
pub mod cursor;
mod digest;
mod file_checksum;
pub mod handle;
pub mod limits;
mod path;
mod root_id;

pub use catalog_digest::{CatalogMessage, DigestGroups, MessageDigest, digest_catalog};
pub use digest::{ContentDigest, is_digest, short_digest};
pub use file_checksum::{FileChecksum, parse_file_name};
pub use handle::ResourceHandle;
pub use path::RelPath;
pub use root_id::RootId;
