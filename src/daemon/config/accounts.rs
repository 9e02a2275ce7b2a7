//! Resolves users and groups, given by number or name. Error texts follow the text in question, as
//! in `invalid value "x": ERROR`.

use caproot_core::sync::Mutex;
use nix::errno::Errno;
use nix::unistd::{Group, User};
use std::collections::BTreeMap;

/// Resolved names. Kept for the lifetime of the process, because the sandbox may deny a second
/// lookup. The names in config files bound the size.
static ID_CACHE: Mutex<BTreeMap<(&str, String), u32>> = Mutex::new(BTreeMap::new());

/// Returns the number of a user.
pub fn uid(text: &str) -> Result<u32, String> {
    id(text, "user", |name| {
        Ok(User::from_name(name)?.map(|user| user.uid.as_raw()))
    })
}

/// Returns the number of the user of the packaged unit, if this machine has the user.
#[must_use]
pub fn service_uid() -> Option<u32> {
    uid("caproot").ok()
}

/// Returns the number of a group.
pub fn gid(text: &str) -> Result<u32, String> {
    id(text, "group", |name| {
        Ok(Group::from_name(name)?.map(|group| group.gid.as_raw()))
    })
}

fn id(
    text: &str,
    kind: &'static str,
    find: impl FnOnce(&str) -> Result<Option<u32>, Errno>,
) -> Result<u32, String> {
    let is_number = text.bytes().all(|b| b.is_ascii_digit());
    if is_number && !text.is_empty() {
        // chown(2) reserves the last number for "no change".
        let number = text.parse().ok().filter(|number| *number != u32::MAX);
        return number
            .ok_or_else(|| format!("expected the number of a {kind}, 4294967294 at most"));
    }

    let name = (kind, text.to_owned());
    if let Some(number) = ID_CACHE.lock().get(&name) {
        return Ok(*number);
    }

    // Without the lock: the system's user database may hang.
    match find(text) {
        Ok(Some(number)) => Ok(*ID_CACHE.lock().entry(name).or_insert(number)),
        Ok(None) => Err(format!(
            "no {kind} of this name on this machine; create the {kind}, or give a number"
        )),
        Err(error) => Err(format!(
            "looking up the {kind} failed: {}; give a number instead",
            error.desc()
        )),
    }
}
