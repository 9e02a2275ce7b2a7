//! Reads `socket` of a config file: mode and group of Unix sockets.

use super::accounts;
use super::keys::{ConfigKey, KeyDefault, KeyReload, KeyValue};
use caproot_core::document::{DocumentReader, DocumentSection};
use caproot_core::net::endpoint::ProcessEnv;
use std::path::{Path, PathBuf};

/// Keys of the section.
pub const KEYS: [ConfigKey; 2] = [
    ConfigKey::new(
        "socket.mode",
        KeyValue::Choice(&["\"0600\"", "\"0660\"", "\"0666\""]),
        KeyDefault::Effect {
            effect: "`\"0600\"`, or `\"0660\"` if `group` is set",
            example: "\"0660\"",
        },
        "Mode of the socket. `\"0600\"` admits the user of the daemon, `\"0660\"` a group, too, and \
         `\"0666\"` every user. `\"0666\"` needs `callers`.",
    )
    .with_reload(KeyReload::Section),
    ConfigKey::new(
        "socket.group",
        KeyValue::Text("group, by number or name"),
        KeyDefault::Effect { effect: "the group of the daemon", example: "caproot" },
        "Group of the socket.",
    )
    .with_reload(KeyReload::Section),
];

/// Default group of a socket in the runtime directory of the unit, if the group exists.
const UNIT_GROUP: &str = "caproot";
/// Access for the user of the daemon only.
const OWN: u32 = 0o600;
/// Access for the user of the daemon and a group.
const GROUP: u32 = 0o660;
const OTHERS: u32 = 0o006;

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
        let group = || accounts::gid(UNIT_GROUP).ok();
        let unit = env
            .unit_runtime_dir
            .clone()
            .and_then(|dir| Some((dir, group()?)));
        Self {
            configured,
            unit_default: unit,
        }
    }

    /// Returns mode and group of the socket at a path.
    #[must_use]
    pub fn access_at(&self, path: &Path) -> SocketAccess {
        let unit = || {
            let (_, group) = self
                .unit_default
                .as_ref()
                .filter(|(dir, _)| path.parent() == Some(dir))?;
            Some(SocketAccess {
                mode: GROUP,
                group: Some(*group),
                group_is_optional: true,
            })
        };
        self.configured.or_else(unit).unwrap_or(SocketAccess {
            mode: OWN,
            group: None,
            group_is_optional: false,
        })
    }
}

/// Reads the section. A mode that admits every user needs `callers`.
pub fn read(
    section: &DocumentSection<'_>,
    has_callers: bool,
    reader: &mut DocumentReader<'_>,
) -> Option<SocketAccess> {
    let [mode, group] = ["mode", "group"].map(|key| section.get(key));
    if mode.is_none() && group.is_none() {
        return None;
    }
    let has_group = group.is_some();
    let group = group.and_then(|item| reader.number_or_text(&item, accounts::gid));
    let default = if has_group { GROUP } else { OWN };
    let mode = mode.and_then(|item| {
        let mode = reader.number_or_text(&item, mode_bits)?;
        if mode & OTHERS != 0 && !has_callers {
            reader.report_error(&item, "every user could call everything; add `callers`");
        }
        if has_group && mode & GROUP != GROUP {
            reader.report_error(&item, "denies the configured group; use 0660");
        }
        Some(mode)
    });
    Some(SocketAccess {
        mode: mode.unwrap_or(default),
        group,
        group_is_optional: false,
    })
}

fn mode_bits(text: &str) -> Result<u32, &'static str> {
    let reason = "expected the mode of a socket: \"0600\", \"0660\" or \"0666\"";
    let is_octal = matches!(text.len(), 3 | 4) && text.bytes().all(|b| b.is_ascii_digit());
    let mode = u32::from_str_radix(text, 8).ok().filter(|_| is_octal);
    // Connecting needs both read and write permission.
    let is_whole = |mode: &u32| matches!(mode, 0o600 | 0o660 | 0o666);
    mode.filter(is_whole).ok_or(reason)
}
