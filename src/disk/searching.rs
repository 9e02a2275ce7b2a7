//! Runs a search over what is held of a root, lists what is not, and has a catalog made of what was
//! found. Leaves when to search, and what a change means, to `survey`.

use super::declared::Held;
use super::found::{Found, Node, Nodes, settled};
use super::list::{self, Lister};
use super::namespaces::Namespaces;
use super::off::Sieve;
use super::progress::Progress;
use super::survey::{Survey, Token, root_name};
use super::sweep::list_all;
use super::watching::WatchDirs;
use crate::domain::listing::Visit;
use crate::domain::search::Search;
use crate::domain::{Catalog, Spot};
use std::sync::Arc;

/// Directories of the last search that this one did not come to yet, and those that it did.
struct Sorted {
    old: Nodes,
    new: Nodes,
}

impl Sorted {
    /// Takes a directory over as it is held, and has the search absorb it.
    fn keep(&mut self, visit: Visit, search: &mut Search) {
        if let Some(node) = self.old.swap_remove(&visit.spot) {
            self.new.insert(visit.spot.clone(), node);
        }
        let node = self.new.get(&visit.spot).map(|node| node.listing.clone());
        search.absorb(visit, node.unwrap_or_else(|| Err(list::gone())));
    }
}

impl Survey {
    /// Runs a search over what is held in `old`, and lists what is not. With `trusted`, what is held
    /// is as it is on the disk.
    pub(super) fn search(
        &mut self,
        found: &mut Found,
        old: Nodes,
        trusted: bool,
        watching: &dyn WatchDirs,
        progress: &Progress,
    ) -> Arc<Catalog> {
        let mut search = Search::new(found.root.clone(), found.rules.clone());
        let mut nodes = Sorted { new: Nodes::with_capacity(old.len()), old };
        loop {
            let round = search.round();
            if round.is_empty() {
                break;
            }
            let held = |node: Option<&Node>, visit: &Visit| {
                trusted && node.is_some_and(|n| !n.suspect && n.walked == visit.walked)
            };
            let new: Vec<_> =
                round.iter().filter(|v| !held(nodes.old.get(&v.spot), v)).cloned().collect();
            let lister = Lister {
                ground: &found.ground,
                limits: &found.rules.limits,
                root_name: root_name(&self.target.path),
                watching,
            };
            nodes.new.reserve(new.len());
            self.tokens.reserve(new.len());
            let mut round = round.into_iter().peekable();
            list_all(&lister, &new, &self.next_token, progress, |visit, token, listed| {
                while let Some(held) = round.next_if(|next| next.walked != visit.walked) {
                    nodes.keep(held, &mut search);
                }
                let Some(Visit { walked, spot, linked }) = round.next() else { return };
                let last = nodes.old.swap_remove(&spot);
                if let Some(last) = &last {
                    self.tokens.remove(&last.token);
                }
                let last = last.and_then(|node| node.listing.ok());
                let listing = listed.listing.map(|new| {
                    found.kinds.note(&found.ground, &spot, new.identity.0);
                    settled(new, last)
                });
                self.tokens.insert(token, Token::Listed(spot.clone()));
                let (guards, files, held) = (listed.guards, listed.files, listing.clone());
                found.has_new_shared |= files.has_shared;
                let node = Node { walked, linked, token, listing, suspect: false, guards, files };
                nodes.new.insert(spot, node);
                search.absorb(visit.clone(), held);
            });
            round.for_each(|held| nodes.keep(held, &mut search));
        }
        for gone in nodes.old.into_values() {
            self.tokens.remove(&gone.token);
        }
        found.nodes = nodes.new;
        let mut ended = search.finish();
        let known = found.look_for_manifests(&ended.entered, &mut ended.rest.diagnostics);
        let gathered =
            found.gather(&mut ended.rest.diagnostics, trusted, &self.next_token, watching);
        self.tokens.retain(|_, token| !matches!(token, Token::Declares(_)));
        let declares = |(dir, held): (&Spot, &Held)| (held.token(), Token::Declares(dir.clone()));
        self.tokens.extend(found.plugins.iter().map(declares));
        let Found { ground, root, rules, scope, manifests, assembly, .. } = found;
        let namespaces = Namespaces { ground, root, entered: &ended.entered, manifests, known };
        let sieve = Sieve::new(ground, root, &self.target.published, &rules.switched_off);
        let follow_links = rules.follow_links;
        let new = assembly.catalog(namespaces, sieve, ended.rest, gathered, *scope, follow_links);
        // One that means the same stays the very same, which costs nobody a look.
        let last = found.catalog.take().filter(|last| last.means_the_same(&new));
        found.catalog.insert(last.unwrap_or_else(|| Arc::new(new))).clone()
    }
}
