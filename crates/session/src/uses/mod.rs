//! Uses of skills: each call of a tool is an invocation with a span and an event, and the session
//! keeps the files that the model has, for a later compaction.
//!
//! Begin with `invocation`, which records the event of `usage`.

pub mod invocation;
pub mod usage;
pub mod used;

pub use usage::{UsageEvent, UsageKind, UsageWatch};
pub use used::{MAX_USED_FILES, UsedSkill, UsedState};
