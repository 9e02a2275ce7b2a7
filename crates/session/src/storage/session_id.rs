//! Id of a session.

use std::hash::{BuildHasher as _, RandomState};

/// Limit of a session's id in bytes.
const MAX_ID_BYTES: usize = 128;

/// Checks that a session can have this id.
pub fn check_session_id(id: &str) -> Result<(), String> {
    if (1..=MAX_ID_BYTES).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic()) {
        return Ok(());
    }
    Err(format!(
        "invalid session id: expected 1 to {MAX_ID_BYTES} visible ASCII characters"
    ))
}

/// Returns a random id of a session.
pub fn random_id() -> String {
    let [high, low] = [RandomState::new(), RandomState::new()].map(|state| state.hash_one(0_u8));
    format!("s-{high:016x}{low:016x}")
}
