//! Who may connect to Unix sockets: their mode and group. Leaves giving them to `app`.

use super::accounts;
use super::section::{ConfigReader, ConfigSection};
use crate::endpoint::ProcessEnv;
use std::path::{Path, PathBuf};

/// Keys of the section.
pub(super) const KEYS: [&str; 2] = ["mode", "group"];

/// The group that a unit's socket is given, where there is one of this name.
const UNIT_GROUP: &str = "caproot";
/// The daemon's own user.
const OWN: u32 = 0o600;
/// A group too.
const GROUP: u32 = 0o660;
const OTHERS: u32 = 0o006;

/// A Unix socket's mode and group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketAccess {
    /// Permission bits.
    pub mode: u32,
    /// The group, if it is not the daemon's own.
    pub group: Option<u32>,
    /// Nobody asked for the group: where it cannot be given, the socket is the daemon's user's.
    pub group_is_optional: bool,
}

/// Those of each socket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SocketAccessRules {
    configured: Option<SocketAccess>,
    /// Where systemd made a directory for the unit, and the unit's group.
    unit_default: Option<(PathBuf, u32)>,
}

impl SocketAccessRules {
    pub(super) fn new(given: Option<SocketAccess>, env: &ProcessEnv) -> Self {
        let group = || accounts::gid(UNIT_GROUP).ok();
        let unit = env.unit_runtime_dir.clone().and_then(|dir| Some((dir, group()?)));
        Self { configured: given, unit_default: unit }
    }

    /// That of the socket at a path.
    #[must_use]
    pub fn access_at(&self, path: &Path) -> SocketAccess {
        let unit = || {
            let (_, group) =
                self.unit_default.as_ref().filter(|(dir, _)| path.parent() == Some(dir))?;
            Some(SocketAccess { mode: GROUP, group: Some(*group), group_is_optional: true })
        };
        self.configured.or_else(unit).unwrap_or(SocketAccess {
            mode: OWN,
            group: None,
            group_is_optional: false,
        })
    }
}

/// Reads the section. Others may be let in only where there are rules of callers.
pub(super) fn read(
    section: &ConfigSection<'_>,
    has_callers: bool,
    checker: &mut ConfigReader<'_>,
) -> Option<SocketAccess> {
    let [mode, group] = KEYS.map(|key| section.get(key));
    if mode.is_none() && group.is_none() {
        return None;
    }
    let has_group = group.is_some();
    let group = group.and_then(|item| checker.number_or_text(&item, accounts::gid));
    let default = if has_group { GROUP } else { OWN };
    let mode = mode.and_then(|item| {
        let mode = checker.number_or_text(&item, mode_bits)?;
        if mode & OTHERS != 0 && !has_callers {
            checker.report_error(&item, "lets everybody ask for everything; give `callers` too");
        }
        if has_group && mode & GROUP != GROUP {
            checker.report_error(&item, "does not let the group in that is given; take 0660");
        }
        Some(mode)
    });
    Some(SocketAccess { mode: mode.unwrap_or(default), group, group_is_optional: false })
}

fn mode_bits(text: &str) -> Result<u32, &'static str> {
    let why = "is no mode of a socket, such as \"0600\", \"0660\" or \"0666\"";
    let is_octal = matches!(text.len(), 3 | 4) && text.bytes().all(|b| b.is_ascii_digit());
    let mode = u32::from_str_radix(text, 8).ok().filter(|_| is_octal);
    // Who may not both read and write cannot use a connection.
    let is_whole = |mode: &u32| matches!(mode, 0o600 | 0o660 | 0o666);
    mode.filter(is_whole).ok_or(why)
}
