//! Texts for a model, each with a limit: the instruction text with the list of skills, the notices
//! of changes, and the heads of fragments. Names are shortened and hidden characters are escaped
//! here.
//!
//! Begin with `instructions`. The other files have the parts of its text.

pub mod fragment;
pub mod instructions;
pub mod notices;
pub mod placeholders;
pub mod resource_path;
pub mod short_names;
