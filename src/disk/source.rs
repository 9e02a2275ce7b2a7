//! Reads the text that a diagnostic points at, once more, and by the same contained opening.

use super::allowed_dirs::ResolvedRootDir;
use super::content;
use super::open_file;
use crate::domain::RelPath;

/// The first bytes of the regular file at a place below a root, as many as any document that is
/// parsed may have; `None` where it cannot be had, as where it is gone by now.
#[must_use]
pub fn read_source(root: &ResolvedRootDir, place: &RelPath) -> Option<Vec<u8>> {
    let opened = open_file::open_file(&root.snapshot, &root.path, place).ok()?;
    content::read_small_file(&opened.file).ok()
}
