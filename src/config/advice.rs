//! Warnings of `caproot config check` that depend on the disk and on the accounts of this machine.

use super::{Config, ListenAddress, ProcessEnv, is_missing_optional, native_path};
use crate::grpc::auth::CallerRule;
use nix::unistd::{Uid, User, getgrouplist};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
use std::ffi::CString;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::thread::{Builder, scope};

/// Warning if no directory is published or allowed.
pub const NOTHING_PUBLISHED: &str = "nothing is published, so callers find no skills: list \
     directories under `roots` in the config file, or start the daemon with --root DIR";

/// User and group of the daemon in the system unit.
const UNIT_USER: &str = "caproot";

/// User that the daemon runs as: the user of the unit if root runs the check, otherwise the user
/// who runs the check.
struct DaemonUser {
    uid: u32,
    gid: Option<u32>,
    /// Account whose permissions are tested; `None` for the account of this process.
    account: Option<User>,
}

/// Implements [`Config::advice`].
pub fn warnings(config: &Config, env: &ProcessEnv) -> Vec<String> {
    let user = DaemonUser::of(env);
    let mut warnings = Vec::new();
    if config.published_roots.is_empty() && !config.allowed_dirs.is_empty() {
        warnings.push(
            "no root is published: callers select directories below `allow`, and `caproot list` \
             needs --root"
                .to_owned(),
        );
    }
    let roots = config
        .published_roots
        .iter()
        .filter(|root| !is_missing_optional(root))
        .map(|root| {
            let dir = native_path(&root.path);
            (
                format!("roots: {}: {}", root.id.as_str(), dir.display()),
                dir,
            )
        });
    let allowed = config.extra_allowed_dirs().iter();
    let allowed = allowed.map(|dir| (format!("allow: {}", dir.display()), dir.clone()));
    warnings.extend(roots.chain(allowed).filter_map(|(name, dir)| {
        let error = user.try_read(&dir).err()?;
        Some(match error.kind() {
            ErrorKind::NotFound => format!("{name} does not exist; create it, or correct the path"),
            _ => user.unreadable_warning(&name, &dir, &error),
        })
    }));
    warnings.extend(operator_lockout_warning(config, &user));
    warnings
}

fn operator_lockout_warning(config: &Config, user: &DaemonUser) -> Option<String> {
    let rules = &config.callers.as_ref()?.callers.rules;
    let has_socket = config
        .listeners
        .iter()
        .any(|at| !matches!(at, ListenAddress::Tcp(_)));
    let matches = |rule: &CallerRule| {
        let is_token_only = rule.uids.is_empty() && rule.gids.is_empty() && rule.sans.is_empty();
        is_token_only
            || rule.uids.iter().any(|uid| *uid == 0 || *uid == user.uid)
            || rule
                .gids
                .iter()
                .any(|gid| *gid == 0 || Some(*gid) == user.gid)
    };
    (has_socket && !rules.iter().any(matches)).then(|| {
        "callers: no rule matches root or the daemon's user, so `sudo caproot status` is denied; add a \
         rule, such as {name: operator, uids: [root]}"
            .to_owned()
    })
}

impl DaemonUser {
    fn of(env: &ProcessEnv) -> Self {
        let unit = || User::from_name(UNIT_USER).ok().flatten();
        let account = if env.uid == 0 { unit() } else { None };
        let uid = account
            .as_ref()
            .map_or(env.uid, |account| account.uid.as_raw());
        let own = || User::from_uid(Uid::from_raw(uid)).ok().flatten();
        let gid = account
            .clone()
            .or_else(own)
            .map(|account| account.gid.as_raw());
        Self { uid, gid, account }
    }

    /// Lists a directory with the permissions of the user.
    fn try_read(&self, dir: &Path) -> io::Result<()> {
        let list = || std::fs::read_dir(dir).map(drop);
        let Some(account) = &self.account else {
            return list();
        };
        // Linux has credentials per thread: credentials(7).
        scope(|scope| {
            let list_as_account = || {
                if become_user(account).is_ok() {
                    list()
                } else {
                    Ok(())
                }
            };
            // Without a thread there is no advice.
            let as_account = Builder::new().spawn_scoped(scope, list_as_account);
            as_account.map_or(Ok(()), |thread| thread.join().unwrap_or(Ok(())))
        })
    }

    fn unreadable_warning(&self, name: &str, dir: &Path, error: &io::Error) -> String {
        let who = self
            .account
            .as_ref()
            .map_or("this user", |_| "the user caproot");
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

/// Makes this thread, and no other thread, run as an account.
fn become_user(account: &User) -> io::Result<()> {
    let name = CString::new(account.name.as_str())?;
    let groups = getgrouplist(&name, account.gid)?;
    let groups: Vec<_> = groups
        .iter()
        .map(|gid| rustix::process::Gid::from_raw(gid.as_raw()))
        .collect();
    set_thread_groups(&groups)?;
    set_thread_gid(rustix::process::Gid::from_raw(account.gid.as_raw()))?;
    set_thread_uid(rustix::process::Uid::from_raw(account.uid.as_raw()))?;
    Ok(())
}
