//! Which files of a package are its resources at all. Leaves finding them to `disk`, and what the
//! operator switched off to `switched_off`.

use super::RelPath;

/// Whether a file may be listed and read: not below a passed-over directory, and nothing on its path
/// is named `.env…`, where secrets are kept.
#[must_use]
pub fn may_serve_path(path: &RelPath, passed_over: &[Box<[u8]>]) -> bool {
    path.segments().all(|segment| {
        !segment.starts_with(b".env") && !passed_over.iter().any(|name| **name == *segment)
    })
}
