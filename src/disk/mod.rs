//! The only room that touches the file system below roots: resolve, open beneath, list, read.
//! Everything here blocks.

mod allowed;
mod assembly;
mod content;
mod kinds;
mod list;
mod namespaces;
mod off;
mod progress;
mod read;
mod resource;
mod source;
mod survey;
mod versions;
mod walk;
mod watching;

pub use allowed::{Allowed, Blocked, Ground, Resolved};
pub use off::Off;
pub use progress::Progress;
pub use read::{Body, Page, Read, Unread, read};
pub use source::source;
pub use survey::{Survey, Surveyed, Target, scan};
pub use versions::Versions;
pub use watching::{Guard, Unwatched, WatchDirs};
