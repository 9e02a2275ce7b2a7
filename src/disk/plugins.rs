//! What is held of the plugins and marketplaces below one root between searches, so that a change
//! re-reads the plugin that it is in and no other; and the way from there to a catalog's plugins.

use super::declared::{Held, read_list};
use super::found::{Found, Node};
use super::namespaces::{self, Namespaces};
use super::plugin::{Read, Reader};
use super::progress::Progress;
use super::watching::WatchDirs;
use crate::domain::catalog::Diagnostics;
use crate::domain::listing::Visit;
use crate::domain::plugin::{MAX_ROOT_BYTES, MAX_ROOT_PLUGINS, Marketplace, Plugin, marketplace};
use crate::domain::skill::Namespace;
use crate::domain::{Code, Declaring, Diagnostic, Manifest, Problem, RelPath, Spot};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// By directory.
pub(super) type Plugins = HashMap<Spot, Held>;

/// What plugins add to a catalog.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) plugins: Vec<Arc<Plugin>>,
    pub(super) marketplaces: Vec<Marketplace>,
    pub(super) declaring: Declaring,
}

impl Found {
    fn reader<'a>(&'a self, watching: &'a dyn WatchDirs) -> Reader<'a> {
        Reader {
            ground: &self.ground,
            limits: &self.rules.limits,
            passed_over: &self.rules.passed_over,
            follow_links: self.rules.follow_links,
            watching,
        }
    }

    /// Reads a directory's manifest again; one that can no longer be used stays as it is until all is
    /// quiet, as if nothing had happened to it. Says whether it is settled.
    pub(super) fn reread_manifest(&mut self, dir: &Spot, quiet: bool) -> bool {
        let was_good = self.manifests.get(dir).is_some_and(|read| read.manifest.is_some());
        if !quiet && was_good && namespaces::read_for(&self.ground, dir).is_broken() {
            return false;
        }
        self.manifests.remove(dir);
        true
    }

    /// Reads plugins again; gives whether there is something new, and adds the tokens of those that are
    /// to be looked at again once they are quiet.
    pub(super) fn reread_all(
        &mut self,
        dirs: &HashSet<Spot>,
        quiet: bool,
        unsettled: &mut Vec<u64>,
        watching: &dyn WatchDirs,
        progress: &Progress,
    ) -> bool {
        let mut any = false;
        for dir in dirs {
            let (differs, is_settled) = self.reread(dir, quiet, watching);
            progress.tick();
            any |= differs;
            let token = self.plugins.get(dir).map(Held::token);
            unsettled.extend(token.filter(|_| !is_settled));
        }
        any
    }

    /// Reads a plugin again. Says whether there is something new, and whether that is settled: what
    /// can no longer be used stays as it is until all is quiet.
    fn reread(&mut self, dir: &Spot, quiet: bool, watching: &dyn WatchDirs) -> (bool, bool) {
        let Some(old) = self.plugins.get(dir) else { return (false, true) };
        let mut new = self.read_declared(dir, old.token, old.manifest.as_ref(), watching);
        let kept = new.keep_last_good(old);
        if kept && !quiet {
            // Only the watches are new.
            let guards = new.guards;
            self.plugins.entry(dir.clone()).and_modify(|held| held.guards = guards);
            return (false, false);
        }
        let differs = new.plugin != old.plugin || new.lists != old.lists;
        new.is_same = old.is_same && !differs;
        new.assembled.clone_from(&old.assembled);
        self.plugins.insert(dir.clone(), new);
        (differs, true)
    }

    fn read_declared(
        &self,
        dir: &Spot,
        token: u64,
        manifest: Option<&(Manifest, RelPath)>,
        watching: &dyn WatchDirs,
    ) -> Held {
        let reader = self.reader(watching);
        let (mut plugin, mut guards) = (Read::default(), Vec::new());
        if let Some((manifest, file)) = manifest {
            (plugin, guards) = reader.read(dir, manifest, file, token);
        }
        let lists = if *dir == self.root {
            let paths = marketplace::PATHS.iter();
            let paths = paths.filter_map(|path| RelPath::new(path.as_bytes()));
            paths.filter_map(|file| read_list(&reader, dir, file, token, &mut guards)).collect()
        } else {
            Vec::new()
        };
        Held {
            token,
            guards,
            manifest: manifest.cloned(),
            plugin,
            lists,
            assembled: None,
            is_same: false,
        }
    }

    /// The directories that may be plugins, and the root, by how they were walked to.
    fn may_declare(&self) -> Vec<Visit> {
        let may_hold = |(spot, node): &(&Spot, &Node)| {
            node.listing.as_ref().is_ok_and(|l| l.may_hold_manifest) || **spot == self.root
        };
        let dirs = self.nodes.iter().filter(may_hold).map(|(spot, node)| node.visit(spot));
        let mut dirs: Vec<_> = dirs.collect();
        dirs.sort_by(|a, b| a.walked.cmp(&b.walked));
        dirs
    }

    /// Reads the manifests that are not held, and says what is wrong with any; gives the plugins of
    /// the directories that were asked on the way.
    pub(super) fn look_for_manifests(
        &mut self,
        entered: &HashMap<Spot, bool>,
        diagnostics: &mut Diagnostics,
    ) -> HashMap<Spot, Option<Arc<Namespace>>> {
        let dirs = self.may_declare();
        let Self { ground, root, manifests, .. } = self;
        let mut namespaces = Namespaces { ground, root, entered, manifests, known: HashMap::new() };
        for visit in dirs {
            namespaces.nearest(&visit.spot, diagnostics);
        }
        namespaces.known
    }

    /// Every plugin and marketplace below the root, read where they are not held. `trusted`: what is
    /// held is as it is on the disk. Gives new directories tokens.
    pub(super) fn gather(
        &mut self,
        diagnostics: &mut Diagnostics,
        trusted: bool,
        next_token: &AtomicU64,
        watching: &dyn WatchDirs,
    ) -> Gathered {
        let dirs = self.may_declare();
        let mut gathered = Gathered::default();
        let mut old = std::mem::take(&mut self.plugins);
        let (mut room, mut left_out) = (MAX_ROOT_BYTES, 0);
        for visit in dirs {
            let read = self.manifests.get(&visit.spot).cloned();
            let manifest = read.as_ref().and_then(namespaces::Read::usable);
            gathered.declaring.usual(&visit.walked, visit.spot.below(&self.root).as_ref());
            if manifest.is_none() && visit.spot != self.root {
                continue;
            }
            let last = old.remove(&visit.spot);
            let mut held = match last {
                Some(last) if trusted && last.manifest == manifest => last,
                last => {
                    let token = next_token.fetch_add(1, Ordering::Relaxed);
                    let mut new =
                        self.read_declared(&visit.spot, token, manifest.as_ref(), watching);
                    if let Some(last) = last {
                        new.keep_last_good(&last);
                        new.assembled = last.assembled;
                    }
                    new
                }
            };
            held.report(&visit.walked, diagnostics);
            if let (Some((_, file)), Some(read)) = (manifest, &read) {
                if gathered.plugins.len() == MAX_ROOT_PLUGINS {
                    left_out += 1;
                } else {
                    let (plugin, problem) = held.assemble(&visit.walked, &read.others, &mut room);
                    if let Some(problem) = problem {
                        let resource = Some(visit.walked.join_all(&file));
                        diagnostics.push(Diagnostic { resource, problem });
                    }
                    gathered.plugins.extend(plugin);
                }
            }
            for file in held.plugin.files.iter().filter(|file| file.kind.is_json()) {
                let place = file.real.as_ref().and_then(|real| real.below(&self.root));
                gathered.declaring.add(visit.walked.join_all(&file.file), place);
            }
            gathered.marketplaces.extend(held.lists.iter().filter_map(|list| list.list.clone()));
            self.plugins.insert(visit.spot.clone(), held);
        }
        if left_out > 0 {
            let why =
                format!("a root may have {MAX_ROOT_PLUGINS} plugins; {left_out} are left out");
            let problem = Problem::warning(Code::LimitReached, why);
            diagnostics.push(Diagnostic { resource: None, problem });
        }
        gathered.declaring.settle();
        gathered
    }
}
