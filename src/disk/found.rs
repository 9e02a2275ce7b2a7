//! What is held of a root that can be used, and what a second look at a directory means for it.

use super::allowed::{Ground, identity};
use super::assembly::Assembly;
use super::declared::Held;
use super::fingerprint::FilesRead;
use super::kinds::Kinds;
use super::list::may_pass;
use super::namespaces::{self, Manifests};
use super::plugins::Plugins;
use super::progress::Progress;
use super::resource;
use super::watching::Guards;
use crate::domain::listing::{Entry, Listing, Visit, What};
use crate::domain::search::Rules;
use crate::domain::skill::MainFile;
use crate::domain::{Catalog, Problem, RelPath, Scope, Spot};
use indexmap::IndexMap;
use rustix::fs::{OFlags, fstat};
use std::collections::HashSet;
use std::sync::Arc;

/// What the last search of a root that can be used found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) ground: Arc<Ground>,
    pub(super) root: Spot,
    pub(super) root_identity: (u64, u64),
    pub(super) rules: Rules,
    pub(super) scope: Option<Scope>,
    pub(super) nodes: Nodes,
    pub(super) manifests: Manifests,
    pub(super) plugins: Plugins,
    pub(super) assembly: Assembly,
    pub(super) kinds: Kinds,
    /// What was found last.
    pub(super) catalog: Option<Arc<Catalog>>,
    /// Whether a directory with a file that has other names was listed since [`Found::outdated`]
    /// was asked for that reason.
    pub(super) has_new_shared: bool,
}

/// The directories that the search entered. Unlike a table of the standard library, it has no room for
/// entries that are not there, and they are large.
pub(super) type Nodes = IndexMap<Spot, Node>;

/// One directory that the search entered.
#[derive(Debug)]
pub(super) struct Node {
    /// As walked from the root.
    pub(super) walked: RelPath,
    /// Whether a link was followed on the way.
    pub(super) linked: bool,
    pub(super) token: u64,
    pub(super) listing: Result<Arc<Listing>, Problem>,
    /// Another directory may have taken its place with the one above it, so it must be listed again.
    pub(super) suspect: bool,
    /// Watch over it while it is held.
    #[allow(dead_code)] // held, and never looked at
    pub(super) guards: Guards,
    pub(super) files: FilesRead,
}

/// What a second look at a directory found.
pub(super) enum Change {
    /// Nothing that a search would see.
    None,
    /// What its SKILL.md holds, and nothing else: before and now.
    Main(Arc<MainFile>, Arc<MainFile>),
    /// Something else; and where other directories are now under the same names.
    Shape(Vec<Spot>),
}

impl Change {
    /// Compares two looks at a directory. Where a limit cut the search, every entry counts.
    pub(super) fn between(
        dir: &Spot,
        new: &Result<Listing, Problem>,
        old: &Result<Arc<Listing>, Problem>,
        truncated: bool,
    ) -> Self {
        match (new, old) {
            (Ok(new), Ok(old)) if truncated => Self::Shape(elsewhere(dir, new, old)),
            (Ok(new), Ok(old)) if new.means_the_same(old) => Self::None,
            (Ok(new), Ok(old)) => match new.differs_in_main_only(old) {
                Some((old, new)) => Self::Main(old, new),
                None => Self::Shape(elsewhere(dir, new, old)),
            },
            (Err(new), Err(old)) if new == old => Self::None,
            _ => Self::Shape(Vec::new()),
        }
    }
}

impl Found {
    /// Trusts nothing any more that is known of directories at and below these.
    pub(super) fn suspect(&mut self, replaced: &[Spot]) {
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
        self.plugins.retain(|spot, _| !is_in(spot));
    }

    /// A directory, and those that its links lead to.
    pub(super) fn reached_from(&self, dir: &Spot) -> Vec<Spot> {
        let listing = self.nodes.get(dir).and_then(|node| node.listing.as_deref().ok());
        let entries = listing.map_or(&[][..], |listing| &listing.entries);
        let linked = entries.iter().filter_map(|entry| match &entry.what {
            What::LinkedDirectory(to, _) => Some(to.clone()),
            _ => None,
        });
        linked.chain([dir.clone()]).collect()
    }

    /// The directories in one, or linked from there, that could not be listed.
    pub(super) fn missed_in(&self, dir: &Spot) -> Vec<Spot> {
        let listing = self.nodes.get(dir).and_then(|node| node.listing.as_deref().ok());
        let entries = listing.map_or(&[][..], |listing| &listing.entries);
        let spots = entries.iter().filter_map(|entry| match &entry.what {
            What::LinkedDirectory(to, _) => Some(to.clone()),
            What::Directory => dir.join(&entry.name),
            _ => None,
        });
        let missed = |spot: &Spot| self.nodes.get(spot).is_some_and(|node| node.listing.is_err());
        spots.filter(missed).collect()
    }

    /// Forgets the manifests that could not be read and may be by now; says whether there were some.
    pub(super) fn forget_failed_manifests(&mut self) -> bool {
        let before = self.manifests.len();
        self.manifests.retain(|_, read| !read.has_failed());
        self.manifests.len() < before
    }

    /// The tokens of directories to look at, though no event tells. Where it is only a manifest that
    /// could not be read, any will do. `mounts` are places at which something was mounted or taken
    /// away.
    pub(super) fn strayed(&self, mounts: &HashSet<Box<[u8]>>, progress: &Progress) -> HashSet<u64> {
        let failed = self.manifests.values().any(namespaces::Read::has_failed);
        let root = self.nodes.get(&self.root).filter(|_| failed);
        let is_strayed =
            |(spot, node): &(&Spot, &Node)| node.has_strayed(spot, &self.ground, progress);
        let strayed = self.nodes.iter().filter(is_strayed).map(|(_, node)| node);
        // What is mounted on a file is seen from the directory that holds it.
        let places = mounts.iter().filter_map(|place| self.ground.spot(place));
        let places = places.flat_map(|spot| [spot.parent(), Some(spot)]).flatten();
        let mounted = places.filter_map(|spot| self.nodes.get(&spot));
        let nodes = strayed.chain(root).chain(mounted).map(|node| node.token);
        let plugins = self.plugins.values().filter(|plugin| plugin.has_failed());
        nodes.chain(plugins.map(Held::token)).collect()
    }

    /// Gives away its directories, as they are called on another ground; those that are not on it are
    /// left out.
    pub(super) fn nodes_on(&mut self, ground: &Arc<Ground>) -> Nodes {
        let nodes = std::mem::take(&mut self.nodes);
        if Arc::ptr_eq(ground, &self.ground) {
            return nodes;
        }
        let moved = |spot: Spot| ground.spot(&self.ground.real(&spot));
        nodes.into_iter().filter_map(|(spot, node)| Some((moved(spot)?, node))).collect()
    }

    /// Whether the root's path leads elsewhere than it did, on the ground as it is now.
    pub(super) fn moved(&self, ground: &Arc<Ground>, path: &[u8]) -> bool {
        let Ok(spot) = ground.resolve(path) else { return true };
        let Ok(fd) = ground.open(&spot, OFlags::PATH | OFlags::DIRECTORY) else { return true };
        let is_same = fstat(&fd).is_ok_and(|stat| identity(&stat) == self.root_identity);
        !is_same || !Arc::ptr_eq(ground, &self.ground) || spot != self.root
    }
}

impl Node {
    /// The look at it, at a place.
    pub(super) fn visit(&self, spot: &Spot) -> Visit {
        Visit { walked: self.walked.clone(), spot: spot.clone(), linked: self.linked }
    }

    /// Whether a look at it may show what no event tells: a link that leads elsewhere than it did, or
    /// what could not be read and may be by now.
    pub(super) fn has_strayed(&self, spot: &Spot, ground: &Ground, progress: &Progress) -> bool {
        let listing = match &self.listing {
            Ok(listing) => listing,
            Err(problem) => return may_pass(problem),
        };
        listing.entries.iter().any(|entry| {
            let target = || {
                let target = resource::look_at_link(ground, spot, &entry.name);
                progress.tick();
                target
            };
            match &entry.what {
                What::File(Some(main)) | What::LinkedFile(_, Some(main)) if failed(main) => true,
                What::LinkedDirectory(to, was) => {
                    target().is_none_or(|now| now.spot != *to || identity(&now.stat) != *was)
                }
                What::LinkedFile(to, _) => target().is_none_or(|now| now.spot != *to),
                What::BadLink(_) => target().is_some(),
                What::Directory | What::File(_) | What::Special => false,
            }
        })
    }
}

/// Whether a SKILL.md or its sidecar could not be read, and may be by now.
fn failed(main: &Result<Arc<MainFile>, Problem>) -> bool {
    match main {
        Err(problem) => may_pass(problem),
        Ok(file) => file.sidecar.as_ref().is_some_and(|read| read.1.iter().any(may_pass)),
    }
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

/// What is held of a directory that had time to settle. What is as it was is the very same, so that a
/// look at everything leaves memory as it was.
pub(super) fn settled(new: Listing, last: Option<Arc<Listing>>) -> Arc<Listing> {
    let (new, _) = keep_last_good(new, last.as_deref(), true);
    last.filter(|last| **last == new).unwrap_or_else(|| Arc::new(new))
}

/// Puts what a SKILL.md last said in the place of one that does not parse; while its directory is
/// not quiet, as if nothing had happened to it. One that says the same as before is the very same, so
/// that it is held once. Also whether it is settled.
pub(super) fn keep_last_good(
    mut new: Listing,
    last: Option<&Listing>,
    quiet: bool,
) -> (Listing, bool) {
    let last = last.and_then(Listing::main);
    let Some(main) = new.main_mut() else { return (new, true) };
    if let Some(last) = last.filter(|last| *last == main) {
        *main = last.clone();
        return (new, true);
    }
    let (Some(last), None) = (last, &main.authored) else { return (new, true) };
    if !quiet {
        *main = last.clone();
        return (new, false);
    }
    *main = Arc::new(main.as_ref().clone().or_last_good(Some(last)));
    (new, true)
}
