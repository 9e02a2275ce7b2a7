//! Where the operator's rules for switched-off skills hold: below published roots, wherever these are
//! now; and which files that keeps from the skills around them.

use super::allowed::Ground;
use crate::domain::switched_off::Places;
use crate::domain::{OffPackages, Published, RelPath, Spot, SwitchedOff};

/// Skills whose files are nobody's, not even those of a skill around them.
#[derive(Debug, Clone, Copy)]
pub struct Off<'a> {
    /// Those that the root's search found.
    pub packages: &'a OffPackages,
    /// The operator's rules, for what links lead to elsewhere.
    pub rules: &'a SwitchedOff,
    /// The published roots, which the rules name.
    pub published: &'a [Published],
}

/// The same, seen from one package that is on.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    packages: &'a OffPackages,
    places: Places<'a>,
    root: &'a Spot,
    package: &'a RelPath,
    /// Where the package really is, and that below the root.
    home: Spot,
    home_below: Option<RelPath>,
}

impl<'a> Off<'a> {
    /// Looks up what the rules mean on this ground. The package is named as walked, and as it is.
    pub(super) fn seen_from(
        &self,
        ground: &Ground,
        root: &'a Spot,
        package: &'a RelPath,
        home: &Spot,
    ) -> Seen<'a> {
        let places = places(ground, self.published, self.rules);
        let (home_below, home) = (home.below(root), home.clone());
        Seen { packages: self.packages, places, root, package, home, home_below }
    }
}

impl Seen<'_> {
    /// Whether a file of the package lies in a skill that is off: as walked, or as `real`, where it
    /// really is.
    pub(super) fn covers(&self, resource: &RelPath, real: &Spot) -> bool {
        let walked = self.package.join_all(resource);
        let below = real.below(self.root);
        self.packages.cover_walked(&walked, self.package)
            || below.is_some_and(|file| self.packages.cover_real(&file, self.home_below.as_ref()))
            || self.places.cover(real, &self.home)
    }
}

/// Holds back the skills of one root that are off.
#[derive(Debug)]
pub(super) struct Sieve<'a> {
    rules: &'a SwitchedOff,
    places: Places<'a>,
    root: &'a Spot,
    taken: Vec<(RelPath, Option<RelPath>)>,
}

impl<'a> Sieve<'a> {
    /// Looks up what the rules mean on this ground.
    pub(super) fn new(
        ground: &Ground,
        root: &'a Spot,
        published: &[Published],
        rules: &'a SwitchedOff,
    ) -> Self {
        Self { rules, places: places(ground, published, rules), root, taken: Vec::new() }
    }

    /// Whether a skill is off: by where it was walked to, by where it is, or by its name.
    pub(super) fn takes(
        &mut self,
        package: &RelPath,
        home: Option<&Spot>,
        name: Option<&str>,
    ) -> bool {
        let by_place = || {
            let walked = Spot { base: self.root.base, rel: self.root.rel.join_all(package) };
            self.places.hold(&walked) || home.is_some_and(|home| self.places.hold(home))
        };
        let off = !self.places.is_empty() && by_place()
            || name.is_some_and(|name| self.rules.has_name(name));
        if off {
            self.taken.push((package.clone(), home.and_then(|home| home.below(self.root))));
        }
        off
    }

    /// The packages that were held back.
    pub(super) fn taken(self) -> OffPackages {
        OffPackages::new(self.taken)
    }
}

/// The rules by place, below those of the published roots that are there.
fn places<'a>(ground: &Ground, published: &[Published], rules: &'a SwitchedOff) -> Places<'a> {
    // A rule holds for every caller, also for one who is bound to a part of the root.
    let ground = ground.unbounded();
    rules.places(|id| {
        let root = published.iter().find(|root| root.id == *id)?;
        ground.resolve_published(&root.path).ok()
    })
}
