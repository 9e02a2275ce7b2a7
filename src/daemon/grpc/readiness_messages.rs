//! Messages about the readiness of skills, and the readiness that a stream sent.

use super::change_events::fill_events;
use super::visible_view::{VisibleRoot, VisibleView};
use crate::daemon::catalog::{CatalogView, RootView};
use crate::daemon::model::SkillRequirement;
use crate::daemon::readiness::{CheckedReadiness, ReadinessChecker, ReadinessTable};
use caproot_core::proto::caproot::v1 as pb;
use caproot_core::wire::{RelPath, RootId, handle};
use pb::watch_skills_response::Event;
use prost::Message as _;
use std::sync::Arc;

/// Readiness of each root of a view, in its order. `None` for a root without requirements.
pub type ViewReadiness = Vec<Option<Arc<ReadinessTable>>>;

/// Looks up the readiness of a view.
pub async fn check_view(checker: &ReadinessChecker, view: &CatalogView) -> ViewReadiness {
    let mut tables = Vec::with_capacity(view.roots.len());
    for root in &view.roots {
        tables.push(match root.state.catalog() {
            Some(catalog) => checker.check_catalog(catalog).await,
            None => None,
        });
    }
    tables
}

/// Returns a number that differs if the readiness of a view differs, for the keys of cached pages.
pub fn readiness_version(tables: &ViewReadiness) -> usize {
    let generations = tables.iter().flatten().map(|table| table.generation);
    let newest = generations.max().map_or(0, |generation| generation + 1);
    usize::try_from(newest).unwrap_or(usize::MAX)
}

/// Builds the message of a readiness.
pub fn readiness_message(checked: &CheckedReadiness) -> pb::SkillReadiness {
    let state = if !checked.missing.is_empty() {
        pb::ReadinessState::Missing
    } else if checked.has_unknown {
        pb::ReadinessState::Unknown
    } else {
        pb::ReadinessState::Ready
    };
    pb::SkillReadiness {
        state: state.into(),
        missing: checked.missing.iter().map(missing_message).collect(),
    }
}

fn missing_message(item: &SkillRequirement) -> pb::MissingRequirement {
    let kind = match item {
        SkillRequirement::Program(_) => pb::RequirementKind::Program,
        SkillRequirement::Variable(_) => pb::RequirementKind::Variable,
        SkillRequirement::Platform(_) => pb::RequirementKind::Platform,
    };
    let names = match item {
        SkillRequirement::Program(names) | SkillRequirement::Platform(names) => {
            names.iter().map(ToString::to_string).collect()
        }
        SkillRequirement::Variable(name) => vec![name.to_string()],
    };
    pb::MissingRequirement {
        kind: kind.into(),
        names,
    }
}

/// Returns the events that lead from the readiness that a stream sent to the readiness of a view.
pub fn readiness_events(
    product: &str,
    sent: &ViewReadiness,
    view: &CatalogView,
    current: &ViewReadiness,
) -> Vec<Event> {
    let visible = VisibleView::new(view, product);
    let mut events = Vec::new();
    for (at, root) in view.roots.iter().enumerate() {
        let before = sent.get(at).and_then(Option::as_ref);
        let now = current.get(at).and_then(Option::as_ref);
        if let (Some(before), Some(now)) = (before, now)
            && Arc::ptr_eq(before, now)
        {
            continue;
        }
        let before = before.map(|table| &**table);
        let now = now.map(|table| &**table);
        let changes = changed_packages(before, now);
        events.extend(root_events(root, visible.roots[at].as_ref(), changes));
    }
    events
}

/// Readiness of a package that changed. `None` if the skill declares nothing any more.
type ReadinessChange<'a> = (&'a RelPath, Option<&'a CheckedReadiness>);

fn changed_packages<'a>(
    before: Option<&'a ReadinessTable>,
    now: Option<&'a ReadinessTable>,
) -> Vec<ReadinessChange<'a>> {
    let new = now.into_iter().flat_map(|table| &table.skills);
    let new = new.filter(|(package, checked)| {
        before.and_then(|table| table.skills.get(*package)) != Some(*checked)
    });
    let mut changes: Vec<_> = new
        .map(|(package, checked)| (package, Some(checked)))
        .collect();
    let old = before.into_iter().flat_map(|table| &table.skills);
    let is_gone = |package: &RelPath| now.is_none_or(|table| !table.skills.contains_key(package));
    let gone = old.filter(|(package, _)| is_gone(package));
    changes.extend(gone.map(|(package, _)| (package, None)));
    changes
}

/// Returns the events of a root. Only listed skills are in them, and removed ones.
fn root_events(
    root: &RootView,
    visible: Option<&VisibleRoot<'_>>,
    changes: Vec<ReadinessChange<'_>>,
) -> Vec<Event> {
    let sent = changes
        .into_iter()
        .filter(|(package, checked)| checked.is_none() || is_listed(visible, package));
    let messages = sent.map(|(package, checked)| package_message(&root.id, package, checked));
    let lists = fill_events(messages, pb::PackageReadiness::encoded_len);
    let events = lists.map(|skills| {
        Event::Readiness(pb::ReadinessList {
            root_id: root.id.as_str().to_owned(),
            skills,
        })
    });
    events.collect()
}

fn is_listed(visible: Option<&VisibleRoot<'_>>, package: &RelPath) -> bool {
    visible.is_some_and(|root| {
        let skill = root.catalog.skill(package);
        skill.is_some_and(|skill| root.is_listed(skill))
    })
}

fn package_message(
    root: &RootId,
    package: &RelPath,
    checked: Option<&CheckedReadiness>,
) -> pb::PackageReadiness {
    pb::PackageReadiness {
        package: handle::format_handle(root, package),
        readiness: checked.map(readiness_message),
    }
}
