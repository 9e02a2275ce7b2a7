//! Shared parts of the daemon `caproot` and of the library of an orchestrator: the values and the
//! generated types of the protocol, text of third parties, config documents, addresses and
//! certificates. The crate knows neither daemon nor client.
//!
//! A program names this crate directly if it needs a type of the protocol:
//!
//! ```
//! use caproot_core::proto::caproot::v1::ListSkillsRequest;
//! use caproot_core::wire::{RelPath, ResourceHandle};
//!
//! let handle = ResourceHandle::parse("skill://team-skills/release-notes/SKILL.md")?;
//! assert_eq!(handle.root.as_str(), "team-skills");
//! assert_eq!(handle.path.file_name(), Some(&b"SKILL.md"[..]));
//! assert!(ListSkillsRequest::default().selected_capability_roots.is_empty());
//! # Ok::<(), &'static str>(())
//! ```

pub mod backoff;
pub mod bounded_file;
pub mod document;
#[cfg(target_os = "linux")]
pub mod file_watch;
pub mod json;
pub mod lock;
pub mod mountinfo;
pub mod net;
#[cfg(unix)]
pub mod process_group;
pub mod proto;
pub mod sync;
pub mod text;
pub mod wire;
