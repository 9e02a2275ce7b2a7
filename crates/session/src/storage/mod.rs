//! Saved form of a session, and the interface of a store that keeps the form: see `SessionStore`.
//!
//! Begin with `saved`, which has the fields of the form and its checks.

pub mod saved;
pub mod session_id;
pub mod store;

pub use saved::SavedError;
pub use store::{MemoryStore, SessionStore, StoreError};
