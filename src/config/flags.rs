//! The flags of `caproot serve`, and what is published when nobody says.

use super::error::{ConfigError, ConfigErrors};
use super::tls::{self, TlsFlags};
use super::{ListenAddress, address};
use crate::domain::{PublishedRoot, RootId, RootScope};
use crate::endpoint::ProcessEnv;
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The flags of `caproot serve`, as they were given. Each that is given replaces what the config file
/// says of it.
#[derive(Debug, Clone, Default)]
pub struct ServeFlags {
    /// Directories to publish and allow.
    pub roots: Vec<RootFlag>,
    /// Directories to allow.
    pub allow: Vec<PathBuf>,
    /// The environments whose roots are resolved.
    pub environment_ids: Vec<String>,
    /// `unix:PATH` or `tcp:HOST:PORT`.
    pub listen: Vec<String>,
    /// Whether every call is logged; if not, the file decides.
    pub audit: bool,
    /// What TLS is made of.
    pub tls: TlsFlags,
    /// Whether a change of the config file is a reload; if not, the file decides.
    pub watch_config: bool,
}

/// One `--root [ID=]DIR`.
#[derive(Debug, Clone)]
pub struct RootFlag {
    /// The id, where one was given.
    pub id: Option<String>,
    /// The directory; relative ones are taken from the current directory.
    pub dir: PathBuf,
}

/// Flags that were checked; `None` where none was given.
#[derive(Debug)]
pub(super) struct CheckedFlags {
    pub(super) environment_ids: Option<Vec<String>>,
    pub(super) listeners: Option<Vec<ListenAddress>>,
    pub(super) allowed_dirs: Option<Vec<PathBuf>>,
    pub(super) published_roots: Option<Vec<PublishedRoot>>,
    pub(super) audit: Option<bool>,
    pub(super) tls: tls::TlsSettings,
    pub(super) watch_config: Option<bool>,
}

impl CheckedFlags {
    /// Says which listeners others than this machine would reach.
    pub(super) fn reject_remote_listeners(&self, mistakes: &mut ConfigErrors) {
        for listener in self.listeners.iter().flatten() {
            if let (ListenAddress::Tcp(address), Err(reason)) =
                (listener, address::require_local_or_tls(listener))
            {
                mistakes.add(ConfigError::flag("--listen", &format!("tcp:{address}"), reason));
            }
        }
    }
}

/// Checks the flags.
pub(super) fn check(
    flags: ServeFlags,
    env: &ProcessEnv,
    mistakes: &mut ConfigErrors,
) -> CheckedFlags {
    let base = env.current_dir.as_deref();
    let listeners = flags.listen.iter().filter_map(|text| {
        let refuse = |reason| mistakes.add(ConfigError::flag("--listen", text, reason));
        address::parse_listener(text, base).map_err(refuse).ok()
    });
    let listeners = (!flags.listen.is_empty()).then(|| listeners.collect());
    let allowed = flags.allow.iter().filter_map(|dir| {
        let refuse =
            |reason| mistakes.add(ConfigError::flag("--allow", &dir.to_string_lossy(), reason));
        address::absolute_path(dir, base).map_err(refuse).ok()
    });
    let allowed = (!flags.allow.is_empty()).then(|| allowed.collect());
    for id in &flags.environment_ids {
        if let Err(reason) = RootId::new(id) {
            mistakes.add(ConfigError::flag("--environment-id", id, reason));
        }
    }
    let published =
        (!flags.roots.is_empty()).then(|| check_root_flags(&flags.roots, env, mistakes));
    let environment_ids = (!flags.environment_ids.is_empty()).then_some(flags.environment_ids);
    let audit = flags.audit.then_some(true);
    let watch_config = flags.watch_config.then_some(true);
    let tls = tls::check_flags(&flags.tls, base, mistakes);
    CheckedFlags {
        environment_ids,
        listeners,
        allowed_dirs: allowed,
        published_roots: published,
        audit,
        tls,
        watch_config,
    }
}

fn check_root_flags(
    roots: &[RootFlag],
    env: &ProcessEnv,
    mistakes: &mut ConfigErrors,
) -> Vec<PublishedRoot> {
    let mut taken: HashSet<RootId> = HashSet::new();
    let mut published = Vec::new();
    // Ids that were given come first, so that a derived one never takes one away.
    let (given, derived): (Vec<_>, Vec<_>) = roots.iter().partition(|r| r.id.is_some());
    for flag in given.into_iter().chain(derived) {
        let mut refuse = |value: &str, reason| {
            mistakes.add(ConfigError::flag("--root", value, reason));
        };
        let dir = match named_directory(&flag.dir, env) {
            Ok(dir) => dir,
            Err(reason) => {
                refuse(&flag.dir.to_string_lossy(), reason);
                continue;
            }
        };
        let id = match &flag.id {
            None => unique_id(&dir, &taken),
            Some(id) => match RootId::new(id) {
                Ok(id) if taken.contains(&id) => {
                    refuse(id.as_str(), "is given as an id twice".to_owned());
                    continue;
                }
                Ok(id) => id,
                Err(problem) => {
                    refuse(id, format!("cannot be an id: it {problem}"));
                    continue;
                }
            },
        };
        taken.insert(id.clone());
        published.push(root(id, &dir, RootScope::User));
    }
    published
}

/// A directory that is there, or may come later; what is something else is a slip.
fn named_directory(dir: &Path, env: &ProcessEnv) -> Result<PathBuf, String> {
    let dir = address::absolute_path(dir, env.current_dir.as_deref())?;
    if dir.exists() && !dir.is_dir() { Err("is not a directory".to_owned()) } else { Ok(dir) }
}

/// The directory's name, or the first of `name-2`, `name-3` … that is free.
fn unique_id(dir: &Path, taken: &HashSet<RootId>) -> RootId {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let name: String = name.chars().filter(|c| !c.is_control()).take(60).collect();
    let name = if RootId::new(&name).is_ok() { name } else { "root".to_owned() };
    let ids = std::iter::once(name.clone()).chain((2..).map(|n| format!("{name}-{n}")));
    let mut free = ids.filter_map(|id| RootId::new(&id).ok()).filter(|id| !taken.contains(id));
    free.next().expect("there are more numbers than roots")
}

fn root(id: RootId, dir: &Path, scope: RootScope) -> PublishedRoot {
    let path = dir.as_os_str().as_bytes().into();
    // What came with the agent links nowhere; a link there is not its author's.
    PublishedRoot { id, path, scope, follow_links: scope != RootScope::System }
}

/// The ids of the places where Codex keeps skills.
pub(super) const DEFAULT_ROOT_IDS: [&str; 5] = ["repo", "user", "codex", "system", "admin"];

/// The places where Codex keeps skills, as far as they exist.
pub(super) fn default_roots(env: &ProcessEnv) -> Vec<PublishedRoot> {
    let home = env.home.as_deref();
    let codex = env.codex_home.clone().or_else(|| home.map(|h| h.join(".codex")));
    let codex = codex.as_deref();
    let [repo, user, codex_id, system, admin] = DEFAULT_ROOT_IDS;
    let places = [
        (repo, RootScope::Repo, env.current_dir.as_deref().map(|d| d.join(".agents/skills"))),
        (user, RootScope::User, home.map(|h| h.join(".agents/skills"))),
        (codex_id, RootScope::User, codex.map(|c| c.join("skills"))),
        (system, RootScope::System, codex.map(|c| c.join("skills/.system"))),
        (admin, RootScope::Admin, Some(env.etc.join("codex/skills"))),
    ];
    let there = places.into_iter().filter_map(|(id, scope, dir)| {
        let dir = dir.filter(|d| d.is_dir())?;
        Some(root(RootId::new(id).ok()?, &dir, scope))
    });
    there.collect()
}
