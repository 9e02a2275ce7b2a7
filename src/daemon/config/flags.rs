//! Flags of `caproot serve`, and the roots that are published by default.

use super::presets::{FoundRoots, RootPreset};
use super::project_roots::{DEFAULT_PLACE, project_root_ids, project_roots};
use super::tls::{self, TlsFlags};
use super::{GivenSettings, ListenAddress, address, native_path};
use crate::daemon::model::{PublishedRoot, RootScope};
use caproot_core::document::{ConfigError, ConfigErrors};
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::wire::RootId;
use std::collections::HashSet;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Flags of `caproot serve`. Each flag replaces its key in the config file.
#[derive(Debug, Clone, Default)]
pub struct ServeFlags {
    /// Directories to publish and allow.
    pub roots: Vec<RootFlag>,
    /// Tools whose directories of skills are published and allowed.
    pub presets: Vec<RootPreset>,
    /// Directories to allow.
    pub allow: Vec<PathBuf>,
    /// Environments whose roots the daemon resolves.
    pub environment_ids: Vec<String>,
    /// Addresses to listen on: `unix:PATH` or `tcp:HOST:PORT`.
    pub listen: Vec<String>,
    /// Whether every call is logged. If false, the file decides.
    pub audit: bool,
    /// Flags of TLS.
    pub tls: TlsFlags,
    /// Whether the daemon reloads the config file when the file changes. If false, the file
    /// decides.
    pub watch_config: bool,
}

/// Value of `--root [ID=]DIR`.
#[derive(Debug, Clone)]
pub struct RootFlag {
    /// Id of the root; `None` derives the id from the name of the directory.
    pub id: Option<String>,
    /// Directory; relative paths start at the current directory.
    pub dir: PathBuf,
}

/// Reports the listeners of `--listen` that other machines can reach.
pub fn reject_remote_listeners<'a>(
    listeners: impl Iterator<Item = &'a ListenAddress>,
    errors: &mut ConfigErrors,
) {
    for listener in listeners {
        if let (ListenAddress::Tcp(address), Err(reason)) =
            (listener, address::require_local_or_tls(listener))
        {
            errors.add(ConfigError::flag(
                "--listen",
                &format!("tcp:{address}"),
                reason,
            ));
        }
    }
}

/// Checks the flags.
pub fn check(flags: ServeFlags, env: &ProcessEnv, errors: &mut ConfigErrors) -> GivenSettings {
    let base = env.current_dir.as_deref();

    let mut listeners = Vec::new();
    for text in &flags.listen {
        match address::parse_listener(text, base) {
            Ok(listener) => listeners.push(listener),
            Err(reason) => errors.add(ConfigError::flag("--listen", text, reason)),
        }
    }

    let mut allowed_dirs = Vec::new();
    for dir in &flags.allow {
        match address::absolute_path(dir, base) {
            Ok(dir) => allowed_dirs.push(dir),
            Err(reason) => {
                errors.add(ConfigError::flag("--allow", &dir.to_string_lossy(), reason));
            }
        }
    }

    for id in &flags.environment_ids {
        if let Err(reason) = RootId::new(id) {
            errors.add(ConfigError::flag("--environment-id", id, reason));
        }
    }

    let names_roots = !flags.roots.is_empty() || !flags.presets.is_empty();
    let found = check_root_flags(&flags, env, errors);
    let tls = tls::check_flags(&flags.tls, base, errors);
    GivenSettings {
        // A flag with a wrong value is set, too: it must not fall back to the file.
        environment_ids: (!flags.environment_ids.is_empty()).then_some(flags.environment_ids),
        listeners: (!flags.listen.is_empty()).then_some(listeners),
        allowed_dirs: (!flags.allow.is_empty()).then_some(allowed_dirs),
        published_roots: names_roots.then_some(found.roots),
        root_warnings: found.warnings,
        audit: flags.audit.then_some(true),
        tls,
        watch_config: flags.watch_config.then_some(true),
        ..GivenSettings::default()
    }
}

fn check_root_flags(flags: &ServeFlags, env: &ProcessEnv, errors: &mut ConfigErrors) -> FoundRoots {
    let mut found = FoundRoots::default();
    for (position, preset) in flags.presets.iter().enumerate() {
        if flags.presets[..position].contains(preset) {
            let reason = "duplicate preset";
            errors.add(ConfigError::flag("--preset", preset.name(), reason));
            continue;
        }
        let mut of_preset = preset.find_roots(env);
        found.roots.append(&mut of_preset.roots);
        found.warnings.append(&mut of_preset.warnings);
    }

    // Explicit ids come first, so that a derived id never conflicts with a later explicit one.
    let explicit = flags.roots.iter().filter(|flag| flag.id.is_some());
    let derived = flags.roots.iter().filter(|flag| flag.id.is_none());

    let mut taken: HashSet<RootId> = found.roots.iter().map(|root| root.id.clone()).collect();
    for flag in explicit.chain(derived) {
        match check_root_flag(flag, &taken, env) {
            Ok(new) => {
                taken.insert(new.id.clone());
                found.roots.push(new);
            }
            Err(error) => errors.add(error),
        }
    }
    found
}

/// Returns the root of a flag. `taken` are the ids of earlier flags.
fn check_root_flag(
    flag: &RootFlag,
    taken: &HashSet<RootId>,
    env: &ProcessEnv,
) -> Result<PublishedRoot, ConfigError> {
    let dir = address::absolute_directory(&flag.dir, env.current_dir.as_deref())
        .map_err(|reason| ConfigError::flag("--root", &flag.dir.to_string_lossy(), reason))?;

    let id = match &flag.id {
        None => unique_id(&dir, taken),
        Some(id) => {
            let id = RootId::new(id).map_err(|reason| {
                ConfigError::flag("--root", id, format!("invalid id: {reason}"))
            })?;
            if taken.contains(&id) {
                let reason = "duplicate id; ids must be unique";
                return Err(ConfigError::flag("--root", id.as_str(), reason));
            }
            id
        }
    };
    Ok(root(id, &dir, RootScope::User))
}

/// Returns the name of the directory, or the first unused id of `name-2`, `name-3` and so on.
fn unique_id(dir: &Path, taken: &HashSet<RootId>) -> RootId {
    let file_name = dir.file_name().unwrap_or_default().to_string_lossy();
    // The name takes at most 240 of the 256 bytes of an id, so that a number fits after the name.
    let short: String = file_name
        .chars()
        .filter(|c| !c.is_control())
        .take(60)
        .collect();
    let name = if RootId::new(&short).is_ok() {
        short
    } else {
        "root".to_owned()
    };

    let mut free_ids = std::iter::once(name.clone())
        .chain((2..).map(|n| format!("{name}-{n}")))
        .filter_map(|id| RootId::new(&id).ok())
        .filter(|id| !taken.contains(id));
    free_ids.next().expect("there are more numbers than roots")
}

/// Returns a root that always exists.
pub fn root(id: RootId, dir: &Path, scope: RootScope) -> PublishedRoot {
    PublishedRoot {
        id,
        path: dir.as_os_str().as_bytes().into(),
        scope,
        // The agent installs the directory of the system without links, so a link is not by the author
        // of the skills.
        follow_links: scope != RootScope::System,
        is_optional: false,
        link_dirs: Box::default(),
    }
}

/// Ids of the directories outside projects where Codex keeps skills.
const DEFAULT_ROOT_IDS: [&str; 4] = ["user", "codex", "system", "admin"];

/// Whether a default root can have the id.
pub fn is_default_root_id(id: &RootId) -> bool {
    DEFAULT_ROOT_IDS.contains(&id.as_str())
        || project_root_ids(&DEFAULT_PLACE).any(|known| known == id.as_str())
}

/// Returns the roots of the project, and the directories where Codex keeps skills, with warnings. If two
/// ids have the same directory, only the last id is returned.
pub fn default_roots(env: &ProcessEnv) -> FoundRoots {
    let home = env.home.as_deref();
    let default_codex = home.map(|home| home.join(".codex"));
    let codex = env.codex_home.as_deref().or(default_codex.as_deref());

    let [user, codex_id, system, admin] = DEFAULT_ROOT_IDS;
    let etc = Some(&*env.etc);
    let candidates = [
        (user, RootScope::User, home, ".agents/skills"),
        (codex_id, RootScope::User, codex, "skills"),
        (system, RootScope::System, codex, "skills/.system"),
        (admin, RootScope::Admin, etc, "codex/skills"),
    ];

    let FoundRoots {
        mut roots,
        warnings,
    } = project_roots(&DEFAULT_PLACE, env);
    for (id, scope, parent, name) in candidates {
        if let (Ok(id), Some(parent)) = (RootId::new(id), parent) {
            let dir = parent.join(name);
            let mut root = root(id, &dir, scope);
            // A directory at home may be created later. Only root creates the directory of `admin`.
            root.is_optional = scope != RootScope::Admin;
            if scope == RootScope::User {
                root.link_dirs = RootPreset::other_home_dirs(&dir, env);
            }
            roots.push(root);
        }
    }

    // The last id of a directory stays, so that the roots are examined from the end.
    let mut seen = HashSet::new();
    roots.reverse();
    roots.retain(|root| match fs::metadata(native_path(&root.path)) {
        Ok(meta) if meta.is_dir() => seen.insert((meta.dev(), meta.ino())),
        _ => root.is_optional,
    });
    FoundRoots { roots, warnings }
}
