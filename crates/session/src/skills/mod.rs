//! Skills of a source as data, and the interface of a source: the values that all other rooms
//! share, such as the result of a tool and the spelling of its name. Nothing here asks a source or
//! knows a session.
//!
//! Begin with `skill_source`, which has the trait of a source with its listings and pages.

pub mod authorities;
pub mod equal_roots;
pub mod readiness;
pub mod result;
pub mod selection;
pub mod skill;
pub mod skill_source;
pub mod tool_names;

pub use result::{
    DEFAULT_RESULT_BYTES, MAX_RESULT_BYTES, ResultImage, ToolError, ToolErrorCode, ToolResult,
};
