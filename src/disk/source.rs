//! Reads the text that a diagnostic points at, once more, and by the same contained opening.

use super::allowed::Resolved;
use super::content;
use super::resource;
use crate::domain::RelPath;

/// The first bytes of the regular file at a place below a root, as many as any document that is
/// parsed may have; `None` where it cannot be had, as where it is gone by now.
#[must_use]
pub fn source(root: &Resolved, place: &RelPath) -> Option<Vec<u8>> {
    let opened = resource::open(&root.ground, &root.spot, place).ok()?;
    content::small(&opened.file).ok()
}
