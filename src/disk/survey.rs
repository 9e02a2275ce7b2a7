//! Everything that is held of one root between searches, so that a change re-reads what changed and
//! nothing else. Blocking; reads on a few threads of its own, so that a root that hangs holds up
//! nobody else.

use super::allowed::{Allowed, Ground, identity};
use super::assembly::Assembly;
use super::kinds::Kinds;
use super::list::{Listed, Lister, MANIFEST_DIRECTORIES};
use super::namespaces::{Manifests, Namespaces};
use super::progress::Progress;
use super::resource::{self, blocked};
use super::walk::steps;
use super::watching::{Guard, Unwatched, WatchDirs};
use crate::domain::listing::{Entry, Listing, Visit, What};
use crate::domain::search::{Rules, Search};
use crate::domain::{Catalog, Problem, Published, Reason, Scope, Spot};
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::num::NonZero;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// More threads than this only wait for the disk.
const MAX_THREADS: usize = 8;
/// A round of fewer directories is not worth a thread.
const INLINE_VISITS: usize = 8;

/// What to search, and how.
#[derive(Debug, Clone)]
pub struct Target {
    /// The root's path, absolute, as selected.
    pub path: Box<[u8]>,
    /// What the search may do. Whether links are followed, and the fences, come from `published`.
    pub rules: Rules,
    /// All published roots; the target may be one of them, by any path.
    pub published: Arc<[Published]>,
}

/// What a look at a root gave.
#[derive(Debug)]
pub struct Surveyed {
    /// What the root holds; `None` where it is as it was.
    pub catalog: Option<Result<Catalog, Reason>>,
    /// Tokens of directories to look at again once they are quiet.
    pub unsettled: Vec<u64>,
}

/// What is held of one root.
#[derive(Debug)]
pub struct Survey {
    target: Target,
    next_token: AtomicU64,
    tokens: HashMap<u64, Token>,
    /// Watches on the way to the root.
    way: Vec<Guard>,
    /// Watches on the places for manifests above the root.
    above: Vec<Guard>,
    /// Why the root could not be used, when it was looked at last.
    failed: Option<Reason>,
    found: Option<Found>,
}

/// What a watched directory is to the root.
#[derive(Debug, Clone)]
enum Token {
    /// It was listed.
    Listed(Spot),
    /// It is on the way to the root.
    Way,
    /// It is above the root, and may hold or is the directory of a manifest.
    Above(Spot),
}

/// What the last search of a root that can be used found.
#[derive(Debug)]
struct Found {
    ground: Arc<Ground>,
    root: Spot,
    root_identity: (u64, u64),
    rules: Rules,
    scope: Option<Scope>,
    nodes: HashMap<Spot, Node>,
    manifests: Manifests,
    assembly: Assembly,
    kinds: Kinds,
    truncated: bool,
}

/// One directory that the search entered.
#[derive(Debug)]
struct Node {
    visit: Visit,
    token: u64,
    listing: Result<Arc<Listing>, Problem>,
    /// Another directory may have taken its place with the one above it, so it must be listed again.
    suspect: bool,
    _guards: Vec<Guard>,
}

/// Searches a root once, and forgets all but the catalog.
pub fn scan(allowed: &Allowed, target: &Target, progress: &Progress) -> Result<Catalog, Reason> {
    let mut survey = Survey::new(target.clone());
    let surveyed = survey.full(allowed, &Unwatched, progress);
    surveyed.catalog.unwrap_or(Err(Reason::IoError))
}

impl Survey {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self {
            target,
            next_token: AtomicU64::new(0),
            tokens: HashMap::new(),
            way: Vec::new(),
            above: Vec::new(),
            failed: None,
            found: None,
        }
    }

    /// Searches the root from its path on. Only what a file last said when it still parsed is taken
    /// over from before.
    pub fn full(
        &mut self,
        allowed: &Allowed,
        watching: &dyn WatchDirs,
        progress: &Progress,
    ) -> Surveyed {
        self.tokens.clear();
        let old = (std::mem::take(&mut self.way), std::mem::take(&mut self.above));
        self.watch_way(watching);
        let catalog = match self.resolve(allowed) {
            Err(reason) => {
                self.failed = Some(reason);
                self.found = None;
                Err(reason)
            }
            Ok(mut found) => {
                let old = self.found.take().map(|f| f.nodes).unwrap_or_default();
                self.watch_above(&found, watching);
                let catalog = self.search(&mut found, old, false, watching, progress);
                self.found = Some(found);
                Ok(catalog)
            }
        };
        drop(old);
        Surveyed { catalog: Some(catalog), unsettled: Vec::new() }
    }

    /// Looks again at the directories of the tokens. Where a file does not parse and its directory
    /// is not `quiet` yet, it stays as it was for now.
    pub fn update(
        &mut self,
        allowed: &Allowed,
        dirty: &HashSet<u64>,
        quiet: bool,
        watching: &dyn WatchDirs,
        progress: &Progress,
    ) -> Surveyed {
        let mut search_again = self.rewatch_above(dirty, watching);
        let Some(found) = &mut self.found else {
            return self.full(allowed, watching, progress);
        };
        let mut relist: HashSet<Spot> = HashSet::new();
        for token in dirty {
            match self.tokens.get(token) {
                // Of a directory that is no longer part of the root, or was looked at above.
                None | Some(Token::Above(_)) => {}
                Some(Token::Way) => {
                    if found.moved(allowed, &self.target.path) {
                        return self.full(allowed, watching, progress);
                    }
                }
                Some(Token::Listed(dir)) => {
                    let name = dir.rel.file_name().unwrap_or_default();
                    if let Some(parent) = dir.parent() {
                        if MANIFEST_DIRECTORIES.iter().any(|d| d.as_bytes() == name) {
                            found.manifests.remove(&parent);
                            search_again = true;
                        } else if name == b"agents" && found.nodes.contains_key(&parent) {
                            relist.insert(parent);
                        }
                    }
                    relist.insert(dir.clone());
                }
            }
        }
        let mut unsettled = Vec::new();
        let mut replaced = Vec::new();
        let lister = Lister {
            ground: &found.ground,
            limits: &found.rules.limits,
            root_name: root_name(&self.target.path),
            watching,
        };
        let mut queue: Vec<_> = relist.into_iter().collect();
        let mut links_looked_at = false;
        while let Some(dir) = queue.pop() {
            let Some(node) = found.nodes.get_mut(&dir) else { continue };
            let Listed { listing, guards } = lister.list(&node.visit, node.token);
            progress.tick();
            let listing = listing.map(|new| {
                let (new, is_settled) = keep_last_good(new, node.listing.as_deref().ok(), quiet);
                if !is_settled {
                    unsettled.push(node.token);
                }
                new
            });
            let is_same = match (&listing, &node.listing) {
                (Ok(new), Ok(old)) => new.means_the_same(old) && !found.truncated,
                (Err(new), Err(old)) => new == old,
                _ => false,
            };
            if !is_same {
                found.manifests.remove(&dir);
                search_again = true;
                if let (Ok(new), Ok(old)) = (&listing, &node.listing) {
                    replaced.extend(elsewhere(&dir, new, old));
                }
            }
            let went = listing.is_err() && node.listing.is_ok();
            node.listing = listing.map(Arc::new);
            node._guards = guards;
            if went && !links_looked_at {
                // A link that led here may lead elsewhere by now, though no event told: what it
                // leads to must come in the revision in which this goes.
                links_looked_at = true;
                let strayed = found.nodes.iter().filter(|(_, n)| n.has_stray_link(&found.ground));
                queue.extend(strayed.map(|(spot, _)| spot.clone()));
            }
        }
        found.suspect(&replaced);
        if !search_again {
            return Surveyed { catalog: None, unsettled };
        }
        let Some(mut found) = self.found.take() else {
            return Surveyed { catalog: None, unsettled };
        };
        let nodes = std::mem::take(&mut found.nodes);
        let catalog = self.search(&mut found, nodes, true, watching, progress);
        self.found = Some(found);
        Surveyed { catalog: Some(Ok(catalog)), unsettled }
    }

    /// The tokens of directories in which a link leads elsewhere than it did, or to another version
    /// of a file: what no event tells where the target's own directory is not watched. `None` where
    /// the root itself is elsewhere, or was not there and may be now.
    pub fn strayed(&self, allowed: &Allowed) -> Option<HashSet<u64>> {
        let Some(found) = &self.found else {
            let is_same = self.resolve(allowed).err() == self.failed && self.failed.is_some();
            return is_same.then(HashSet::new);
        };
        if found.moved(allowed, &self.target.path) {
            return None;
        }
        let strayed = found.nodes.values().filter(|node| node.has_stray_link(&found.ground));
        Some(strayed.map(|node| node.token).collect())
    }

    /// Whether the root could be used when it was looked at last.
    #[must_use]
    pub fn is_found(&self) -> bool {
        self.found.is_some()
    }

    /// The name of a filesystem below the root that tells no events of what others change, if there
    /// is one.
    #[must_use]
    pub fn eventless(&self) -> Option<&'static str> {
        self.found.as_ref()?.kinds.eventless()
    }

    /// Whether an overlay filesystem is below the root, which misses some events.
    #[must_use]
    pub fn has_overlay(&self) -> bool {
        self.found.as_ref().is_some_and(|found| found.kinds.has_overlay())
    }

    /// Finds the root, and says why where it cannot be used.
    fn resolve(&self, allowed: &Allowed) -> Result<Found, Reason> {
        let ground = allowed.look();
        let root = ground.resolve(&self.target.path)?;
        let fd = ground.open(&root, OFlags::RDONLY | OFlags::DIRECTORY).map_err(blocked)?;
        let root_identity = identity(&fstat(&fd).map_err(blocked)?);
        let mut rules = self.target.rules.clone();
        let mut scope = None;
        for published in self.target.published.iter() {
            match ground.resolve(&published.path) {
                Ok(spot) if spot == root => {
                    scope = scope.or(Some(published.scope));
                    rules.follow_links &= published.follow_links;
                }
                Ok(spot) => drop(rules.fences.insert(spot)),
                Err(_) => {}
            }
        }
        Ok(Found {
            ground,
            root,
            root_identity,
            rules,
            scope,
            nodes: HashMap::new(),
            manifests: Manifests::new(),
            assembly: Assembly::default(),
            kinds: Kinds::default(),
            truncated: false,
        })
    }

    fn token(&mut self, token: Token) -> u64 {
        let number = self.next_token.fetch_add(1, Ordering::Relaxed);
        self.tokens.insert(number, token);
        number
    }

    /// Watches each directory on the way to the root, for the entry that leads on.
    fn watch_way(&mut self, watching: &dyn WatchDirs) {
        let token = self.token(Token::Way);
        for (dir, name) in steps(&self.target.path) {
            let dir = if dir.is_empty() { b"/" } else { &*dir };
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let path = Path::new(OsStr::from_bytes(dir));
            let Ok(fd) = openat(CWD, path, flags, Mode::empty()) else { continue };
            self.way.extend(watching.watch(fd.as_fd(), token, Some(&name)));
        }
    }

    /// Watches the places for manifests above the root.
    fn watch_above(&mut self, found: &Found, watching: &dyn WatchDirs) {
        let mut above = found.root.parent();
        while let Some(dir) = above {
            let token = self.token(Token::Above(dir.clone()));
            for name in MANIFEST_DIRECTORIES.map(str::as_bytes) {
                let own = dir.join(name);
                for (spot, only) in [(Some(&dir), Some(name)), (own.as_ref(), None)] {
                    let flags = OFlags::PATH | OFlags::DIRECTORY;
                    let opened = spot.map(|spot| found.ground.open(spot, flags));
                    let Some(Ok(fd)) = opened else { continue };
                    self.above.extend(watching.watch(fd.as_fd(), token, only));
                }
            }
            above = dir.parent();
        }
    }

    /// Watches the places above the root anew where one of them is dirty: a directory for a manifest
    /// may have come. Says whether one was.
    fn rewatch_above(&mut self, dirty: &HashSet<u64>, watching: &dyn WatchDirs) -> bool {
        let is_above = |token: &u64| matches!(self.tokens.get(token), Some(Token::Above(_)));
        if !dirty.iter().any(is_above) {
            return false;
        }
        let Some(mut found) = self.found.take() else { return false };
        let old = std::mem::take(&mut self.above);
        // All of them are read again: a note with an old token means nothing from here on.
        self.tokens.retain(|_, token| match token {
            Token::Above(dir) => {
                found.manifests.remove(dir);
                false
            }
            Token::Listed(_) | Token::Way => true,
        });
        self.watch_above(&found, watching);
        drop(old);
        self.found = Some(found);
        true
    }

    /// Runs a search over what is held in `old`, and lists what is not. With `trusted`, what is held
    /// is as it is on the disk.
    fn search(
        &mut self,
        found: &mut Found,
        mut old: HashMap<Spot, Node>,
        trusted: bool,
        watching: &dyn WatchDirs,
        progress: &Progress,
    ) -> Catalog {
        let mut search = Search::new(found.root.clone(), found.rules.clone());
        let mut nodes: HashMap<Spot, Node> = HashMap::with_capacity(old.len());
        loop {
            let round = search.round();
            if round.is_empty() {
                break;
            }
            let held = |node: Option<&Node>, visit: &Visit| {
                trusted && node.is_some_and(|n| !n.suspect && n.visit.walked == visit.walked)
            };
            let new: Vec<_> =
                round.iter().filter(|v| !held(old.get(&v.spot), v)).cloned().collect();
            let lister = Lister {
                ground: &found.ground,
                limits: &found.rules.limits,
                root_name: root_name(&self.target.path),
                watching,
            };
            for (visit, token, listed) in list_all(&lister, new, &self.next_token, progress) {
                let last = old.remove(&visit.spot).and_then(|node| node.listing.ok());
                let listing = listed.listing.map(|new| {
                    found.kinds.note(&found.ground, &visit.spot, new.identity.0);
                    Arc::new(keep_last_good(new, last.as_deref(), true).0)
                });
                let spot = visit.spot.clone();
                self.tokens.insert(token, Token::Listed(spot.clone()));
                let _guards = listed.guards;
                nodes.insert(spot, Node { visit, token, listing, suspect: false, _guards });
            }
            let listed = round.into_iter().map(|visit| {
                if let Some(node) = old.remove(&visit.spot) {
                    nodes.insert(visit.spot.clone(), node);
                }
                let node = nodes.get(&visit.spot).map(|n| n.listing.clone());
                let listing = node.unwrap_or_else(|| Err(super::list::gone()));
                (visit, listing)
            });
            search.absorb(listed.collect());
        }
        for gone in old.into_values() {
            self.tokens.remove(&gone.token);
        }
        found.nodes = nodes;
        let ended = search.finish();
        found.truncated = ended.rest.truncated;
        let Found { ground, root, rules, scope, manifests, assembly, .. } = found;
        let namespaces =
            Namespaces { ground, root, entered: &ended.entered, manifests, known: HashMap::new() };
        assembly.catalog(namespaces, ended.rest, *scope, rules.follow_links)
    }
}

impl Found {
    /// Trusts nothing any more that is known of directories at and below these.
    fn suspect(&mut self, replaced: &[Spot]) {
        let is_in = |spot: &Spot| {
            replaced.iter().any(|top| spot.base == top.base && spot.rel.below(&top.rel).is_some())
        };
        if replaced.is_empty() {
            return;
        }
        for (spot, node) in &mut self.nodes {
            node.suspect |= is_in(spot);
        }
        self.manifests.retain(|spot, _| !is_in(spot));
    }

    /// Whether the root's path leads elsewhere than it did.
    fn moved(&self, allowed: &Allowed, path: &[u8]) -> bool {
        let ground = allowed.look();
        let Ok(spot) = ground.resolve(path) else { return true };
        let Ok(fd) = ground.open(&spot, OFlags::PATH | OFlags::DIRECTORY) else { return true };
        let is_same = fstat(&fd).is_ok_and(|stat| identity(&stat) == self.root_identity);
        !is_same || !ground.is_as(&self.ground) || spot != self.root
    }
}

impl Node {
    fn has_stray_link(&self, ground: &Ground) -> bool {
        let Ok(listing) = &self.listing else { return false };
        listing.entries.iter().any(|entry| {
            let target = || resource::look_at_link(ground, &self.visit.spot, &entry.name);
            match &entry.what {
                What::LinkedDirectory(spot, was) => {
                    target().is_none_or(|now| now.spot != *spot || identity(&now.stat) != *was)
                }
                What::LinkedFile(spot, _) => target().is_none_or(|now| now.spot != *spot),
                What::BadLink(_) => target().is_some(),
                What::Directory | What::File(_) | What::Special => false,
            }
        })
    }
}

/// The name of a root that is itself a skill and has none.
fn root_name(path: &[u8]) -> Option<&[u8]> {
    path.split(|b| *b == b'/').rfind(|s| !s.is_empty())
}

/// Where a directory that is listed anew has other directories than before under the same name: all
/// below it, where it is another itself, and targets of its links.
fn elsewhere(dir: &Spot, new: &Listing, old: &Listing) -> Vec<Spot> {
    if new.identity != old.identity {
        return vec![dir.clone()];
    }
    let was = |entry: &Entry| old.entries.iter().find(|e| e.name == entry.name).map(|e| &e.what);
    let replaced = new.entries.iter().filter_map(|entry| match (&entry.what, was(entry)) {
        (What::LinkedDirectory(now, id), Some(What::LinkedDirectory(before, was))) => {
            (now == before && id != was).then(|| now.clone())
        }
        _ => None,
    });
    replaced.collect()
}

/// Puts what a SKILL.md last said in the place of one that does not parse; while its directory is
/// not quiet, as if nothing had happened to it. Also whether it is settled.
fn keep_last_good(mut new: Listing, last: Option<&Listing>, quiet: bool) -> (Listing, bool) {
    let last = last.and_then(Listing::main);
    let Some(main) = new.main_mut() else { return (new, true) };
    let (Some(last), None) = (last, &main.authored) else { return (new, true) };
    if !quiet {
        *main = last.clone();
        return (new, false);
    }
    *main = Arc::new(main.as_ref().clone().or_last_good(Some(last)));
    (new, true)
}

/// Lists directories under new tokens, on a few threads where there are many.
fn list_all(
    lister: &Lister<'_>,
    visits: Vec<Visit>,
    next_token: &AtomicU64,
    progress: &Progress,
) -> Vec<(Visit, u64, Listed)> {
    let slots: Vec<OnceLock<(u64, Listed)>> = visits.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(visit) = visits.get(at) else { return };
            let token = next_token.fetch_add(1, Ordering::Relaxed);
            let _ = slots[at].set((token, lister.list(visit, token)));
            progress.tick();
        }
    };
    if visits.len() <= INLINE_VISITS {
        work();
    } else {
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        std::thread::scope(|scope| {
            for _ in 1..threads.min(MAX_THREADS) {
                scope.spawn(work);
            }
            work();
        });
    }
    let listed = slots.into_iter().map(|s| s.into_inner().expect("every visit was made"));
    visits.into_iter().zip(listed).map(|(visit, (token, listed))| (visit, token, listed)).collect()
}
