//! Users and groups as they are written: a number, or a name that this machine knows, by whichever
//! directory it asks. A name that was found once keeps its number for as long as the process lives:
//! later a sandbox may keep it from looking. What is wrong with one is said so that it goes on after the
//! text.

use nix::errno::Errno;
use nix::unistd::{Group, User};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Names of users and groups that were found, bounded by what config files name.
static ID_CACHE: Mutex<BTreeMap<(&str, String), u32>> = Mutex::new(BTreeMap::new());

/// A user's number.
pub(super) fn uid(text: &str) -> Result<u32, String> {
    id(text, "user", |name| Ok(User::from_name(name)?.map(|user| user.uid.as_raw())))
}

/// A group's number.
pub(super) fn gid(text: &str) -> Result<u32, String> {
    id(text, "group", |name| Ok(Group::from_name(name)?.map(|group| group.gid.as_raw())))
}

fn id(
    text: &str,
    what: &'static str,
    find: impl FnOnce(&str) -> Result<Option<u32>, Errno>,
) -> Result<u32, String> {
    let is_number = text.bytes().all(|b| b.is_ascii_digit());
    if is_number && !text.is_empty() {
        // The last one is the kernel's word for none: chown(2).
        let number = text.parse().ok().filter(|number| *number != u32::MAX);
        return number.ok_or_else(|| format!("is no number of a {what}: over 4294967294"));
    }
    let name = (what, text.to_owned());
    let mut found = ID_CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(number) = found.get(&name) {
        return Ok(*number);
    }
    match find(text) {
        Ok(Some(number)) => Ok(*found.entry(name).or_insert(number)),
        Ok(None) => Err(format!("is no {what} of this machine; make it, or give a number instead")),
        Err(error) => {
            Err(format!("cannot be looked up, {}; give the {what}'s number instead", error.desc()))
        }
    }
}
