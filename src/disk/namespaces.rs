//! Finds the plugin that a directory belongs to: the nearest valid manifest at or above it, never
//! above its allowed root. Each manifest is read once a scan, and only where a skill asks for it.

use super::allowed::{Blocked, Ground};
use super::content;
use super::fingerprint::Fingerprint;
use super::list::{FAILED, may_pass, unopened};
use super::resource::{self, Unopened};
use crate::domain::catalog::Diagnostics;
use crate::domain::skill::Namespace;
use crate::domain::{Code, Diagnostic, Manifest, Problem, RelPath, Severity, Spot, manifest};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// What was read of the manifests of each directory that was asked for one.
pub(super) type Manifests = HashMap<Spot, Read>;

/// What the places for a manifest in one directory hold.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Read {
    pub(super) manifest: Option<Manifest>,
    /// The first of the places at which something is.
    pub(super) file: Option<RelPath>,
    /// The others.
    pub(super) others: Vec<RelPath>,
    /// The fingerprint of the file, if the file could be opened.
    fingerprint: Option<Fingerprint>,
    /// About the file at a place below the directory.
    problems: Vec<(RelPath, Problem)>,
}

impl Read {
    /// The manifest, and where it is below the directory.
    pub(super) fn usable(&self) -> Option<(Manifest, RelPath)> {
        Some((self.manifest.clone()?, self.file.clone()?))
    }

    /// Whether there is a manifest that cannot be used.
    pub(super) fn is_broken(&self) -> bool {
        self.manifest.is_none() && self.file.is_some()
    }

    /// Whether the manifest changed since it was read.
    pub(super) fn is_outdated(&self, ground: &Ground, dir: &Spot) -> bool {
        let Some((read, file)) = self.fingerprint.zip(self.file.as_ref()) else { return false };
        if ground.may_serve(dir) {
            return read.is_outdated(ground, dir, file);
        }
        read.is_outdated(&ground.unbounded(), dir, file)
    }

    /// Whether a manifest could not be read, and may be by now.
    pub(super) fn has_failed(&self) -> bool {
        self.problems.iter().any(|(_, problem)| may_pass(problem))
    }
}

/// The plugins of the directories of one search.
pub(super) struct Namespaces<'a> {
    pub(super) ground: &'a Ground,
    pub(super) root: &'a Spot,
    /// Directories that were searched, and whether they may hold a manifest.
    pub(super) entered: &'a HashMap<Spot, bool>,
    pub(super) manifests: &'a mut Manifests,
    pub(super) known: HashMap<Spot, Option<Arc<Namespace>>>,
}

impl Namespaces<'_> {
    /// The plugin of a directory.
    pub(super) fn nearest(
        &mut self,
        dir: &Spot,
        diagnostics: &mut Diagnostics,
    ) -> Option<Arc<Namespace>> {
        let mut climbed = Vec::new();
        let mut here = Some(dir.clone());
        let mut answer = None;
        while let Some(spot) = here {
            if let Some(known) = self.known.get(&spot) {
                answer.clone_from(known);
                break;
            }
            answer = self.at(&spot, diagnostics);
            here = spot.parent();
            // A skill's own directory is hardly ever asked for again.
            if spot != *dir || self.entered.get(dir) != Some(&false) {
                climbed.push(spot);
            }
            if answer.is_some() {
                break;
            }
        }
        for spot in climbed {
            self.known.insert(spot, answer.clone());
        }
        answer
    }

    /// The manifest of the root itself, once [`Self::nearest`] was asked for the root.
    pub(super) fn own(&self) -> Option<Manifest> {
        self.manifests.get(self.root)?.manifest.clone()
    }

    fn at(&mut self, dir: &Spot, diagnostics: &mut Diagnostics) -> Option<Arc<Namespace>> {
        if self.entered.get(dir) == Some(&false) {
            if !self.manifests.is_empty() {
                self.manifests.remove(dir);
            }
            return None;
        }
        let read = match self.manifests.entry(dir.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(read_for(self.ground, dir)),
        };
        let below = (dir.base == self.root.base).then(|| dir.rel.below(&self.root.rel)).flatten();
        for (path, problem) in &read.problems {
            let resource = below.as_ref().map(|dir| dir.join_all(path));
            diagnostics.push(Diagnostic { resource, problem: problem.clone() });
        }
        let name = (&*read.manifest.as_ref()?.name).into();
        Some(Arc::new(Namespace { name, dir: below }))
    }
}

/// Reads a directory's manifest. Above what a bound caller may be served it gives its plugin's name,
/// as a skill has one name for every caller, and by it is switched off; and nothing is said of it.
pub(super) fn read_for(ground: &Ground, dir: &Spot) -> Read {
    if ground.may_serve(dir) {
        return read(ground, dir);
    }
    Read { problems: Vec::new(), ..read(&ground.unbounded(), dir) }
}

/// Reads the first manifest that exists in a directory.
fn read(ground: &Ground, dir: &Spot) -> Read {
    let paths = manifest::PATHS.into_iter();
    let mut there = paths.filter_map(|path| {
        let path = RelPath::new(path.as_bytes())?;
        match resource::open(ground, dir, &path) {
            Err(Unopened::Blocked(Blocked::Missing | Blocked::NotADirectory)) => None,
            Err(e) => Some((path, Err(unopened(e, Severity::Error)))),
            Ok(opened) => Some((path, Ok(opened))),
        }
    });
    let Some((path, opened)) = there.next() else { return Read::default() };
    let fingerprint = opened.as_ref().ok().map(|opened| Fingerprint::of(&opened.version));
    let read = opened.map(|opened| content::small(&opened.file));
    let others = there.map(|(path, _)| path).collect();
    let (manifest, problems) = match read {
        Ok(Ok(bytes)) => manifest::read(&bytes, ground.name(dir)),
        Ok(Err(_)) => (None, vec![Problem::error(Code::ManifestInvalid, FAILED)]),
        Err(problem) => (None, vec![problem]),
    };
    let problems = problems.into_iter().map(|p| (path.clone(), p)).collect();
    Read { manifest, file: Some(path), others, fingerprint, problems }
}
