//! Everything that is held of one root between searches, so that a change re-reads what changed and
//! nothing else. Blocking; reads on a few threads of its own, so that a root that hangs holds up
//! nobody else.

use super::allowed::Allowed;
use super::assembly::Assembly;
use super::found::{Change, Found, Nodes, keep_last_good};
use super::list::{Listed, Lister, Scratch, is_manifest_directory};
use super::progress::Progress;
use super::watching::{Guard, Unwatched, WatchDirs};
use crate::domain::search::Rules;
use crate::domain::{Catalog, Published, Reason, Spot};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

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

/// What was told of a root since it was looked at.
#[derive(Debug, Default)]
pub struct Dirty {
    /// Tokens of directories that changed.
    pub tokens: HashSet<u64>,
    /// Those of them that were moved, or on whose way something was. It may be back by now, and look
    /// as it did; what was read by a path while it was away was read of something else, or not at all.
    pub moved: HashSet<u64>,
    /// Whether to compare every file that was read with the disk. A change through another name of a
    /// file, made before the file was known to have one, is found only in this way.
    pub compare_files: bool,
}

/// What a look at a root gave.
#[derive(Debug)]
pub struct Surveyed {
    /// What the root holds; `None` where it is as it was.
    pub catalog: Option<Result<Arc<Catalog>, Reason>>,
    /// Tokens of directories to look at again once they are quiet.
    pub unsettled: Vec<u64>,
}

/// What is held of one root.
#[derive(Debug)]
pub struct Survey {
    pub(super) target: Target,
    pub(super) next_token: AtomicU64,
    pub(super) tokens: HashMap<u64, Token>,
    /// Watches on the way to the root.
    pub(super) way: Vec<Guard>,
    /// Watches on the places for manifests above the root.
    pub(super) above: Vec<Guard>,
    /// Why the root could not be used, when it was looked at last.
    pub(super) failed: Option<Reason>,
    pub(super) found: Option<Found>,
}

/// What a watched directory is to the root.
#[derive(Debug, Clone)]
pub(super) enum Token {
    /// It was listed.
    Listed(Spot),
    /// A plugin declares something in it, or the root lists plugins in it.
    Declares(Spot),
    /// It is on the way to the root.
    Way,
    /// It is above the root, and may hold or is the directory of a manifest.
    Above(Spot),
}

/// Searches a root once, and forgets all but the catalog.
pub fn scan(
    allowed: &Allowed,
    target: &Target,
    progress: &Progress,
) -> Result<Arc<Catalog>, Reason> {
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

    /// Searches by another target, of the same path, from the next look at everything on.
    pub fn aim(&mut self, target: Target) {
        self.target = target;
        if let Some(found) = &mut self.found {
            // Put together by the rules that were.
            found.assembly = Assembly::default();
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
        let catalog = match self.resolve(allowed.look_for(&self.target.path)) {
            Err(reason) => {
                if reason == Reason::WalledOff && self.failed != Some(reason) {
                    tracing::warn!(
                        "a root was made anew after the daemon restricted itself, and is closed to it; \
                         restart the daemon"
                    );
                }
                self.failed = Some(reason);
                self.found = None;
                Err(reason)
            }
            Ok(mut found) => {
                let mut old = Nodes::new();
                if let Some(mut last) = self.found.take() {
                    old = last.nodes_on(&found.ground);
                    (found.assembly, found.catalog) = (last.assembly, last.catalog);
                    found.plugins = last.plugins;
                }
                self.watch_above(&found, watching);
                let catalog = self.search(&mut found, old, false, watching, progress);
                self.found = Some(found);
                Ok(catalog)
            }
        };
        drop(old);
        let unsettled = self.outdated_by_links(progress).into_iter().collect();
        Surveyed { catalog: Some(catalog), unsettled }
    }

    /// Looks again at the directories of the tokens. Where a file does not parse and its directory
    /// is not `quiet` yet, it stays as it was for now.
    pub fn update(
        &mut self,
        allowed: &Allowed,
        dirty: &Dirty,
        quiet: bool,
        watching: &dyn WatchDirs,
        progress: &Progress,
    ) -> Surveyed {
        let mut tokens = dirty.tokens.clone();
        if dirty.compare_files {
            tokens.extend(self.outdated(progress));
        }
        let mut surveyed = self.relist(allowed, &tokens, &dirty.moved, quiet, watching, progress);
        surveyed.unsettled.extend(self.outdated_by_links(progress));
        surveyed
    }

    fn relist(
        &mut self,
        allowed: &Allowed,
        tokens: &HashSet<u64>,
        moved: &HashSet<u64>,
        quiet: bool,
        watching: &dyn WatchDirs,
        progress: &Progress,
    ) -> Surveyed {
        let mut search_again = self.rewatch_above(tokens, watching) | self.distrust(moved);
        let Some(found) = &mut self.found else {
            return self.full(allowed, watching, progress);
        };
        search_again |= found.forget_failed_manifests();
        let mut relist: HashSet<Spot> = HashSet::new();
        let mut declaring: HashSet<Spot> = HashSet::new();
        let mut unsettled = Vec::new();
        let truncated = found.catalog.as_ref().is_some_and(|c| c.header.truncated);
        for token in tokens {
            match self.tokens.get(token) {
                // Of a directory that is no longer part of the root, or was looked at above.
                None | Some(Token::Above(_)) => {}
                Some(Token::Way) => {
                    if moved.contains(token)
                        || found.moved(&allowed.look_for(&self.target.path), &self.target.path)
                    {
                        return self.full(allowed, watching, progress);
                    }
                }
                Some(Token::Declares(dir)) => drop(declaring.insert(dir.clone())),
                Some(Token::Listed(dir)) => {
                    let name = dir.rel.file_name().unwrap_or_default();
                    if let Some(parent) = dir.parent() {
                        if is_manifest_directory(dir) {
                            if found.reread_manifest(&parent, quiet) {
                                search_again = true;
                            } else {
                                unsettled.push(*token);
                            }
                        } else if name == b"agents" && found.nodes.contains_key(&parent) {
                            relist.insert(parent);
                        }
                    }
                    relist.insert(dir.clone());
                    // Nothing is told of one that could not be listed, but here.
                    relist.extend(found.missed_in(dir));
                }
            }
        }
        let (mut skills, mut elsewhere) = (Vec::new(), Vec::new());
        let lister = Lister {
            ground: &found.ground,
            limits: &found.rules.limits,
            root_name: root_name(&self.target.path),
            watching,
        };
        let mut scratch = Scratch::default();
        let mut queue: Vec<_> = relist.into_iter().collect();
        let mut links_looked_at = false;
        while let Some(dir) = queue.pop() {
            let Some(node) = found.nodes.get_mut(&dir) else { continue };
            let visit = node.visit(&dir);
            let Listed { listing, guards, files } = lister.list(&visit, node.token, &mut scratch);
            progress.tick();
            let listing = listing.map(|new| {
                let (new, is_settled) = keep_last_good(new, node.listing.as_deref().ok(), quiet);
                if !is_settled {
                    unsettled.push(node.token);
                }
                new
            });
            match Change::between(&dir, &listing, &node.listing, truncated) {
                Change::None => {}
                Change::Main(old, new) => match found.assembly.replace(&node.walked, &old, &new) {
                    Some(skill) => skills.push(skill),
                    None => search_again = true,
                },
                Change::Shape(moved) => {
                    found.manifests.remove(&dir);
                    search_again = true;
                    elsewhere.extend(moved);
                }
            }
            let went = listing.is_err() && node.listing.is_ok();
            node.listing = listing.map(Arc::new);
            (node.guards, node.files) = (guards, files);
            found.has_new_shared |= files.has_shared;
            if went && !links_looked_at {
                // A link that led here may lead elsewhere by now, though no event told: what it
                // leads to must come in the revision in which this goes.
                links_looked_at = true;
                let strayed =
                    found.nodes.iter().filter(|(s, n)| n.has_strayed(s, &found.ground, progress));
                queue.extend(strayed.map(|(spot, _)| spot.clone()));
            }
        }
        search_again |= found.reread_all(&declaring, quiet, &mut unsettled, watching, progress);
        found.suspect(&elsewhere);
        if !search_again {
            let catalog = found.catalog.as_ref().filter(|_| !skills.is_empty());
            let catalog = catalog.map(|last| Arc::new(last.with(&skills)));
            if let Some(new) = &catalog {
                found.catalog = Some(new.clone());
            }
            return Surveyed { catalog: catalog.map(Ok), unsettled };
        }
        let Some(mut found) = self.found.take() else {
            return Surveyed { catalog: None, unsettled };
        };
        let nodes = std::mem::take(&mut found.nodes);
        let catalog = self.search(&mut found, nodes, true, watching, progress);
        self.found = Some(found);
        Surveyed { catalog: Some(Ok(catalog)), unsettled }
    }

    /// Trusts nothing any more that is below these directories, or below what they link to; says
    /// whether there is such a directory.
    fn distrust(&mut self, moved: &HashSet<u64>) -> bool {
        let Some(found) = &mut self.found else { return false };
        let listed = moved.iter().filter_map(|token| match self.tokens.get(token) {
            Some(Token::Listed(dir)) => Some(dir),
            _ => None,
        });
        let moved: Vec<_> = listed.flat_map(|dir| found.reached_from(dir)).collect();
        found.suspect(&moved);
        !moved.is_empty()
    }

    /// What was found last, or why nothing was.
    #[must_use]
    pub fn last(&self) -> Option<Result<Arc<Catalog>, Reason>> {
        match &self.found {
            Some(found) => found.catalog.clone().map(Ok),
            None => self.failed.map(Err),
        }
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
}

/// The name of a root that is itself a skill and has none.
pub(super) fn root_name(path: &[u8]) -> Option<&[u8]> {
    path.split(|b| *b == b'/').rfind(|s| !s.is_empty())
}
