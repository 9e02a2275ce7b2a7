//! Roots as visible in one response: to a caller, for a product, under their ids.

use super::root_messages::{diagnostic, polling_message};
use crate::daemon::catalog::{CatalogView, RootState, RootView, WatchMode};
use crate::daemon::model::catalog::{Catalog, RootCounts};
use crate::daemon::model::limits::MAX_DIAGNOSTICS;
use crate::daemon::model::{Diagnostic, DiagnosticCode, FileProblem, Plugin, Skill};
use caproot_core::proto::caproot::v1 as pb;
use caproot_core::wire::{RelPath, RootId};
use prost::Message as _;
use std::sync::Arc;

/// Maximum bytes of diagnostics in a response.
const MAX_DIAGNOSTIC_BYTES: usize = 512 << 10;

/// View as visible in one response.
pub struct VisibleView<'a> {
    pub view: &'a CatalogView,
    /// Roots of the view; `None` for a root that is not ready.
    pub roots: Vec<Option<VisibleRoot<'a>>>,
    /// Maximum size of the diagnostics of each root: the roots share the limit equally.
    pub diagnostic_bytes: usize,
}

impl<'a> VisibleView<'a> {
    pub fn new(view: &'a CatalogView, product: &'a str) -> Self {
        let roots: Vec<_> = view
            .roots
            .iter()
            .map(|root| VisibleRoot::new(root, product))
            .collect();
        let diagnosed = roots.iter().flatten().filter(|root| root.has_diagnostics());
        Self {
            view,
            diagnostic_bytes: MAX_DIAGNOSTIC_BYTES / diagnosed.count().max(1),
            roots,
        }
    }

    /// Returns the diagnostics of each root, most severe first.
    pub fn diagnostics(&self) -> impl Iterator<Item = Vec<pb::Diagnostic>> {
        (0..self.roots.len()).map(|at| self.root_diagnostics(at))
    }

    /// Returns the diagnostics of one root.
    pub fn root_diagnostics(&self, at: usize) -> Vec<pb::Diagnostic> {
        let root = self.roots[at].as_ref();
        root.map_or_else(Vec::new, |root| root.diagnostics(self.diagnostic_bytes))
    }
}

/// Root of a view.
#[derive(Clone, Copy)]
pub struct VisibleRoot<'a> {
    pub id: &'a RootId,
    pub catalog: &'a Arc<Catalog>,
    pub watch_mode: WatchMode,
    product: &'a str,
}

impl<'a> VisibleRoot<'a> {
    /// Returns `None` if the root is not ready.
    fn new(root: &'a RootView, product: &'a str) -> Option<Self> {
        let RootState::Snapshot(snapshot) = &root.state else {
            return None;
        };
        let catalog = snapshot.catalog.as_ref().ok()?;
        Some(Self {
            id: &root.id,
            catalog,
            watch_mode: snapshot.watch_mode,
            product,
        })
    }

    /// Returns the visible skills with their indices in the catalog, starting at `from`.
    pub fn skills(self, from: usize) -> impl Iterator<Item = (usize, &'a Arc<Skill>)> {
        let skills = (from..).zip(self.catalog.skills(from));
        skills.filter(move |(_, skill)| self.is_listed(skill))
    }

    /// Returns a listed skill.
    pub fn listed_skill(&self, package: &RelPath) -> Option<&'a Skill> {
        let skill = self.catalog.skill(package)?;
        self.is_listed(skill).then_some(&**skill)
    }

    /// Whether a skill of the catalog is listed for this product and root id.
    pub fn is_listed(&self, skill: &Skill) -> bool {
        skill.check_handle(self.id).is_ok() && skill.is_visible_to_product(self.product)
    }

    /// Returns the plugins with a valid handle, by package.
    pub fn plugins(self) -> impl Iterator<Item = &'a Arc<Plugin>> {
        let plugins = self.catalog.plugins().iter();
        plugins.filter(move |plugin| plugin.check_handle(self.id).is_ok())
    }

    /// Whether the root has a diagnostic.
    fn has_diagnostics(&self) -> bool {
        !self.catalog.diagnostics.kept().is_empty()
            || self.polling_problem().is_some()
            || self.handle_problems().next().is_some()
    }

    /// Returns the problems of skills and plugins whose handle would be too long.
    fn handle_problems(&self) -> impl Iterator<Item = FileProblem> {
        let skills = self.catalog.skills(0);
        let plugins = self.catalog.plugins().iter();
        let problems = skills
            .filter_map(|skill| skill.check_handle(self.id).err())
            .chain(plugins.filter_map(|plugin| plugin.check_handle(self.id).err()));
        let may_have_any = !self.catalog.lists_all(self.id, "");
        may_have_any.then_some(problems).into_iter().flatten()
    }

    /// Returns the diagnostics that fit into `max_bytes`, most severe first: those of the catalog, and
    /// those that depend on the root id.
    pub fn diagnostics(&self, max_bytes: usize) -> Vec<pb::Diagnostic> {
        let problems = self.handle_problems().chain(self.polling_problem());
        let own: Vec<_> = problems
            .map(|problem| Diagnostic {
                resource: None,
                problem,
            })
            .collect();
        let mut all: Vec<_> = own.iter().chain(self.catalog.diagnostics.kept()).collect();
        all.sort_by_key(|d| d.problem.severity);

        let mut room = max_bytes;
        all.into_iter()
            .take(MAX_DIAGNOSTICS)
            .map(|d| diagnostic(self.id, d))
            .take_while(|diagnostic| {
                let rest = room.checked_sub(diagnostic.encoded_len() + 4);
                room = rest.unwrap_or(0);
                rest.is_some()
            })
            .collect()
    }

    fn polling_problem(&self) -> Option<FileProblem> {
        let WatchMode::Polling(reason) = self.watch_mode else {
            return None;
        };
        let message = polling_message(reason);
        Some(FileProblem::warning(DiagnosticCode::WatchDegraded, message))
    }

    pub fn counts(&self) -> pb::RootCounts {
        let all = self.catalog.len();
        let (listed, too_long) = if self.catalog.lists_all(self.id, self.product) {
            (all, 0)
        } else {
            let too_long = self
                .catalog
                .skills(0)
                .filter(|skill| skill.check_handle(self.id).is_err())
                .count();
            (self.skills(0).count(), too_long)
        };

        let plugins = self.plugins().count();
        let plugins_too_long = self.catalog.plugins().len() - plugins;

        let RootCounts {
            omitted,
            disabled,
            directories,
            entries,
            skipped,
        } = self.catalog.header.counts;

        pb::RootCounts {
            skills: to_count(listed),
            other_product: to_count(all - too_long - listed),
            omitted: omitted + to_count(too_long),
            disabled,
            directories,
            entries,
            skipped_directories: skipped,
            plugins: to_count(plugins),
            diagnostics: self.catalog.diagnostics.total()
                + to_count(too_long + plugins_too_long)
                + u32::from(self.polling_problem().is_some()),
        }
    }
}

fn to_count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
