//! From flags and surroundings to a checked configuration, or every mistake at once. Binds
//! nothing.

use crate::domain::search::{OWN_DIRECTORIES, PASSED_OVER, Rules};
use crate::domain::{Limits, Published, RootId, Scope};
pub use crate::endpoint::Env;
use crate::keeper::{Faults, Timing};
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

/// The flags of `caproot serve`, as they were given.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// Directories to publish and allow.
    pub roots: Vec<RootFlag>,
    /// Directories to allow.
    pub allow: Vec<PathBuf>,
    /// The environments whose roots are resolved.
    pub environment_ids: Vec<String>,
    /// `unix:PATH` or `tcp:HOST:PORT`.
    pub listen: Vec<String>,
}

/// One `--root [ID=]DIR`.
#[derive(Debug, Clone)]
pub struct RootFlag {
    /// The id, where one was given.
    pub id: Option<String>,
    /// The directory; relative ones are taken from the current directory.
    pub dir: PathBuf,
}

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
    /// The limits in force.
    pub limits: Limits,
    /// When roots are looked at.
    pub timing: Timing,
    /// Of the watcher, ordered by tests.
    #[doc(hidden)]
    pub faults: Faults,
}

/// A place to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listener {
    /// A socket in a directory that is there.
    Unix(PathBuf),
    /// A socket in a directory that the daemon makes for itself.
    OwnUnix(PathBuf),
    /// A loopback address; port 0 takes a free one.
    Tcp(SocketAddr),
}

impl Config {
    /// Checks the flags. The error holds every mistake, each as a sentence.
    pub fn from_flags(flags: Flags, env: &Env) -> Result<Self, Vec<String>> {
        let mut mistakes = Mistakes::default();
        let listeners = mistakes.each(&flags.listen, |text| listener(text, env));
        let allow = mistakes.each(&flags.allow, |dir| absolute(dir, env));
        for id in &flags.environment_ids {
            if let Err(problem) = RootId::new(id) {
                mistakes.add(format!("--environment-id {id:?} {problem}."));
            }
        }
        let named = flags.roots.iter().any(|_| true) || !flags.allow.is_empty();
        let mut published =
            if named { named_roots(&flags.roots, env, &mut mistakes) } else { usual_places(env) };
        published.sort_by(|a, b| (a.scope, &a.id).cmp(&(b.scope, &b.id)));
        mistakes.none_or_all()?;
        let dirs = published.iter().map(|p| PathBuf::from(std::ffi::OsStr::from_bytes(&p.path)));
        Ok(Self {
            environment_ids: or_default(flags.environment_ids, || "local".to_owned()),
            listeners: or_default(listeners, || default_listener(env)),
            allowed: dirs.chain(allow).collect(),
            published,
            limits: Limits::default(),
            timing: Timing::default(),
            faults: Faults::default(),
        })
    }

    /// What a search may do under this configuration.
    #[must_use]
    pub fn rules(&self) -> Rules {
        let names = |names: &[&str]| names.iter().map(|n| n.as_bytes().into()).collect();
        Rules {
            limits: self.limits.clone(),
            passed_over: names(&PASSED_OVER),
            own_directories: names(&OWN_DIRECTORIES),
            follow_links: true,
            fences: HashSet::new(),
        }
    }
}

/// Mistakes under collection.
#[derive(Default)]
struct Mistakes(Vec<String>);

impl Mistakes {
    fn add(&mut self, sentence: String) {
        self.0.push(sentence);
    }

    fn each<T, U>(&mut self, all: &[T], check: impl Fn(&T) -> Result<U, String>) -> Vec<U> {
        all.iter().filter_map(|one| check(one).map_err(|e| self.add(e)).ok()).collect()
    }

    fn none_or_all(self) -> Result<(), Vec<String>> {
        if self.0.is_empty() { Ok(()) } else { Err(self.0) }
    }
}

fn or_default<T>(given: Vec<T>, default: impl FnOnce() -> T) -> Vec<T> {
    if given.is_empty() { vec![default()] } else { given }
}

fn named_roots(roots: &[RootFlag], env: &Env, mistakes: &mut Mistakes) -> Vec<Published> {
    let mut taken: HashSet<RootId> = HashSet::new();
    let mut published = Vec::new();
    // Ids that were given come first, so that a derived one never takes one away.
    let (given, derived): (Vec<_>, Vec<_>) = roots.iter().partition(|r| r.id.is_some());
    for flag in given.into_iter().chain(derived) {
        let dir = match absolute(&flag.dir, env) {
            // One that is missing may come later; what is something else is a slip.
            Ok(dir) if dir.exists() && !dir.is_dir() => {
                mistakes.add(format!("--root {}: not a directory.", dir.display()));
                continue;
            }
            Ok(dir) => dir,
            Err(sentence) => {
                mistakes.add(sentence);
                continue;
            }
        };
        let id = match &flag.id {
            None => unique_id(&dir, &taken),
            Some(id) => match RootId::new(id) {
                Ok(id) if taken.contains(&id) => {
                    mistakes.add(format!("--root {}=… is given twice.", id.as_str()));
                    continue;
                }
                Ok(id) => id,
                Err(problem) => {
                    mistakes.add(format!("--root {id:?}=…: the id {problem}."));
                    continue;
                }
            },
        };
        taken.insert(id.clone());
        published.push(root(id, &dir, Scope::User));
    }
    published
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

fn root(id: RootId, dir: &Path, scope: Scope) -> Published {
    let path = dir.as_os_str().as_bytes().into();
    // What came with the agent links nowhere; a link there is not its author's.
    Published { id, path, scope, follow_links: scope != Scope::System }
}

/// The places where Codex keeps skills, as far as they exist.
fn usual_places(env: &Env) -> Vec<Published> {
    let home = env.home.as_deref();
    let codex = env.codex_home.clone().or_else(|| home.map(|h| h.join(".codex")));
    let codex = codex.as_deref();
    let places = [
        ("repo", Scope::Repo, env.current_dir.as_deref().map(|d| d.join(".agents/skills"))),
        ("user", Scope::User, home.map(|h| h.join(".agents/skills"))),
        ("codex", Scope::User, codex.map(|c| c.join("skills"))),
        ("system", Scope::System, codex.map(|c| c.join("skills/.system"))),
        ("admin", Scope::Admin, Some(env.etc.join("codex/skills"))),
    ];
    let there = places.into_iter().filter_map(|(id, scope, dir)| {
        let dir = dir.filter(|d| d.is_dir())?;
        Some(root(RootId::new(id).ok()?, &dir, scope))
    });
    there.collect()
}

/// An absolute path in which `..` is left to the file system, since links may precede it.
fn absolute(dir: &PathBuf, env: &Env) -> Result<PathBuf, String> {
    if dir.as_os_str().is_empty() {
        return Err("An empty directory was given.".to_owned());
    }
    if dir.is_absolute() {
        return Ok(dir.clone());
    }
    let Some(current) = &env.current_dir else {
        return Err(format!(
            "{}: the current directory is gone; give an absolute path.",
            dir.display()
        ));
    };
    Ok(current.join(dir).components().filter(|c| *c != Component::CurDir).collect())
}

fn listener(text: &String, env: &Env) -> Result<Listener, String> {
    if let Some(path) = text.strip_prefix("unix:").filter(|p| !p.is_empty()) {
        let path = path.strip_prefix("//").unwrap_or(path);
        return Ok(Listener::Unix(absolute(&path.into(), env)?));
    }
    let Some(address) = text.strip_prefix("tcp:") else {
        return Err(format!("--listen {text:?} is neither unix:PATH nor tcp:HOST:PORT."));
    };
    let address = match address.strip_prefix("localhost:") {
        Some(port) => port.parse().ok().map(|port| (Ipv4Addr::LOCALHOST, port).into()),
        None => address.parse::<SocketAddr>().ok(),
    };
    match address {
        None => Err(format!(
            "--listen {text:?} is not tcp:HOST:PORT with an IP address or localhost as HOST."
        )),
        Some(address) if !is_loopback(address.ip()) => Err(format!(
            "--listen {text:?} would serve without TLS beyond this machine; take a loopback \
             address, such as tcp:127.0.0.1:{}.",
            address.port()
        )),
        Some(address) => Ok(Listener::Tcp(address)),
    }
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

fn default_listener(env: &Env) -> Listener {
    if let Some(dir) = &env.unit_runtime_dir {
        return Listener::Unix(dir.join("caproot.sock"));
    }
    if let Some(dir) = &env.xdg_runtime_dir {
        return Listener::Unix(dir.join("caproot.sock"));
    }
    Listener::OwnUnix(env.temp_dir.join(format!("caproot-{}/caproot.sock", env.uid)))
}
