//! Reads `socket` of a config file: mode and group of Unix sockets.

use super::accounts;
use super::keys::{ConfigKey, KeyDefault, KeyValue, key_table};
use caproot_core::document::{DocumentReader, DocumentSection};
use caproot_core::net::endpoint::ProcessEnv;
use std::path::{Path, PathBuf};

// Keys of the section.
key_table!(
    KEYS,
    MODE = ConfigKey::new(
        "socket.mode",
        KeyValue::Choice(&["\"0600\"", "\"0660\"", "\"0666\""]),
        KeyDefault::Effect {
            effect: "`\"0600\"`, or `\"0660\"` if `group` is set",
            example: "\"0660\"",
        },
        "Mode of the socket. `\"0600\"` admits the user of the daemon, `\"0660\"` a group, too, and \
         `\"0666\"` every user. `\"0666\"` needs `callers`.",
    ),
    GROUP = ConfigKey::new(
        "socket.group",
        KeyValue::Text("group, by number or name"),
        KeyDefault::Effect {
            effect: "the group of the daemon",
            example: "caproot"
        },
        "Group of the socket.",
    ),
);

/// Default group of a socket in the runtime directory of the unit, if the group exists.
const UNIT_GROUP: &str = "caproot";
/// Access for the user of the daemon only.
const OWNER_MODE: u32 = 0o600;
/// Access for the user of the daemon and a group.
const GROUP_MODE: u32 = 0o660;
/// Access for other users.
const OTHERS_BITS: u32 = 0o006;

/// Mode and group of a Unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketAccess {
    /// Permission bits.
    pub mode: u32,
    /// Group; `None` for the group of the daemon.
    pub group: Option<u32>,
    /// Whether the daemon keeps the socket for its own user if setting the group is not permitted.
    /// Set for the default group of the unit.
    pub group_is_optional: bool,
}

/// Modes and groups of the Unix sockets of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SocketAccessRules {
    configured: Option<SocketAccess>,
    /// Runtime directory of the systemd unit, and the group of the unit.
    unit_default: Option<(PathBuf, u32)>,
}

impl SocketAccessRules {
    pub(super) fn new(configured: Option<SocketAccess>, env: &ProcessEnv) -> Self {
        let unit_default = env
            .unit_runtime_dir
            .clone()
            .and_then(|dir| Some((dir, accounts::gid(UNIT_GROUP).ok()?)));
        Self {
            configured,
            unit_default,
        }
    }

    /// Returns mode and group of the socket at a path.
    #[must_use]
    pub fn access_at(&self, path: &Path) -> SocketAccess {
        if let Some(configured) = self.configured {
            return configured;
        }

        match &self.unit_default {
            Some((dir, group)) if path.parent() == Some(dir) => SocketAccess {
                mode: GROUP_MODE,
                group: Some(*group),
                group_is_optional: true,
            },
            _ => SocketAccess {
                mode: OWNER_MODE,
                group: None,
                group_is_optional: false,
            },
        }
    }
}

/// Reads the section. A mode that admits every user needs `callers`.
pub fn read(
    section: &DocumentSection<'_>,
    has_callers: bool,
    reader: &mut DocumentReader<'_>,
) -> Option<SocketAccess> {
    let mode = MODE.field(section);
    let group = GROUP.field(section);
    if mode.is_none() && group.is_none() {
        return None;
    }

    let has_group = group.is_some();
    let default = if has_group { GROUP_MODE } else { OWNER_MODE };
    let group_id = group.and_then(|item| reader.number_or_text(&item, accounts::gid));
    let mode_bits = mode.and_then(|item| {
        let mode = reader.number_or_text(&item, parse_mode)?;
        if mode & OTHERS_BITS != 0 && !has_callers {
            reader.report_error(&item, "every user could call everything; add `callers`");
        }
        if has_group && mode & GROUP_MODE != GROUP_MODE {
            reader.report_error(&item, "denies the configured group; use 0660");
        }
        Some(mode)
    });

    Some(SocketAccess {
        mode: mode_bits.unwrap_or(default),
        group: group_id,
        group_is_optional: false,
    })
}

fn parse_mode(text: &str) -> Result<u32, &'static str> {
    let is_octal = matches!(text.len(), 3 | 4) && text.bytes().all(|b| b.is_ascii_digit());
    match u32::from_str_radix(text, 8) {
        // Connecting needs both read and write permission.
        Ok(mode @ (0o600 | 0o660 | 0o666)) if is_octal => Ok(mode),
        _ => Err("expected the mode of a socket: \"0600\", \"0660\" or \"0666\""),
    }
}
