//! The only room that touches the file system below roots: resolve, open beneath, list, read.
//! Everything here blocks, except `cached`.

mod allowed;
mod approach;
mod assembly;
mod bases;
mod beneath;
mod cached;
mod content;
mod declared;
mod files;
mod found;
mod kinds;
mod list;
mod locate;
mod namespaces;
mod off;
mod package;
mod plugin;
mod plugins;
mod progress;
mod prompts;
mod read;
mod resource;
mod source;
mod strayed;
mod survey;
mod sweep;
mod versions;
mod walk;
mod wanted;
mod watching;

pub use allowed::{Allowed, Blocked, Ground, Resolved};
pub use beneath::Opener;
pub use cached::read_cached;
pub use files::{FileFound, FilesFound, FilesPage, list_files};
pub use locate::locate;
pub use off::Off;
pub use package::Rule;
pub use progress::Progress;
pub use read::{Body, Page, Read, Unread, read};
pub use source::source;
pub use survey::{Dirty, Survey, Surveyed, Target, scan};
pub use versions::Versions;
pub use wanted::{Waiting, Wanted};
pub use watching::{Guard, Unwatched, WatchDirs};
