//! From a file, flags and surroundings to a checked configuration, or every mistake at once. Binds
//! nothing, and opens nothing but the file, and the certificates and tokens that it names.

mod accounts;
mod advice;
mod callers;
pub mod example;
mod file;
mod flags;
mod handed_over;
mod limits;
pub mod log;
mod mistake;
mod place;
mod section;
mod settings;
mod socket;
mod switches;
mod takeover;
mod tls;
mod traces;

pub use self::callers::CallerRules;
pub use self::flags::{Flags, RootFlag};
pub use self::log::{Log, LogFormat};
pub use self::mistake::Mistake;
pub use self::socket::{Socket, Sockets};
pub use self::takeover::{AT_START, Waits};
pub use self::tls::{TlsFiles, TlsFlags};
pub use self::traces::Traces;
pub use crate::document::At;
pub use crate::endpoint::{Env, HandedOver};

use crate::catalog::{Faults, Opener, Timing};
use crate::document;
use crate::domain::search::Rules;
use crate::domain::{Landlock, Limits, Published, RootId, SwitchedOff};
use mistake::Mistakes;
use settings::Settings;
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
    pub listeners: Vec<Listener>,
    /// What TLS is made of; with it, every TCP listener has TLS.
    pub tls: Option<TlsFiles>,
    /// The directories below which roots and their links may lie, absolute.
    pub allowed: Vec<PathBuf>,
    /// In scope order, then by id.
    pub published: Vec<Published>,
    /// Modes and groups of Unix sockets.
    pub sockets: Sockets,
    /// Who may ask; whoever can connect, where there are no rules.
    pub callers: Option<CallerRules>,
    /// Whether health is told to whoever can connect, whatever the rules.
    pub open_health: bool,
    /// The same of reflection.
    pub open_reflection: bool,
    /// Whether every call is logged, and not only refused ones.
    pub audit: bool,
    /// Skills that are neither listed nor readable.
    pub switched_off: Arc<SwitchedOff>,
    /// Directories that are never entered, by name.
    pub passed_over: Vec<Box<[u8]>>,
    /// Directories that are not entered directly inside a skill, by name.
    pub own_directories: Vec<Box<[u8]>>,
    /// The limits in force.
    pub limits: Limits,
    /// When roots are looked at.
    pub timing: Timing,
    /// Whether a change of the config file is a reload.
    pub watch_config: bool,
    /// Of the watcher, ordered by tests.
    #[doc(hidden)]
    pub faults: Faults,
    /// What is asked of the kernel's Landlock.
    pub landlock: Landlock,
    /// How files are opened; `None` asks the kernel. Set by tests only.
    #[doc(hidden)]
    pub opener: Option<Opener>,
    /// When a connection is found dead.
    pub keepalive: Keepalive,
    /// How the daemon logs.
    pub log: Log,
    /// Where Prometheus scrapes, if it does.
    pub metrics: Option<Listener>,
    /// Where spans are sent, if they are.
    pub traces: Option<Traces>,
    /// What stops nobody, and whoever runs the daemon should know: sentences.
    pub warnings: Vec<String>,
}

/// When a connection is found dead whose other end vanished without a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keepalive {
    /// How often a silent connection is asked whether it is still there.
    pub interval: Duration,
    /// How long the answer may take.
    pub timeout: Duration,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self { interval: Duration::from_secs(30), timeout: Duration::from_secs(20) }
    }
}

/// A place to listen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Listener {
    /// A socket in a directory that is there.
    Unix(PathBuf),
    /// A socket in a directory that the daemon makes for itself.
    OwnUnix(PathBuf),
    /// An address, on loopback unless TLS or the operator lets it leave; port 0 takes a free one.
    Tcp(SocketAddr),
}

impl Config {
    /// Checks the flags of a daemon without a config file.
    pub fn from_flags(flags: Flags, env: &Env) -> Result<Self, Vec<Mistake>> {
        Self::load(flags, None, env)
    }

    /// Reads and checks a config file and flags, each of which replaces what the file says of it. The
    /// error holds every mistake.
    pub fn load(flags: Flags, file: Option<&Path>, env: &Env) -> Result<Self, Vec<Mistake>> {
        Self::build(flags, file.map(|path| (path, file::read(path))), env)
    }

    /// The same with a file of which the bytes are there already, by the name of `file`.
    pub fn from_bytes(
        flags: Flags,
        file: &Path,
        bytes: Vec<u8>,
        env: &Env,
    ) -> Result<Self, Vec<Mistake>> {
        Self::build(flags, Some((file, file::text(file, bytes))), env)
    }

    fn build(
        flags: Flags,
        file: Option<(&Path, Result<String, Mistake>)>,
        env: &Env,
    ) -> Result<Self, Vec<Mistake>> {
        let mut mistakes = Mistakes::default();
        let flags = flags::check(flags, env, &mut mistakes);
        let by_flag = |id: &RootId| flags.published.iter().flatten().any(|p| p.id == *id);
        let may_leave = flags.tls.may_leave();
        let settings =
            file.map(|(path, text)| from_text(path, text, by_flag, may_leave, env, &mut mistakes));
        let file = settings.unwrap_or_default();
        let (passed_over, own_directories) = (file.passed_over(), file.own_directories());
        if !may_leave && !file.tls.may_leave() {
            flags.refuse_what_leaves(&mut mistakes);
            handed_over::refuse_what_leaves(env, &mut mistakes);
        }
        handed_over::check_metrics(env, file.metrics.is_some(), &mut mistakes);
        let tls = tls::join(flags.tls, file.tls, &mut mistakes);
        mistakes.none_or_all()?;
        let published = flags.published.or(file.published);
        let allowed = flags.allowed.or(file.allowed);
        let mut published = match (&published, &allowed) {
            (None, None) => flags::usual_places(env),
            _ => published.unwrap_or_default(),
        };
        published.sort_by(|a, b| (a.scope, &a.id).cmp(&(b.scope, &b.id)));
        let dirs = published.iter().map(|p| PathBuf::from(std::ffi::OsStr::from_bytes(&p.path)));
        let environment_ids = flags.environment_ids.or(file.environment_ids);
        let listeners = flags.listeners.or(file.listeners);
        let allowed: Vec<_> = dirs.chain(allowed.unwrap_or_default()).collect();
        let callers = file.callers.map(|drafts| callers::bind(drafts, &published, &allowed));
        let default = || handed_over::none_to_serve(env).then(|| place::default_listener(env));
        let listeners = listeners.unwrap_or_else(|| default().into_iter().collect());
        let served = [&listeners[..], &handed_over::served(env)].concat();
        let mut warnings = tls::warnings(tls.as_ref(), &served);
        if callers.is_none() {
            warnings.extend(handed_over::open_to_all(env));
        }
        if file.socket.is_some() {
            let own = listeners.iter().chain(&file.metrics);
            warnings.extend(handed_over::socket_keys_unused(env, own));
        }
        if allowed.is_empty() {
            warnings.push(advice::NOTHING_PUBLISHED.to_owned());
        }
        Ok(Self {
            environment_ids: environment_ids.unwrap_or_else(|| vec!["local".to_owned()]),
            listeners,
            tls,
            allowed,
            published,
            sockets: Sockets::new(file.socket, env),
            callers: callers.transpose()?,
            open_health: file.open_health.unwrap_or(true),
            open_reflection: file.open_reflection.unwrap_or(false),
            audit: flags.audit.or(file.audit).unwrap_or(false),
            switched_off: Arc::new(file.switched_off),
            passed_over,
            own_directories,
            limits: file.limits,
            timing: file.timing,
            watch_config: flags.watch_config.or(file.watch_config).unwrap_or(false),
            faults: Faults::default(),
            landlock: file.landlock,
            opener: None,
            keepalive: Keepalive::default(),
            log: file.log,
            metrics: file.metrics,
            traces: file.traces,
            warnings,
        })
    }

    /// Returns the roots that a config file publishes. Mistakes in its other keys do not matter here: a
    /// user who may read the file may still not read the certificates that the file names.
    pub fn published_by(file: &Path, env: &Env) -> Result<Vec<Published>, Vec<Mistake>> {
        let mut mistakes = Mistakes::default();
        let by_flag = |_: &RootId| false;
        let text = file::read(file);
        let settings = from_text(file, text, by_flag, false, env, &mut mistakes);
        match settings.published {
            Some(published) => Ok(published),
            None => mistakes.none_or_all().map(|()| Vec::new()),
        }
    }

    /// The directories that are allowed beside the published roots.
    #[must_use]
    pub fn allowed_beside(&self) -> &[PathBuf] {
        self.allowed.get(self.published.len()..).unwrap_or_default()
    }

    /// What a search may do under this configuration.
    #[must_use]
    pub fn rules(&self) -> Rules {
        Rules {
            limits: self.limits.clone(),
            passed_over: self.passed_over.clone(),
            own_directories: self.own_directories.clone(),
            follow_links: true,
            fences: Arc::default(),
            switched_off: self.switched_off.clone(),
        }
    }
}

/// What a file says, as far as it can be read.
fn from_text(
    path: &Path,
    text: Result<String, Mistake>,
    by_flag: impl Fn(&RootId) -> bool,
    may_leave: bool,
    env: &Env,
    mistakes: &mut Mistakes,
) -> Settings {
    let syntax = |e: document::SyntaxError| Mistake::file(path, Some(e.at), e.reason);
    let document = text.and_then(|text| document::parse(&text).map_err(syntax));
    // Relative paths begin where the file is, wherever the daemon is started.
    let absolute = place::absolute(path, env.current_dir.as_deref()).ok();
    let base = absolute.as_deref().and_then(Path::parent);
    match document {
        Ok(node) => settings::read(&node, path, base, by_flag, may_leave, mistakes),
        Err(mistake) => {
            mistakes.add(mistake);
            Settings::default()
        }
    }
}

#[cfg(test)]
mod tests;
