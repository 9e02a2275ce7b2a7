//! Warnings of `caproot config check` alone. They depend on the disk and on the accounts of this machine.

use super::{Config, ListenAddress, ProcessEnv};
use crate::domain::callers::CallerRule;
use nix::unistd::{Uid, User, getgrouplist};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
use std::ffi::{CString, OsStr};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The warning if no directory is published or allowed.
pub(super) const NOTHING_PUBLISHED: &str = "nothing is published, so that callers find no skills: list \
     directories under `roots` in the config file, or start the daemon with --root DIR";

/// The user and group of the daemon in its unit.
const UNIT_USER: &str = "caproot";

/// The user that the daemon runs as: the unit's if root asks, otherwise the user who asks.
struct DaemonUser {
    uid: u32,
    gid: Option<u32>,
    /// The account to become for a test of permissions; `None` if it is this process's own.
    account: Option<User>,
}

impl Config {
    /// Warnings about directories that the daemon cannot read, and about callers that shut its operator
    /// out. Blocks on the disk.
    #[must_use]
    pub fn advice(&self, env: &ProcessEnv) -> Vec<String> {
        let user = DaemonUser::of(env);
        let mut warnings = Vec::new();
        if self.published_roots.is_empty() && !self.allowed_dirs.is_empty() {
            warnings.push(
                "no root is published: callers select directories below `allow`, and `caproot list` \
                 needs --root"
                    .to_owned(),
            );
        }
        let roots = self.published_roots.iter().map(|root| {
            let dir = PathBuf::from(OsStr::from_bytes(&root.path));
            (format!("roots: {}: {}", root.id.as_str(), dir.display()), dir)
        });
        let allowed = self.extra_allowed_dirs().iter();
        let allowed = allowed.map(|dir| (format!("allow: {}", dir.display()), dir.clone()));
        warnings.extend(roots.chain(allowed).filter_map(|(name, dir)| {
            let error = user.try_read(&dir).err()?;
            Some(match error.kind() {
                ErrorKind::NotFound => {
                    format!("{name} does not exist; create it, or correct the path")
                }
                _ => user.unreadable_warning(&name, &dir, &error),
            })
        }));
        warnings.extend(self.operator_lockout_warning(&user));
        warnings
    }

    fn operator_lockout_warning(&self, user: &DaemonUser) -> Option<String> {
        let rules = &self.callers.as_ref()?.callers.rules;
        let has_socket = self.listeners.iter().any(|at| !matches!(at, ListenAddress::Tcp(_)));
        let matches = |rule: &CallerRule| {
            let is_token_only =
                rule.uids.is_empty() && rule.gids.is_empty() && rule.sans.is_empty();
            is_token_only
                || rule.uids.iter().any(|uid| *uid == 0 || *uid == user.uid)
                || rule.gids.iter().any(|gid| *gid == 0 || Some(*gid) == user.gid)
        };
        (has_socket && !rules.iter().any(matches)).then(|| {
            "callers: no rule matches root or the daemon's user, so that `sudo caproot status` is \
             refused; add a rule, such as {name: operator, uids: [root]}"
                .to_owned()
        })
    }
}

impl DaemonUser {
    fn of(env: &ProcessEnv) -> Self {
        let unit = || User::from_name(UNIT_USER).ok().flatten();
        let account = if env.uid == 0 { unit() } else { None };
        let uid = account.as_ref().map_or(env.uid, |account| account.uid.as_raw());
        let own = || User::from_uid(Uid::from_raw(uid)).ok().flatten();
        let gid = account.clone().or_else(own).map(|account| account.gid.as_raw());
        Self { uid, gid, account }
    }

    /// Lists a directory as this user.
    fn try_read(&self, dir: &Path) -> io::Result<()> {
        let list = || std::fs::read_dir(dir).map(drop);
        let Some(account) = &self.account else { return list() };
        // Each thread has credentials of its own: credentials(7).
        std::thread::scope(|scope| {
            let as_account =
                scope.spawn(|| if become_user(account).is_ok() { list() } else { Ok(()) });
            as_account.join().unwrap_or(Ok(()))
        })
    }

    fn unreadable_warning(&self, name: &str, dir: &Path, error: &io::Error) -> String {
        let who = self.account.as_ref().map_or("this user", |_| "the user caproot");
        let dir = dir.display();
        match error.kind() {
            ErrorKind::PermissionDenied => format!(
                "{name} cannot be read by {who}; grant access, such as with `setfacl -R -m \
                 u:{UNIT_USER}:rX {dir}`"
            ),
            _ => format!("{name} cannot be read by {who}: {error}"),
        }
    }
}

/// Makes this thread, and no other, run as an account.
fn become_user(account: &User) -> io::Result<()> {
    let name = CString::new(account.name.as_str())?;
    let groups = getgrouplist(&name, account.gid)?;
    let groups: Vec<_> =
        groups.iter().map(|gid| rustix::process::Gid::from_raw(gid.as_raw())).collect();
    set_thread_groups(&groups)?;
    set_thread_gid(rustix::process::Gid::from_raw(account.gid.as_raw()))?;
    set_thread_uid(rustix::process::Uid::from_raw(account.uid.as_raw()))?;
    Ok(())
}
