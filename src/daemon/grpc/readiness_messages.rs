//! Messages about the readiness of skills, and the readiness that a stream sent.

use super::change_events::fill_events;
use super::visible_view::{VisibleRoot, VisibleView};
use crate::daemon::catalog::{CatalogView, RootView};
use crate::daemon::model::SkillRequirement;
use crate::daemon::readiness::{CheckedReadiness, ReadinessChecker, ReadinessTable};
use caproot_core::proto::caproot::v1 as pb;
use caproot_core::wire::handle;
use pb::watch_skills_response::Event;
use prost::Message as _;
use std::ptr;
use std::slice::from_ref;
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
    let (kind, names) = match item {
        SkillRequirement::Program(names) => (pb::RequirementKind::Program, &**names),
        SkillRequirement::Variable(name) => (pb::RequirementKind::Variable, from_ref(name)),
        SkillRequirement::Platform(names) => (pb::RequirementKind::Platform, &**names),
    };
    pb::MissingRequirement {
        kind: kind.into(),
        names: names.iter().map(ToString::to_string).collect(),
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
        let before = sent.get(at).and_then(Option::as_deref);
        let now = current.get(at).and_then(Option::as_deref);
        let known = before.zip(now);
        if known.is_none_or(|(before, now)| !ptr::eq(before, now)) {
            events.extend(root_events(root, visible.roots[at].as_ref(), before, now));
        }
    }
    events
}

/// Returns the events of a root. Only listed skills are in them, and skills that declare nothing any more.
fn root_events(
    root: &RootView,
    visible: Option<&VisibleRoot<'_>>,
    before: Option<&ReadinessTable>,
    now: Option<&ReadinessTable>,
) -> Vec<Event> {
    let new = now.into_iter().flat_map(|table| &table.skills);
    let changed = new
        .filter(|(package, checked)| {
            before.and_then(|table| table.skills.get(*package)) != Some(*checked)
                && visible.is_some_and(|root| root.listed_skill(package).is_some())
        })
        .map(|(package, checked)| (package, Some(readiness_message(checked))));
    let old = before.into_iter().flat_map(|table| table.skills.keys());
    let gone = old
        .filter(|package| now.is_none_or(|table| !table.skills.contains_key(*package)))
        .map(|package| (package, None));

    let messages = changed
        .chain(gone)
        .map(|(package, readiness)| pb::PackageReadiness {
            package: handle::format_handle(&root.id, package),
            readiness,
        });
    let events = fill_events(messages, pb::PackageReadiness::encoded_len).map(|skills| {
        Event::Readiness(pb::ReadinessList {
            root_id: root.id.as_str().to_owned(),
            skills,
        })
    });
    events.collect()
}
