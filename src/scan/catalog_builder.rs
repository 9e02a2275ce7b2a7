//! Conversion of scan results to a catalog. A skill whose file and namespace did not change keeps
//! its `Arc`, which makes the comparison of two catalogs cheap.

use super::namespaces::NamespaceResolver;
use super::plugin_set::PluginSet;
use super::search::SearchFindings;
use crate::fs::disabled_skills::SkillFilter;
use crate::model::catalog::{Catalog, CatalogHeader, RootKind};
use crate::model::sidecar::sidecar_path;
use crate::model::skill::{PluginNamespace, Skill, SkillFile, assemble_skill};
use crate::model::{Diagnostic, FileProblem, RootScope, skill_file_name};
use caproot_core::wire::RelPath;
use std::collections::HashMap;
use std::sync::Arc;

/// Skills of the last catalog by package.
#[derive(Debug, Default)]
pub struct CatalogBuilder(HashMap<RelPath, BuiltSkill>);

#[derive(Debug)]
struct BuiltSkill {
    file: Arc<SkillFile>,
    namespace: Option<Arc<PluginNamespace>>,
    skill: Option<Arc<Skill>>,
    /// Problems of the skill; nearly always `None`.
    problems: Option<Box<SkillProblems>>,
}

/// Problems of a SKILL.md and of its sidecar.
#[derive(Debug, PartialEq)]
struct SkillProblems {
    skill_file_problems: Vec<FileProblem>,
    sidecar_problems: Vec<FileProblem>,
}

impl SkillProblems {
    fn new(problems: Vec<FileProblem>, sidecar_problems: Vec<FileProblem>) -> Option<Box<Self>> {
        let is_any = !problems.is_empty() || !sidecar_problems.is_empty();
        is_any.then(|| {
            Box::new(Self {
                skill_file_problems: problems,
                sidecar_problems,
            })
        })
    }
}

impl CatalogBuilder {
    /// Returns the new skill of a package of which only the SKILL.md changed. Returns `None` if the
    /// catalog would change in other ways too, or if the package was not built from `old`.
    pub fn replace_skill(
        &mut self,
        package: &RelPath,
        old: &Arc<SkillFile>,
        new: &Arc<SkillFile>,
    ) -> Option<Arc<Skill>> {
        let built = self
            .0
            .get_mut(package)
            .filter(|a| Arc::ptr_eq(&a.file, old))?;
        let (skill, problems, sidecar_problems) =
            assemble_skill(package, new, built.namespace.as_deref());
        let (before, now) = (built.skill.as_ref()?, skill?);
        let is_compatible = before.name() == now.name()
            && SkillProblems::new(problems, sidecar_problems) == built.problems;
        if !is_compatible {
            return None;
        }
        built.file = new.clone();
        built.skill = Some(if **before == now {
            before.clone()
        } else {
            Arc::new(now)
        });
        built.skill.clone()
    }

    /// Assigns the namespaces, removes the disabled skills, and builds the catalog.
    pub fn build_catalog(
        &mut self,
        mut namespaces: NamespaceResolver<'_>,
        mut filter: SkillFilter<'_>,
        findings: SearchFindings,
        plugin_set: PluginSet,
        scope: Option<RootScope>,
        follow_links: bool,
    ) -> Catalog {
        let SearchFindings {
            candidates,
            mut diagnostics,
            mut counts,
            truncated,
        } = findings;
        let mut old = std::mem::take(&mut self.0);
        let mut skills = Vec::with_capacity(candidates.len());
        self.0.reserve(candidates.len());
        for candidate in candidates {
            let dir = candidate.resolved.parent();
            let namespace = dir
                .as_ref()
                .and_then(|dir| namespaces.find_namespace(dir, &mut diagnostics));
            let is_same = |old: &BuiltSkill| {
                let is_same_file =
                    Arc::ptr_eq(&old.file, &candidate.file) || old.file == candidate.file;
                is_same_file && old.namespace == namespace
            };
            let unchanged = old.remove(&candidate.package).filter(is_same);
            let built = if let Some(unchanged) = unchanged {
                BuiltSkill {
                    file: candidate.file,
                    ..unchanged
                }
            } else {
                let (skill, problems, sidecar_problems) =
                    assemble_skill(&candidate.package, &candidate.file, namespace.as_deref());
                let skill = skill.map(Arc::new);
                let skill_problems = SkillProblems::new(problems, sidecar_problems);
                BuiltSkill {
                    file: candidate.file,
                    namespace,
                    skill,
                    problems: skill_problems,
                }
            };
            let name = built.skill.as_ref().map(|skill| skill.name());
            if filter.take_if_disabled(&candidate.package, dir.as_ref(), name) {
                counts.disabled += 1;
                self.0.insert(candidate.package, built);
                continue;
            }
            counts.omitted += u32::from(built.skill.is_none());
            skills.extend(built.skill.clone());
            let mut report = |at: RelPath, problems: &[FileProblem]| {
                for problem in problems {
                    let problem = problem.clone();
                    diagnostics.push(Diagnostic {
                        resource: Some(at.clone()),
                        problem,
                    });
                }
            };
            if let Some(skill_problems) = &built.problems {
                report(
                    candidate.package.join_path(&skill_file_name()),
                    &skill_problems.skill_file_problems,
                );
                report(
                    candidate.package.join_path(&sidecar_path()),
                    &skill_problems.sidecar_problems,
                );
            }
            self.0.insert(candidate.package, built);
        }
        let root = namespaces.root().clone();
        namespaces.find_namespace(&root, &mut diagnostics);
        let plugin = namespaces.root_manifest();
        let kind = match (&plugin, self.0.contains_key(&RelPath::root())) {
            (Some(_), _) => RootKind::Plugin,
            (None, true) => RootKind::Skill,
            (None, false) => RootKind::SkillSet,
        };
        let header = CatalogHeader {
            scope,
            follow_links,
            kind,
            plugin,
            counts,
            truncated,
        };
        let PluginSet {
            plugins,
            marketplaces,
            manifest_files,
        } = plugin_set;
        let catalog = Catalog::new(skills, diagnostics, header)
            .with_disabled_packages(filter.disabled_packages());
        catalog.with_plugins(plugins, marketplaces, manifest_files)
    }
}
