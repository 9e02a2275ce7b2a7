//! One whole search of one root, from its path to its catalog. Blocking; reads directories and
//! skills on a few threads of its own, so that a root that hangs holds up nobody else.

use super::allowed::{Allowed, Ground};
use super::list::{Lister, sidecar_path};
use super::namespaces::Namespaces;
use super::off;
use super::progress::Progress;
use super::resource::blocked;
use crate::domain::catalog::{Catalog, Header, Kind};
use crate::domain::listing::{Listing, Visit};
use crate::domain::search::{Found, Rules, Search};
use crate::domain::skill::assemble;
use crate::domain::switched_off::Places;
use crate::domain::{
    Diagnostic, OffPackages, Problem, Published, Reason, RelPath, Scope, Spot, SwitchedOff,
    main_file,
};
use rustix::fs::OFlags;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
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

/// Searches the root. `progress` ticks with every directory that was listed.
pub fn scan(allowed: &Allowed, target: &Target, progress: &Progress) -> Result<Catalog, Reason> {
    let ground = allowed.look();
    let root = ground.resolve(&target.path)?;
    // Says why, before a search would only find nothing.
    ground.open(&root, OFlags::RDONLY | OFlags::DIRECTORY).map_err(blocked)?;
    let mut rules = target.rules.clone();
    let mut scope = None;
    for published in target.published.iter() {
        match ground.resolve(&published.path) {
            Ok(spot) if spot == root => {
                scope = scope.or(Some(published.scope));
                rules.follow_links &= published.follow_links;
            }
            Ok(spot) => drop(rules.fences.insert(spot)),
            Err(_) => {}
        }
    }
    let follow_links = rules.follow_links;
    let limits = rules.limits.clone();
    let switched_off = Sieve {
        places: off::places(&ground, &target.published, &target.rules.switched_off),
        rules: &target.rules.switched_off,
        packages: Vec::new(),
    };
    let root_name = target.path.split(|b| *b == b'/').rfind(|s| !s.is_empty());
    let lister = Lister { ground: &ground, limits: &limits, root_name };
    let mut search = Search::new(root.clone(), rules);
    loop {
        let round = search.round();
        if round.is_empty() {
            return Ok(catalog(
                search.finish(),
                switched_off,
                &ground,
                &root,
                (scope, follow_links),
            ));
        }
        search.absorb(list_all(&lister, &round, progress));
    }
}

/// Gives each skill its namespace, and joins all to a catalog.
fn catalog(
    found: Found,
    mut off: Sieve<'_>,
    ground: &Ground,
    root: &Spot,
    (scope, follow_links): (Option<Scope>, bool),
) -> Catalog {
    let Found { candidates, mut diagnostics, mut counts, truncated, entered } = found;
    let mut namespaces = Namespaces::new(ground, root, entered);
    let mut skills = Vec::with_capacity(candidates.len());
    let mut root_is_skill = false;
    for candidate in candidates {
        root_is_skill |= candidate.package.is_root();
        let home = candidate.spot.parent();
        let namespace = home.as_ref().and_then(|home| namespaces.nearest(home, &mut diagnostics));
        let package = candidate.package.clone();
        let main = package.join_all(&main_file());
        let sidecar = package.join_all(&sidecar_path());
        let (skill, problems, sidecar_problems) =
            assemble(candidate.package, candidate.file, namespace);
        if off.takes(package, home.as_ref(), root, skill.as_ref().map(|s| &*s.name)) {
            counts.disabled += 1;
            continue;
        }
        counts.left_out += u32::from(skill.is_none());
        skills.extend(skill.map(Arc::new));
        let mut report = |at: RelPath, problems: Vec<Problem>| {
            for problem in problems {
                diagnostics.push(Diagnostic { resource: Some(at.clone()), problem });
            }
        };
        report(main, problems);
        report(sidecar, sidecar_problems);
    }
    namespaces.nearest(root, &mut diagnostics);
    let plugin = namespaces.own();
    let kind = match (&plugin, root_is_skill) {
        (Some(_), _) => Kind::Plugin,
        (None, true) => Kind::Skill,
        (None, false) => Kind::SkillSet,
    };
    let header = Header { scope, follow_links, kind, plugin, counts, truncated };
    Catalog::new(skills, diagnostics, header).without(OffPackages::new(off.packages))
}

/// Holds back the skills that the operator switched off.
struct Sieve<'a> {
    places: Places<'a>,
    rules: &'a SwitchedOff,
    packages: Vec<(RelPath, Option<RelPath>)>,
}

impl Sieve<'_> {
    /// Whether a skill is off: by where it was walked to, by where it is, or by its name.
    fn takes(
        &mut self,
        package: RelPath,
        home: Option<&Spot>,
        root: &Spot,
        name: Option<&str>,
    ) -> bool {
        let walked = Spot { base: root.base, rel: root.rel.join_all(&package) };
        let off = self.places.hold(&walked)
            || home.is_some_and(|home| self.places.hold(home))
            || name.is_some_and(|name| self.rules.has_name(name));
        if off {
            self.packages.push((package, home.and_then(|home| home.below(root))));
        }
        off
    }
}

/// Lists the directories of a round, in its order.
fn list_all(
    lister: &Lister<'_>,
    round: &[Visit],
    progress: &Progress,
) -> Vec<(Visit, Result<Listing, Problem>)> {
    let listings: Vec<OnceLock<_>> = round.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(visit) = round.get(at) else { return };
            let _ = listings[at].set(lister.list(visit));
            progress.tick();
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS);
    if round.len() <= INLINE_VISITS {
        work();
    } else {
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
    }
    let listings = listings.into_iter().map(|l| l.into_inner().expect("every visit was made"));
    round.iter().cloned().zip(listings).collect()
}
