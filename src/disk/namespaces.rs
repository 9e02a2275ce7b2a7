//! Finds the plugin that a directory belongs to: the nearest valid manifest at or above it, never
//! above its allowed root. Each manifest is read once a scan, and only where a skill asks for it.

use super::allowed::{Blocked, Ground};
use super::content;
use super::list::unopened;
use super::resource::{self, Unopened};
use crate::domain::catalog::Diagnostics;
use crate::domain::skill::Namespace;
use crate::domain::{Code, Diagnostic, Manifest, Problem, RelPath, Severity, Spot, manifest};
use std::collections::HashMap;

/// The manifests that one scan has looked for.
pub(super) struct Namespaces<'a> {
    ground: &'a Ground,
    root: &'a Spot,
    /// Directories that were searched, and whether they may hold a manifest.
    entered: HashMap<Spot, bool>,
    known: HashMap<Spot, Option<Namespace>>,
    own: Option<Manifest>,
}

impl<'a> Namespaces<'a> {
    pub(super) fn new(ground: &'a Ground, root: &'a Spot, entered: HashMap<Spot, bool>) -> Self {
        Self { ground, root, entered, known: HashMap::new(), own: None }
    }

    /// The plugin of a directory.
    pub(super) fn nearest(
        &mut self,
        dir: &Spot,
        diagnostics: &mut Diagnostics,
    ) -> Option<&Namespace> {
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
            climbed.push(spot);
            if answer.is_some() {
                break;
            }
        }
        for spot in climbed {
            self.known.insert(spot, answer.clone());
        }
        self.known.get(dir)?.as_ref()
    }

    /// The manifest of the root itself, once [`Self::nearest`] was asked for the root.
    pub(super) fn own(self) -> Option<Manifest> {
        self.own
    }

    fn at(&mut self, dir: &Spot, diagnostics: &mut Diagnostics) -> Option<Namespace> {
        if self.entered.get(dir) == Some(&false) {
            return None;
        }
        let (path, read) = manifest::PATHS.into_iter().find_map(|path| {
            let path = RelPath::new(path.as_bytes())?;
            match resource::open(self.ground, dir, &path) {
                Err(Unopened::Blocked(Blocked::Missing | Blocked::NotADirectory)) => None,
                Err(e) => Some((path, Err(unopened(e, Severity::Error)))),
                Ok(opened) => Some((path, Ok(content::small(&opened.file)))),
            }
        })?;
        let (manifest, problems) = match read {
            Ok(Ok(bytes)) => manifest::read(&bytes, self.ground.name(dir)),
            Ok(Err(_)) => {
                let text = "could not be read; look at the filesystem";
                (None, vec![Problem::error(Code::ManifestInvalid, text)])
            }
            Err(problem) => (None, vec![problem]),
        };
        let below = (dir.base == self.root.base).then(|| dir.rel.below(&self.root.rel)).flatten();
        for problem in problems {
            let resource = below.as_ref().map(|dir| dir.join_all(&path));
            diagnostics.push(Diagnostic { resource, problem });
        }
        let manifest = manifest?;
        let name = (&*manifest.name).into();
        if dir == self.root {
            self.own = Some(manifest);
        }
        Some(Namespace { name, dir: below })
    }
}
