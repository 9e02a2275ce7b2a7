//! Life of a session: start, changes of plugins, forks, saved sessions and the end.
//!
//! Begin with `start`. `lifecycle` has the other steps.

pub mod lifecycle;
pub mod plugins;
pub mod start;
