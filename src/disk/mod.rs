//! The only room that touches the file system below roots: resolve, open beneath, list, read.
//! Everything here blocks.

mod allowed;
mod content;
mod list;
mod namespaces;
mod off;
mod progress;
mod read;
mod resource;
mod scan;
mod versions;
mod walk;

pub use allowed::{Allowed, Blocked, Ground, Resolved};
pub use off::Off;
pub use progress::Progress;
pub use read::{Body, Page, Read, Unread, read};
pub use scan::{Target, scan};
pub use versions::Versions;
