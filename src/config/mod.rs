//! From a file, flags and surroundings to a checked configuration, or every mistake at once. Binds
//! nothing, and opens nothing but the file, and the certificates and tokens that it names.

mod accounts;
mod address;
mod advice;
mod callers;
mod disabled_skills;
mod error;
pub mod example;
mod file;
mod flags;
mod inherited_sockets;
mod limits;
pub mod log;
mod reload;
mod section;
mod settings;
mod socket_access;
mod tls;
mod traces;

pub use self::callers::CallerRules;
pub use self::error::ConfigError;
pub use self::flags::{RootFlag, ServeFlags};
pub use self::log::{LogConfig, LogFormat};
pub use self::reload::{RESTART_KEYS, RestartRequired};
pub use self::socket_access::{SocketAccess, SocketAccessRules};
pub use self::tls::{TlsFiles, TlsFlags};
pub use self::traces::TraceConfig;
pub use crate::endpoint::{InheritedSocketInfo, ProcessEnv};
pub use crate::yaml_document::TextPosition;

use crate::catalog::{FaultInjector, OpenMethod, WatchTiming};
use crate::domain::search::SearchRules;
use crate::domain::{DisableRules, LandlockMode, Limits, PublishedRoot, RootId};
use crate::yaml_document;
use error::ConfigErrors;
use settings::FileSettings;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A configuration that the daemon can start with.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools)] // each is a key of the file
pub struct Config {
    /// The environments whose roots are resolved; never empty.
    pub environment_ids: Vec<String>,
    /// Where to listen; empty only where sockets were handed over, which are not among these.
    pub listeners: Vec<ListenAddress>,
    /// What TLS is made of; with it, every TCP listener has TLS.
    pub tls: Option<TlsFiles>,
    /// The directories below which roots and their links may lie, absolute.
    pub allowed_dirs: Vec<PathBuf>,
    /// In scope order, then by id.
    pub published_roots: Vec<PublishedRoot>,
    /// Modes and groups of Unix sockets.
    pub socket_access: SocketAccessRules,
    /// Who may ask; whoever can connect, where there are no rules.
    pub callers: Option<CallerRules>,
    /// Whether health is told to whoever can connect, whatever the rules.
    pub open_health: bool,
    /// The same of reflection.
    pub open_reflection: bool,
    /// Whether every call is logged, and not only refused ones.
    pub audit: bool,
    /// Skills that are neither listed nor readable.
    pub disabled_skills: Arc<DisableRules>,
    /// Directories that are never entered, by name.
    pub excluded_dirs: Vec<Box<[u8]>>,
    /// Directories that are not entered directly inside a skill, by name.
    pub resource_dirs: Vec<Box<[u8]>>,
    /// The limits in force.
    pub limits: Limits,
    /// When roots are looked at.
    pub timing: WatchTiming,
    /// Whether a change of the config file is a reload.
    pub watch_config: bool,
    /// Of the watcher, ordered by tests.
    #[doc(hidden)]
    pub faults: FaultInjector,
    /// What is asked of the kernel's Landlock.
    pub landlock: LandlockMode,
    /// How files are opened; `None` asks the kernel. Set by tests only.
    #[doc(hidden)]
    pub opener: Option<OpenMethod>,
    /// When a connection is found dead.
    pub keepalive: KeepaliveConfig,
    /// How the daemon logs.
    pub log: LogConfig,
    /// Where Prometheus scrapes, if it does.
    pub metrics: Option<ListenAddress>,
    /// Where spans are sent, if they are.
    pub traces: Option<TraceConfig>,
    /// What stops nobody, and whoever runs the daemon should know: sentences.
    pub warnings: Vec<String>,
}

/// When a connection is found dead whose other end vanished without a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepaliveConfig {
    /// How often a silent connection is asked whether it is still there.
    pub interval: Duration,
    /// How long the answer may take.
    pub timeout: Duration,
}

impl Default for KeepaliveConfig {
    fn default() -> Self {
        Self { interval: Duration::from_secs(30), timeout: Duration::from_secs(20) }
    }
}

/// A place to listen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// A socket in a directory that is there.
    Unix(PathBuf),
    /// A socket in a directory that the daemon makes for itself.
    UnixInOwnDir(PathBuf),
    /// An address, on loopback unless TLS or the operator lets it leave; port 0 takes a free one.
    Tcp(SocketAddr),
}

impl Config {
    /// Checks the flags of a daemon without a config file.
    pub fn from_flags(flags: ServeFlags, env: &ProcessEnv) -> Result<Self, Vec<ConfigError>> {
        Self::load(flags, None, env)
    }

    /// Reads and checks a config file and flags, each of which replaces what the file says of it. The
    /// error holds every mistake.
    pub fn load(
        flags: ServeFlags,
        file: Option<&Path>,
        env: &ProcessEnv,
    ) -> Result<Self, Vec<ConfigError>> {
        Self::build(flags, file.map(|path| (path, file::read(path))), env)
    }

    /// The same with a file of which the bytes are there already, by the name of `file`.
    pub fn from_bytes(
        flags: ServeFlags,
        file: &Path,
        bytes: Vec<u8>,
        env: &ProcessEnv,
    ) -> Result<Self, Vec<ConfigError>> {
        Self::build(flags, Some((file, file::text(file, bytes))), env)
    }

    fn build(
        flags: ServeFlags,
        file: Option<(&Path, Result<String, ConfigError>)>,
        env: &ProcessEnv,
    ) -> Result<Self, Vec<ConfigError>> {
        let mut mistakes = ConfigErrors::default();
        let flags = flags::check(flags, env, &mut mistakes);
        let by_flag = |id: &RootId| flags.published_roots.iter().flatten().any(|p| p.id == *id);
        let may_leave = flags.tls.allows_remote();
        let settings = file
            .map(|(path, text)| parse_settings(path, text, by_flag, may_leave, env, &mut mistakes));
        let file = settings.unwrap_or_default();
        let (excluded_dirs, resource_dirs) = (file.excluded_dirs(), file.resource_dirs());
        if !may_leave && !file.tls.allows_remote() {
            flags.reject_remote_listeners(&mut mistakes);
            inherited_sockets::reject_remote_listeners(env, &mut mistakes);
        }
        inherited_sockets::check_metrics(env, file.metrics.is_some(), &mut mistakes);
        let tls = tls::merge_flags_and_file(flags.tls, file.tls, &mut mistakes);
        mistakes.into_result()?;
        let published = flags.published_roots.or(file.published_roots);
        let allowed = flags.allowed_dirs.or(file.allowed_dirs);
        let mut published = match (&published, &allowed) {
            (None, None) => flags::default_roots(env),
            _ => published.unwrap_or_default(),
        };
        published.sort_by(|a, b| (a.scope, &a.id).cmp(&(b.scope, &b.id)));
        let dirs = published.iter().map(|p| PathBuf::from(std::ffi::OsStr::from_bytes(&p.path)));
        let environment_ids = flags.environment_ids.or(file.environment_ids);
        let listeners = flags.listeners.or(file.listeners);
        let allowed: Vec<_> = dirs.chain(allowed.unwrap_or_default()).collect();
        let callers =
            file.callers.map(|drafts| callers::resolve_rules(drafts, &published, &allowed));
        let default =
            || inherited_sockets::has_no_grpc_sockets(env).then(|| address::default_listener(env));
        let listeners = listeners.unwrap_or_else(|| default().into_iter().collect());
        let served = [&listeners[..], &inherited_sockets::grpc_listeners(env)].concat();
        let mut warnings = tls::warnings(tls.as_ref(), &served);
        if callers.is_none() {
            warnings.extend(inherited_sockets::open_socket_warnings(env));
        }
        if file.socket.is_some() {
            let own = listeners.iter().chain(&file.metrics);
            warnings.extend(inherited_sockets::unused_socket_section_warning(env, own));
        }
        if allowed.is_empty() {
            warnings.push(advice::NOTHING_PUBLISHED.to_owned());
        }
        Ok(Self {
            environment_ids: environment_ids.unwrap_or_else(|| vec!["local".to_owned()]),
            listeners,
            tls,
            allowed_dirs: allowed,
            published_roots: published,
            socket_access: SocketAccessRules::new(file.socket, env),
            callers: callers.transpose()?,
            open_health: file.open_health.unwrap_or(true),
            open_reflection: file.open_reflection.unwrap_or(false),
            audit: flags.audit.or(file.audit).unwrap_or(false),
            disabled_skills: Arc::new(file.disabled_skills),
            excluded_dirs,
            resource_dirs,
            limits: file.limits,
            timing: file.timing,
            watch_config: flags.watch_config.or(file.watch_config).unwrap_or(false),
            faults: FaultInjector::default(),
            landlock: file.landlock,
            opener: None,
            keepalive: KeepaliveConfig::default(),
            log: file.log,
            metrics: file.metrics,
            traces: file.traces,
            warnings,
        })
    }

    /// Returns the roots that a config file publishes. Mistakes in its other keys do not matter here: a
    /// user who may read the file may still not read the certificates that the file names.
    pub fn read_published_roots(
        file: &Path,
        env: &ProcessEnv,
    ) -> Result<Vec<PublishedRoot>, Vec<ConfigError>> {
        let mut mistakes = ConfigErrors::default();
        let by_flag = |_: &RootId| false;
        let text = file::read(file);
        let settings = parse_settings(file, text, by_flag, false, env, &mut mistakes);
        match settings.published_roots {
            Some(published) => Ok(published),
            None => mistakes.into_result().map(|()| Vec::new()),
        }
    }

    /// The directories that are allowed beside the published roots.
    #[must_use]
    pub fn extra_allowed_dirs(&self) -> &[PathBuf] {
        self.allowed_dirs.get(self.published_roots.len()..).unwrap_or_default()
    }

    /// What a search may do under this configuration.
    #[must_use]
    pub fn search_rules(&self) -> SearchRules {
        SearchRules {
            limits: self.limits.clone(),
            skipped_dirs: self.excluded_dirs.clone(),
            resource_dirs: self.resource_dirs.clone(),
            follow_links: true,
            nested_roots: Arc::default(),
            disable_rules: self.disabled_skills.clone(),
        }
    }
}

/// What a file says, as far as it can be read.
fn parse_settings(
    path: &Path,
    text: Result<String, ConfigError>,
    by_flag: impl Fn(&RootId) -> bool,
    may_leave: bool,
    env: &ProcessEnv,
    mistakes: &mut ConfigErrors,
) -> FileSettings {
    let syntax =
        |e: yaml_document::SyntaxError| ConfigError::file(path, Some(e.position), e.reason);
    let document = text.and_then(|text| yaml_document::parse(&text).map_err(syntax));
    // Relative paths begin where the file is, wherever the daemon is started.
    let absolute = address::absolute_path(path, env.current_dir.as_deref()).ok();
    let base = absolute.as_deref().and_then(Path::parent);
    match document {
        Ok(node) => settings::read(&node, path, base, by_flag, may_leave, mistakes),
        Err(mistake) => {
            mistakes.add(mistake);
            FileSettings::default()
        }
    }
}

#[cfg(test)]
mod tests;
