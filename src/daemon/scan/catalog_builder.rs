//! Conversion of scan results to a catalog. A skill whose file and namespace did not change keeps
//! its `Arc`, which makes the comparison of two catalogs cheap.

use super::namespaces::NamespaceResolver;
use super::plugin_set::PluginSet;
use super::search::{SearchFindings, SkillCandidate};
use crate::daemon::fs::disabled_skills::SkillFilter;
use crate::daemon::model::catalog::{Catalog, CatalogHeader, RootKind};
use crate::daemon::model::skill::{PluginNamespace, Skill, SkillFile, assemble_skill};
use crate::daemon::model::{Diagnostic, RootScope, TrustMode, TrustPolicy};
use caproot_core::lock::EntryKind;
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
    /// Whether the plugin lists other skills than this one.
    is_unlisted: bool,
    skill: Option<Arc<Skill>>,
    /// Diagnostics of the skill; nearly always empty.
    diagnostics: Box<[Diagnostic]>,
}

/// Settings of a root for its catalog.
pub struct CatalogSettings<'a> {
    pub scope: Option<RootScope>,
    pub follow_links: bool,
    /// Lock that applies to the root.
    pub trust: Option<&'a TrustPolicy>,
}

impl BuiltSkill {
    /// Builds the skill of a candidate. Keeps `last` if its file and namespace are the same.
    fn build(
        candidate: &SkillCandidate,
        namespace: Option<Arc<PluginNamespace>>,
        last: Option<Self>,
        trust: Option<&TrustPolicy>,
    ) -> Self {
        let file = candidate.file.clone();
        let plugin = namespace.as_deref();
        let is_unlisted = plugin
            .and_then(|plugin| plugin.skill_list.as_ref())
            .zip(candidate.resolved.parent())
            .is_some_and(|(list, dir)| !list.covers(&dir));
        if let Some(last) = last
            && (Arc::ptr_eq(&last.file, &file) || last.file == file)
            && last.namespace == namespace
            && last.is_unlisted == is_unlisted
        {
            return Self { file, ..last };
        }

        let (mut skill, diagnostics) =
            assemble_skill(&candidate.package, &file, plugin, is_unlisted);
        if let Some(skill) = &mut skill {
            skill.trust = trust.map(|trust| trust.initial_state(EntryKind::Skill, skill.name()));
            if trust.is_some_and(|trust| trust.mode == TrustMode::Hide) {
                // The entry of a skill approves no manifest of a plugin.
                skill.host_capabilities = Arc::default();
                skill.plugin_depth = None;
            }
        }
        Self {
            file,
            namespace,
            is_unlisted,
            skill: skill.map(Arc::new),
            diagnostics: diagnostics.into(),
        }
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
        let built = self.0.get_mut(package);
        let built = built.filter(|built| Arc::ptr_eq(&built.file, old))?;

        let (skill, diagnostics) =
            assemble_skill(package, new, built.namespace.as_deref(), built.is_unlisted);
        let before = built.skill.as_mut()?;
        let mut now = skill?;
        // The name is the same, so the lock has it as before.
        now.trust.clone_from(&before.trust);

        // A new name moves the skill in the order, and new problems change the diagnostics.
        let is_compatible = before.name() == now.name() && *diagnostics == *built.diagnostics;
        if !is_compatible {
            return None;
        }

        built.file = new.clone();
        if **before != now {
            *before = Arc::new(now);
        }
        Some(before.clone())
    }

    /// Assigns the namespaces, removes the disabled skills, and builds the catalog.
    pub fn build_catalog(
        &mut self,
        mut namespaces: NamespaceResolver<'_>,
        mut filter: SkillFilter<'_>,
        mut findings: SearchFindings,
        plugin_set: PluginSet,
        settings: &CatalogSettings<'_>,
    ) -> Catalog {
        let skills = self.build_skills(&mut namespaces, &mut filter, &mut findings, settings.trust);

        let root = namespaces.reader.root;
        namespaces.find_namespace(root, &mut findings.diagnostics);
        let lookup = namespaces.plugins.manifests.get(root);
        let plugin = lookup.and_then(|lookup| lookup.manifest.clone());
        let kind = match (&plugin, self.0.contains_key(&RelPath::root())) {
            (Some(_), _) => RootKind::Plugin,
            (None, true) => RootKind::Skill,
            (None, false) => RootKind::SkillSet,
        };

        let header = CatalogHeader {
            scope: settings.scope,
            follow_links: settings.follow_links,
            kind,
            plugin,
            counts: findings.counts,
            truncated: findings.truncated,
            trust: None,
        };
        let mut catalog = Catalog::new(skills, findings.diagnostics, header).with_plugins(
            plugin_set.plugins,
            plugin_set.marketplaces,
            plugin_set.manifest_files,
        );
        catalog.disabled_packages = filter.disabled_packages();
        catalog
    }

    /// Builds the skills of the candidates, without the disabled ones. Counts the disabled and the
    /// omitted skills, and reports the problems of the others.
    fn build_skills(
        &mut self,
        namespaces: &mut NamespaceResolver<'_>,
        filter: &mut SkillFilter<'_>,
        findings: &mut SearchFindings,
        trust: Option<&TrustPolicy>,
    ) -> Vec<Arc<Skill>> {
        let candidates = std::mem::take(&mut findings.candidates);
        let mut old = std::mem::take(&mut self.0);
        let mut skills = Vec::with_capacity(candidates.len());
        self.0.reserve(candidates.len());

        for candidate in candidates {
            let dir = candidate.resolved.parent();
            let namespace = dir
                .as_ref()
                .and_then(|dir| namespaces.find_namespace(dir, &mut findings.diagnostics));
            let last = old.remove(&candidate.package);
            let built = BuiltSkill::build(&candidate, namespace, last, trust);

            let name = built.skill.as_ref().map(|skill| skill.name());
            if filter.take_if_disabled(&candidate.package, dir.as_ref(), name) {
                findings.counts.disabled += 1;
            } else {
                findings.counts.omitted += u32::from(built.skill.is_none());
                skills.extend(built.skill.clone());
                let of_skill = built.diagnostics.iter().cloned();
                of_skill.for_each(|diagnostic| findings.diagnostics.push(diagnostic));
            }
            self.0.insert(candidate.package, built);
        }
        skills
    }
}
