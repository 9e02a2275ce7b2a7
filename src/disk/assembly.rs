//! From what a search found to a catalog. A skill whose file and namespace are as they were is the
//! very same value as before, so that comparing two catalogs costs little.

use super::list::sidecar_path;
use super::namespaces::Namespaces;
use super::off::Sieve;
use super::plugins::Gathered;
use crate::domain::catalog::{Catalog, Header, Kind};
use crate::domain::search::Rest;
use crate::domain::skill::{MainFile, Namespace, Skill, assemble};
use crate::domain::{Diagnostic, Problem, RelPath, Scope, main_file};
use std::collections::HashMap;
use std::sync::Arc;

/// The skills of the last catalog, by package.
#[derive(Debug, Default)]
pub(super) struct Assembly(HashMap<RelPath, Assembled>);

#[derive(Debug)]
struct Assembled {
    file: Arc<MainFile>,
    namespace: Option<Arc<Namespace>>,
    skill: Option<Arc<Skill>>,
    /// What is wrong with it; nearly always nothing.
    wrong: Option<Box<Wrong>>,
}

/// What is wrong with a SKILL.md, and with its sidecar.
#[derive(Debug, PartialEq)]
struct Wrong {
    problems: Vec<Problem>,
    sidecar_problems: Vec<Problem>,
}

impl Wrong {
    fn new(problems: Vec<Problem>, sidecar_problems: Vec<Problem>) -> Option<Box<Self>> {
        let is_any = !problems.is_empty() || !sidecar_problems.is_empty();
        is_any.then(|| Box::new(Self { problems, sidecar_problems }))
    }
}

impl Assembly {
    /// The skill that comes of a package whose file alone changed; `None` where the catalog would
    /// change in other ways too, or where the package was not made of the old file.
    pub(super) fn replace(
        &mut self,
        package: &RelPath,
        old: &Arc<MainFile>,
        new: &Arc<MainFile>,
    ) -> Option<Arc<Skill>> {
        let assembled = self.0.get_mut(package).filter(|a| Arc::ptr_eq(&a.file, old))?;
        let (skill, problems, sidecar_problems) =
            assemble(package, new, assembled.namespace.as_deref());
        let (before, now) = (assembled.skill.as_ref()?, skill?);
        let is_alike = before.name() == now.name()
            && Wrong::new(problems, sidecar_problems) == assembled.wrong;
        if !is_alike {
            return None;
        }
        assembled.file = new.clone();
        assembled.skill = Some(if **before == now { before.clone() } else { Arc::new(now) });
        assembled.skill.clone()
    }

    /// Gives each skill its namespace, and joins all to a catalog.
    pub(super) fn catalog(
        &mut self,
        mut namespaces: Namespaces<'_>,
        mut sieve: Sieve<'_>,
        found: Rest,
        gathered: Gathered,
        scope: Option<Scope>,
        follow_links: bool,
    ) -> Catalog {
        let Rest { candidates, mut diagnostics, mut counts, truncated } = found;
        let mut old = std::mem::take(&mut self.0);
        let mut skills = Vec::with_capacity(candidates.len());
        self.0.reserve(candidates.len());
        for candidate in candidates {
            let home = candidate.spot.parent();
            let namespace =
                home.as_ref().and_then(|home| namespaces.nearest(home, &mut diagnostics));
            let is_same = |old: &Assembled| {
                let is_same_file =
                    Arc::ptr_eq(&old.file, &candidate.file) || old.file == candidate.file;
                is_same_file && old.namespace.as_deref() == namespace.map(|n| &**n)
            };
            let same = old.remove(&candidate.package).filter(is_same);
            let assembled = if let Some(same) = same {
                Assembled { file: candidate.file, ..same }
            } else {
                let (skill, problems, sidecar_problems) =
                    assemble(&candidate.package, &candidate.file, namespace.map(|n| &**n));
                let skill = skill.map(Arc::new);
                let (namespace, file) = (namespace.cloned(), candidate.file);
                let wrong = Wrong::new(problems, sidecar_problems);
                Assembled { file, namespace, skill, wrong }
            };
            let name = assembled.skill.as_ref().map(|skill| skill.name());
            if sieve.takes(&candidate.package, home.as_ref(), name) {
                counts.disabled += 1;
                self.0.insert(candidate.package, assembled);
                continue;
            }
            counts.left_out += u32::from(assembled.skill.is_none());
            skills.extend(assembled.skill.clone());
            let mut report = |at: RelPath, problems: &[Problem]| {
                for problem in problems {
                    let problem = problem.clone();
                    diagnostics.push(Diagnostic { resource: Some(at.clone()), problem });
                }
            };
            if let Some(wrong) = &assembled.wrong {
                report(candidate.package.join_all(&main_file()), &wrong.problems);
                report(candidate.package.join_all(&sidecar_path()), &wrong.sidecar_problems);
            }
            self.0.insert(candidate.package, assembled);
        }
        let root = namespaces.root.clone();
        namespaces.nearest(&root, &mut diagnostics);
        let plugin = namespaces.own();
        let kind = match (&plugin, self.0.contains_key(&RelPath::root())) {
            (Some(_), _) => Kind::Plugin,
            (None, true) => Kind::Skill,
            (None, false) => Kind::SkillSet,
        };
        let header = Header { scope, follow_links, kind, plugin, counts, truncated };
        let Gathered { plugins, marketplaces, declaring } = gathered;
        let catalog = Catalog::new(skills, diagnostics, header).without(sieve.taken());
        catalog.with_plugins(plugins, marketplaces, declaring)
    }
}
