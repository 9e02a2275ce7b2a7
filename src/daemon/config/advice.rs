//! Warnings of `caproot config check` that depend on the disk and on the accounts of this machine.

use super::{Config, ListenAddress, ProcessEnv, is_missing_optional, native_path};
use crate::daemon::grpc::auth::CallerRule;
use crate::daemon::model::LandlockMode;
use nix::unistd::{Uid, User, getgrouplist};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
use std::ffi::CString;
use std::fs::read_dir;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::thread::{Builder, scope};

/// Returns the warning if no directory is published or allowed, with the directories that may be created.
pub fn nothing_published(config: &Config, env: &ProcessEnv) -> String {
    let roots = config.published_roots.iter();
    let missing: Vec<_> = roots
        .filter(|root| root.is_optional)
        .map(|root| {
            let needs_restart =
                config.landlock != LandlockMode::Off && Config::needs_home(root, env);
            let restart = if needs_restart {
                " (and restart the daemon)"
            } else {
                ""
            };
            format!("{}{restart}", native_path(&root.path).display())
        })
        .collect();
    let create = if missing.is_empty() {
        String::new()
    } else {
        format!("create {}; or ", missing.join(" or "))
    };
    format!(
        "nothing is published, so callers find no skills: {create}list directories under `roots` in the \
         config file, or start the daemon with --root DIR"
    )
}

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

impl Config {
    /// Returns warnings about directories that the daemon cannot read, and about rules that deny
    /// the operator. Blocks on the disk.
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

        for root in &self.published_roots {
            if !is_missing_optional(root) {
                let dir = native_path(&root.path);
                let name = format!("{}: {}", root.id.as_str(), dir.display());
                warnings.extend(user.dir_warning(&name, &dir));
            }
        }
        for dir in self.extra_allowed_dirs() {
            let name = format!("allow: {}", dir.display());
            warnings.extend(user.dir_warning(&name, dir));
        }

        warnings.extend(operator_lockout_warning(self, &user));
        warnings
    }
}

fn operator_lockout_warning(config: &Config, user: &DaemonUser) -> Option<String> {
    let rules = &config.callers.as_ref()?.callers.rules;
    let has_socket = config
        .listeners
        .iter()
        .any(|at| !matches!(at, ListenAddress::Tcp(_)));
    let is_locked_out = !rules.iter().any(|rule| user.matches(rule));
    (has_socket && is_locked_out).then(|| {
        "callers: no rule matches root or the daemon's user, so `sudo caproot status` is denied; add a \
         rule, such as {name: operator, uids: [root]}"
            .to_owned()
    })
}

impl DaemonUser {
    fn of(env: &ProcessEnv) -> Self {
        let unit_user = (env.uid == 0).then(|| User::from_name(UNIT_USER));
        let account = unit_user.and_then(|found| found.ok().flatten());
        let uid = account.as_ref().map_or(env.uid, |user| user.uid.as_raw());
        let user = account.clone();
        let user = user.or_else(|| User::from_uid(Uid::from_raw(uid)).ok().flatten());
        Self {
            uid,
            gid: user.map(|user| user.gid.as_raw()),
            account,
        }
    }

    /// Whether a rule matches root or the user. The rule's token is not known.
    fn matches(&self, rule: &CallerRule) -> bool {
        let is_token_only = rule.uids.is_empty() && rule.gids.is_empty() && rule.sans.is_empty();
        is_token_only
            || rule.uids.iter().any(|uid| *uid == 0 || *uid == self.uid)
            || rule
                .gids
                .iter()
                .any(|gid| *gid == 0 || Some(*gid) == self.gid)
    }

    /// Returns a warning if the user cannot list a directory. `name` begins the warning.
    fn dir_warning(&self, name: &str, dir: &Path) -> Option<String> {
        let error = self.try_read(dir).err()?;
        let account = self.account.as_ref();
        let who = account.map_or("this user", |_| "the user caproot");
        Some(match error.kind() {
            ErrorKind::NotFound => format!("{name} does not exist; create it, or correct the path"),
            ErrorKind::PermissionDenied => format!(
                "{name} cannot be read by {who}; grant access, such as with `setfacl -R -m \
                 u:{UNIT_USER}:rX {}`",
                dir.display()
            ),
            _ => format!("{name} cannot be read by {who}: {error}"),
        })
    }

    /// Lists a directory with the permissions of the user.
    fn try_read(&self, dir: &Path) -> io::Result<()> {
        let Some(account) = &self.account else {
            return read_dir(dir).map(drop);
        };

        // Linux has credentials per thread: credentials(7).
        scope(|scope| {
            let spawned = Builder::new().spawn_scoped(scope, || match become_user(account) {
                Ok(()) => read_dir(dir).map(drop),
                // A thread of another user would learn nothing about the daemon.
                Err(_) => Ok(()),
            });
            // Without a thread there is no advice.
            spawned.map_or(Ok(()), |thread| thread.join().unwrap_or(Ok(())))
        })
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

    // The user changes last, because other users than root may not set groups: setgroups(2).
    set_thread_groups(&groups)?;
    set_thread_gid(rustix::process::Gid::from_raw(account.gid.as_raw()))?;
    set_thread_uid(rustix::process::Uid::from_raw(account.uid.as_raw()))?;
    Ok(())
}
