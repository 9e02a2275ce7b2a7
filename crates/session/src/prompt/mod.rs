//! Skills without a call of the model: skills that the user mentions, used skills after a
//! compaction, and the list of names for a user.
//!
//! Begin with `inject`, whose fragments `reinject` gives again.

pub mod inject;
pub mod mentions;
pub mod name_list;
pub mod reinject;

pub use inject::{
    AmbiguousName, InjectedSkills, MAX_FRAGMENT_BYTES, MAX_INJECTED_BYTES, MentionCandidate,
    OmittedMention, SkillFragment,
};
pub use mentions::{SkillMention, UserPrompt};
