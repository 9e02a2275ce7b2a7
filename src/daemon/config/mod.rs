//! The configuration of the daemon, from a file, flags and the environment. Loading reports every
//! error at once, binds no sockets, and opens only the file and the certificates and tokens that it
//! names.

mod accounts;
mod address;
mod advice;
mod callers;
mod disabled_skills;
mod example;
mod file;
mod flags;
mod inherited_sockets;
mod keys;
mod limits;
mod presets;
mod project_roots;
mod read_progress;
mod readiness;
mod reload;
mod roots;
mod settings;
mod socket_access;
mod socket_groups;
mod tls;
mod top_keys;
mod traces;
mod trust;

pub use self::accounts::service_uid;
pub use self::callers::CallerRules;
pub use self::example::example_file;
pub use self::file::MAX_FILE_BYTES;
pub use self::flags::{RootFlag, ServeFlags};
pub use self::keys::{KeyDescription, config_keys};
pub use self::presets::RootPreset;
pub use self::read_progress::{ReadProgress, record_reading};
pub use self::reload::RestartRequired;
pub use self::socket_access::{SocketAccess, SocketAccessRules};
pub use self::socket_groups::{group_of_socket, unit_socket_group};
pub use self::tls::{TlsFiles, TlsFlags};
pub use self::trust::{LoadedTrust, LockPaths, ReadLock};
pub use crate::log_config::{LogConfig, LogFormat, TraceConfig};
pub use caproot_core::document::{ConfigError, ConfigErrors, TextPosition};
pub use caproot_core::net::endpoint::{InheritedSocketInfo, ProcessEnv};

pub(crate) use self::file::read as read_config_file;
#[cfg(feature = "link")]
pub(crate) use self::settings::read_log_section;

use crate::daemon::catalog::{FaultInjector, OpenMethod, WatchTiming};
use crate::daemon::model::{DisableRules, LandlockMode, Limits, PublishedRoot, ReadinessConfig};
use crate::daemon::scan::search::{DEFAULT_RESOURCE_DIRS, DEFAULT_SKIPPED_DIRS, SearchRules};
use callers::RuleDraft;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tls::TlsSettings;

/// Longest time for reading the config file and the files that it names.
pub const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Checked configuration of a daemon.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools)] // each is a key of the file
pub struct Config {
    /// Environments whose roots the daemon resolves; never empty.
    pub environment_ids: Vec<String>,
    /// Addresses to listen on, without inherited sockets. Empty only if sockets were inherited.
    pub listeners: Vec<ListenAddress>,
    /// Certificate files. If set, every TCP listener uses TLS.
    pub tls: Option<TlsFiles>,
    /// Absolute paths of the directories below which roots and link targets may lie: those of the
    /// published roots first, then the others.
    pub allowed_dirs: Vec<PathBuf>,
    /// Published roots, sorted by scope, then by id.
    pub published_roots: Vec<PublishedRoot>,
    /// Modes and groups of Unix sockets.
    pub socket_access: SocketAccessRules,
    /// Groups whose members can connect to a Unix socket.
    pub socket_groups: BTreeSet<u32>,
    /// Rules that callers must match. `None` admits every caller that can connect.
    pub callers: Option<CallerRules>,
    /// Whether the health service answers callers that no rule matches.
    pub open_health: bool,
    /// Whether the reflection services answer callers that no rule matches.
    pub open_reflection: bool,
    /// Whether the audit log has every call, instead of denied calls only.
    pub audit: bool,
    /// Skills that are neither listed nor readable.
    pub disabled_skills: Arc<DisableRules>,
    /// Programs and variables that are looked up for skills.
    pub readiness: ReadinessConfig,
    /// Approval of skills by a lock.
    pub trust: Option<LoadedTrust>,
    /// Names of directories that are never entered.
    pub excluded_dirs: Vec<Box<[u8]>>,
    /// Names of directories that are not entered directly inside a skill.
    pub resource_dirs: Vec<Box<[u8]>>,
    /// Limits of the daemon.
    pub limits: Limits,
    /// Intervals of scans and debouncing.
    pub timing: WatchTiming,
    /// Whether the daemon reloads the config file when the file changes.
    pub watch_config: bool,
    /// Faults of the watcher, set by tests only.
    #[doc(hidden)]
    pub faults: FaultInjector,
    /// Whether Landlock is required, best-effort or off.
    pub landlock: LandlockMode,
    /// Method of opening files; `None` takes the best that the kernel has. Set by tests only.
    #[doc(hidden)]
    pub opener: Option<OpenMethod>,
    /// Time limits of connections.
    pub connection_timing: ConnectionTiming,
    /// Filter and format of the log.
    pub log: LogConfig,
    /// Address that Prometheus scrapes.
    pub metrics: Option<ListenAddress>,
    /// Collector of spans.
    pub traces: Option<TraceConfig>,
    /// Warnings for the operator that do not keep the daemon from starting.
    pub warnings: Vec<String>,
}

/// Time limits of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionTiming {
    /// Time without traffic after which the daemon sends an HTTP/2 ping.
    pub ping_interval: Duration,
    /// Time that the client has to answer a ping.
    pub ping_timeout: Duration,
    /// Time until a new connection must have an accepted call.
    pub first_call_timeout: Duration,
}

impl Default for ConnectionTiming {
    fn default() -> Self {
        Self {
            ping_interval: Duration::from_secs(10),
            ping_timeout: Duration::from_secs(10),
            first_call_timeout: Duration::from_secs(30),
        }
    }
}

/// Address of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// Unix socket in an existing directory.
    Unix(PathBuf),
    /// Unix socket in a directory that the daemon creates.
    UnixInOwnDir(PathBuf),
    /// TCP address. Must be loopback, unless TLS or `insecure_tcp` is configured. Port 0 takes a
    /// free port.
    Tcp(SocketAddr),
}

/// Values of the config file or of the flags; `None` for absent keys and flags.
#[derive(Debug, Default)]
struct GivenSettings {
    environment_ids: Option<Vec<String>>,
    listeners: Option<Vec<ListenAddress>>,
    tls: TlsSettings,
    allowed_dirs: Option<Vec<PathBuf>>,
    published_roots: Option<Vec<PublishedRoot>>,
    root_warnings: Vec<String>,
    socket: Option<SocketAccess>,
    callers: Option<Vec<RuleDraft>>,
    open_health: Option<bool>,
    open_reflection: Option<bool>,
    audit: Option<bool>,
    disabled_skills: DisableRules,
    readiness: ReadinessConfig,
    trust: Option<trust::TrustDraft>,
    excluded_dirs: Option<Vec<Box<[u8]>>>,
    resource_dirs: Option<Vec<Box<[u8]>>>,
    limits: Limits,
    timing: WatchTiming,
    watch_config: Option<bool>,
    landlock: LandlockMode,
    log: LogConfig,
    metrics: Option<ListenAddress>,
    traces: Option<TraceConfig>,
}

/// Published roots and allowed directories of flags and file together.
struct OfferedDirs {
    published_roots: Vec<PublishedRoot>,
    allowed_dirs: Vec<PathBuf>,
}

impl Config {
    /// Checks the flags of a daemon without a config file.
    pub fn from_flags(flags: ServeFlags, env: &ProcessEnv) -> Result<Self, ConfigErrors> {
        Self::load(flags, None, env)
    }

    /// Reads and checks a config file and flags. A flag replaces its key in the file.
    pub fn load(
        flags: ServeFlags,
        file: Option<&Path>,
        env: &ProcessEnv,
    ) -> Result<Self, ConfigErrors> {
        Self::build(flags, file.map(|path| (path, file::read(path))), env)
    }

    /// Checks flags and the content of a config file. Errors name the file by `file`.
    pub fn from_bytes(
        flags: ServeFlags,
        file: &Path,
        bytes: Vec<u8>,
        env: &ProcessEnv,
    ) -> Result<Self, ConfigErrors> {
        Self::build(flags, Some((file, file::decode(file, bytes))), env)
    }

    fn build(
        flags: ServeFlags,
        file: Option<(&Path, Result<String, ConfigError>)>,
        env: &ProcessEnv,
    ) -> Result<Self, ConfigErrors> {
        let mut errors = ConfigErrors::default();

        // The flags come first, because rules of the file may name their roots.
        let flags = flags::check(flags, env, &mut errors);
        let file = file
            .map(|(path, text)| file::parse(path, text, &flags, env, &mut errors))
            .unwrap_or_default();

        // These checks need both the flags and the file.
        if !flags.tls.allows_remote() && !file.tls.allows_remote() {
            flags::reject_remote_listeners(flags.listeners.iter().flatten(), &mut errors);
            inherited_sockets::reject_remote_listeners(env, &mut errors);
        }
        inherited_sockets::check_metrics(env, file.metrics.is_some(), &mut errors);
        let tls = tls::merge_flags_and_file(&flags.tls, &file.tls, &mut errors);
        errors.or_value(())?;

        // `allow` in the file says that the operator lists all directories. The flag adds to the default
        // roots, so that the advice to allow the target of a link does not remove them.
        let replaces_default_roots = file.allowed_dirs.is_some();

        // A flag replaces its key.
        let root_warnings = if flags.published_roots.is_some() {
            flags.root_warnings
        } else {
            file.root_warnings
        };
        let mut merged = GivenSettings {
            root_warnings,
            environment_ids: flags.environment_ids.or(file.environment_ids),
            listeners: flags.listeners.or(file.listeners),
            allowed_dirs: flags.allowed_dirs.or(file.allowed_dirs),
            published_roots: flags.published_roots.or(file.published_roots),
            audit: flags.audit.or(file.audit),
            watch_config: flags.watch_config.or(file.watch_config),
            tls: TlsSettings::default(),
            ..file
        };
        if merged.published_roots.is_none() && !replaces_default_roots {
            let found = flags::default_roots(env);
            merged.published_roots = Some(found.roots);
            merged.root_warnings = found.warnings;
        }
        Self::from_settings(merged, tls, env)
    }

    /// Fills in the defaults. `tls` are the files of flags and file together.
    fn from_settings(
        settings: GivenSettings,
        tls: Option<TlsFiles>,
        env: &ProcessEnv,
    ) -> Result<Self, ConfigErrors> {
        let offered = OfferedDirs::new(
            settings.published_roots.unwrap_or_default(),
            settings.allowed_dirs.unwrap_or_default(),
        );
        // Without `listen`, the daemon has no listener if the service manager handed sockets over.
        let listeners = settings.listeners.unwrap_or_else(|| {
            let is_needed = inherited_sockets::has_no_grpc_sockets(env);
            let default = is_needed.then(|| address::default_listener(env));
            default.into_iter().collect()
        });

        // The sockets come before the callers: their groups must not read the files of tokens.
        let socket_access = SocketAccessRules::new(settings.socket, env);
        let own_addresses = listeners.iter().chain(&settings.metrics);
        let socket_groups = socket_groups::connecting_groups(own_addresses, &socket_access, env);
        let callers = settings
            .callers
            .map(|drafts| callers::resolve_rules(drafts, &offered, &socket_groups))
            .transpose()?;

        let trust = settings
            .trust
            .map(|draft| trust::load(draft, &offered))
            .transpose()?;

        let mut config = Self {
            environment_ids: settings
                .environment_ids
                .unwrap_or_else(|| vec!["local".to_owned()]),
            listeners,
            tls,
            allowed_dirs: offered.allowed_dirs,
            published_roots: offered.published_roots,
            socket_access,
            socket_groups,
            callers,
            open_health: settings.open_health.unwrap_or(true),
            open_reflection: settings.open_reflection.unwrap_or(false),
            audit: settings.audit.unwrap_or(false),
            disabled_skills: Arc::new(settings.disabled_skills),
            readiness: settings.readiness,
            trust,
            excluded_dirs: settings
                .excluded_dirs
                .unwrap_or_else(|| to_dir_names(&DEFAULT_SKIPPED_DIRS)),
            resource_dirs: settings
                .resource_dirs
                .unwrap_or_else(|| to_dir_names(&DEFAULT_RESOURCE_DIRS)),
            limits: settings.limits,
            timing: settings.timing,
            watch_config: settings.watch_config.unwrap_or(false),
            faults: FaultInjector::default(),
            landlock: settings.landlock,
            opener: None,
            connection_timing: ConnectionTiming::default(),
            log: settings.log,
            metrics: settings.metrics,
            traces: settings.traces,
            warnings: Vec::new(),
        };
        let has_socket_section = settings.socket.is_some();
        config.warnings = config.load_warnings(has_socket_section, settings.root_warnings, env);
        Ok(config)
    }

    /// Returns the warnings of a load. `has_socket_section` tells whether the file sets the access to
    /// sockets.
    fn load_warnings(
        &self,
        has_socket_section: bool,
        root_warnings: Vec<String>,
        env: &ProcessEnv,
    ) -> Vec<String> {
        let inherited = inherited_sockets::grpc_listeners(env);
        let mut warnings = tls::warnings(
            self.tls.as_ref(),
            &[&self.listeners[..], &inherited].concat(),
        );
        if let Some(files) = &self.tls {
            warnings.extend(socket_groups::key_warning(&files.key, &self.socket_groups));
        }

        if self.callers.is_none() {
            warnings.extend(inherited_sockets::open_socket_warnings(env));
        }
        if has_socket_section {
            let own = self.listeners.iter().chain(&self.metrics);
            warnings.extend(inherited_sockets::unused_socket_section_warning(env, own));
        }

        warnings.extend(root_warnings);
        if self.extra_allowed_dirs().is_empty() && self.count_visible_roots() == 0 {
            warnings.push(advice::nothing_published(self, env));
        }
        warnings
    }

    /// Returns the error of a load that did not end within [`READ_TIMEOUT`].
    #[must_use]
    pub fn read_timeout_error(progress: &ReadProgress) -> ConfigError {
        let files = progress.current_files();
        let names: Vec<_> = files.iter().map(|file| file.to_string_lossy()).collect();
        let subject = match &*names {
            [] => "a file of the configuration".into(),
            names => names.join(" or "),
        };

        let limit = READ_TIMEOUT.as_secs();
        ConfigError::key(
            &subject,
            format!(
                "does not answer: reading took over {limit} s; repair its filesystem or use another \
                 path, and then load the configuration again"
            ),
        )
    }

    /// Returns the allowed directories that are no published root.
    #[must_use]
    pub fn extra_allowed_dirs(&self) -> &[PathBuf] {
        self.allowed_dirs
            .get(self.published_roots.len()..)
            .unwrap_or_default()
    }

    /// Iterates over the directories that are not allowed, and in which links of roots may find skills.
    pub fn link_dirs(&self) -> impl Iterator<Item = PathBuf> {
        let dirs = self.published_roots.iter().flat_map(|root| &root.link_dirs);
        dirs.map(|dir| native_path(dir))
    }

    /// Whether the sandbox would have to open the home directory for the root: the root is optional, and the
    /// first directory above it that exists is the home directory or above it, or `/`. Such a root needs a new
    /// process after its directory is created.
    #[must_use]
    pub fn needs_home(root: &PublishedRoot, env: &ProcessEnv) -> bool {
        let home = env
            .home
            .as_deref()
            .and_then(|home| home.canonicalize().ok());
        let path = native_path(&root.path);
        let mut above = path.ancestors().skip(1);
        let existing = above.find_map(|dir| dir.canonicalize().ok());
        let is_above_home = |dir: &Path| home.as_deref().is_some_and(|home| home.starts_with(dir));
        root.is_optional
            && existing.is_some_and(|dir| dir.parent().is_none() || is_above_home(&dir))
    }

    /// Counts the published roots that callers see now. Blocks on the disk.
    #[must_use]
    pub fn count_visible_roots(&self) -> usize {
        self.published_roots
            .iter()
            .filter(|root| !is_missing_optional(root))
            .count()
    }

    /// Returns the rules of scans.
    #[must_use]
    pub fn search_rules(&self) -> SearchRules {
        SearchRules {
            limits: self.limits.clone(),
            skipped_dirs: self.excluded_dirs.clone(),
            resource_dirs: self.resource_dirs.clone(),
            follow_links: true,
            nested_roots: Arc::default(),
            disable_rules: self.disabled_skills.clone(),
            trust: self.trust.as_ref().map(|trust| trust.policy.clone()),
        }
    }
}

impl OfferedDirs {
    fn new(mut published_roots: Vec<PublishedRoot>, extra_dirs: Vec<PathBuf>) -> Self {
        published_roots.sort_by(|a, b| (a.scope, &a.id).cmp(&(b.scope, &b.id)));

        let allowed_dirs = published_roots
            .iter()
            .map(|root| native_path(&root.path))
            .chain(extra_dirs)
            .collect();
        Self {
            published_roots,
            allowed_dirs,
        }
    }
}

fn to_dir_names(names: &[&str]) -> Vec<Box<[u8]>> {
    names.iter().map(|name| name.as_bytes().into()).collect()
}

/// Whether the root is optional and its directory does not exist, so that callers do not see it.
fn is_missing_optional(root: &PublishedRoot) -> bool {
    root.is_optional && !native_path(&root.path).exists()
}

fn native_path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests;
