//! From a file, flags and surroundings to a checked configuration, or every mistake at once. Binds
//! nothing, and opens nothing but the file.

mod document;
pub mod example;
mod file;
mod flags;
mod limits;
pub mod log;
mod mistake;
mod place;
mod section;
mod settings;
mod switches;

pub use self::flags::{Flags, RootFlag};
pub use self::log::{Log, LogFormat};
pub use self::mistake::{At, Mistake};
pub use crate::endpoint::Env;

use crate::domain::search::Rules;
use crate::domain::{Limits, Published, RootId, SwitchedOff};
use crate::keeper::{Faults, Timing};
use mistake::Mistakes;
use settings::Settings;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A configuration that the daemon can start with.
#[derive(Debug, Clone)]
pub struct Config {
    /// The environments whose roots are resolved; never empty.
    pub environment_ids: Vec<String>,
    /// Where to listen; never empty.
    pub listeners: Vec<Listener>,
    /// The directories below which roots and their links may lie, absolute.
    pub allowed: Vec<PathBuf>,
    /// In scope order, then by id.
    pub published: Vec<Published>,
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
    /// Of the watcher, ordered by tests.
    #[doc(hidden)]
    pub faults: Faults,
    /// When a connection is found dead.
    pub keepalive: Keepalive,
    /// How the daemon logs.
    pub log: Log,
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
    /// A loopback address; port 0 takes a free one.
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
        let settings = file.map(|(path, text)| from_text(path, text, by_flag, env, &mut mistakes));
        mistakes.none_or_all()?;
        let file = settings.unwrap_or_default();
        let (passed_over, own_directories) = (file.passed_over(), file.own_directories());
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
        Ok(Self {
            environment_ids: environment_ids.unwrap_or_else(|| vec!["local".to_owned()]),
            listeners: listeners.unwrap_or_else(|| vec![place::default_listener(env)]),
            allowed: dirs.chain(allowed.unwrap_or_default()).collect(),
            published,
            switched_off: Arc::new(file.switched_off),
            passed_over,
            own_directories,
            limits: file.limits,
            timing: file.timing,
            faults: Faults::default(),
            keepalive: Keepalive::default(),
            log: file.log,
        })
    }

    /// What a search may do under this configuration.
    #[must_use]
    pub fn rules(&self) -> Rules {
        Rules {
            limits: self.limits.clone(),
            passed_over: self.passed_over.clone(),
            own_directories: self.own_directories.clone(),
            follow_links: true,
            fences: HashSet::new(),
            switched_off: self.switched_off.clone(),
        }
    }
}

/// What a file says, as far as it can be read.
fn from_text(
    path: &Path,
    text: Result<String, Mistake>,
    by_flag: impl Fn(&RootId) -> bool,
    env: &Env,
    mistakes: &mut Mistakes,
) -> Settings {
    let syntax = |e: document::SyntaxError| Mistake::file(path, Some(e.at), e.reason);
    let document = text.and_then(|text| document::parse(&text).map_err(syntax));
    // Relative paths begin where the file is, wherever the daemon is started.
    let absolute = place::absolute(path, env.current_dir.as_deref()).ok();
    let base = absolute.as_deref().and_then(Path::parent);
    match document {
        Ok(node) => settings::read(&node, path, base, by_flag, mistakes),
        Err(mistake) => {
            mistakes.add(mistake);
            Settings::default()
        }
    }
}

#[cfg(test)]
mod tests;
