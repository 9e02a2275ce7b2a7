//! Protobuf messages for roots, their counts and their diagnostics. Handles contain the id of the
//! selected root.

use super::visible_view::VisibleRoot;
use crate::daemon::catalog::{CatalogView, PollReason, RootState, RootView, WatchMode};
use crate::daemon::model::catalog::RootKind;
use crate::daemon::model::diff::RemovalReason;
use crate::daemon::model::{Diagnostic, PublishedRoot, RootScope};
use caproot_core::proto::caproot::v1 as pb;
use caproot_core::text::quote_words;
use caproot_core::wire::limits::MAX_HANDLE_BYTES;
use caproot_core::wire::{RelPath, RootId, handle};
use std::fmt::Write as _;

/// Maximum number of reserved names of a root.
const MAX_RESERVED_NAMES: usize = 1_000;

/// Returns the state, the number of the reason, and the message of a root.
fn root_state(state: &RootState) -> (pb::RootState, i32, String) {
    if let Some(reason) = state.reason() {
        return (
            pb::RootState::Unavailable,
            enum_value("ROOT_REASON", reason.name(), pb::RootReason::from_str_name),
            reason.message().to_owned(),
        );
    }
    let (state, message) = match state.catalog() {
        Some(_) => (pb::RootState::Ready, ""),
        None => (
            pb::RootState::Pending,
            "the first scan of the root is running; ask again",
        ),
    };
    (state, 0, message.to_owned())
}

/// Returns the number of a value of a protobuf enum, by its name without the prefix.
fn enum_value<E: Into<i32>>(prefix: &str, name: &str, find: fn(&str) -> Option<E>) -> i32 {
    // A test holds that each name is one of the enum.
    find(&format!("{prefix}_{name}")).map_or(0, E::into)
}

/// Builds the state of a root, without the digest of its catalog.
pub fn root_status(root: &RootView, visible: Option<&VisibleRoot<'_>>) -> pb::RootStatus {
    let (state, reason, mut message) = root_state(&root.state);
    if !root.published_ids.is_empty() {
        let ids = root.published_ids.iter().map(RootId::as_str);
        // Writing to a `String` does not fail.
        let _ = write!(message, "; the published roots are {}", quote_words(ids));
    }

    let mut watch_message = String::new();
    let watch_mode = match &root.state {
        RootState::Snapshot(snapshot) => match snapshot.watch_mode {
            WatchMode::Events => pb::WatchMode::Events,
            WatchMode::Polling(reason) => {
                watch_message = polling_message(reason);
                pb::WatchMode::Polling
            }
        },
        RootState::Pending | RootState::Unavailable(_) => pb::WatchMode::Unspecified,
    };

    pb::RootStatus {
        id: root.id.as_str().to_owned(),
        state: state.into(),
        reason,
        message,
        counts: visible.map(VisibleRoot::counts),
        truncated: visible.is_some_and(|s| s.catalog.header.truncated),
        reserved_names: visible.map_or_else(Vec::new, |s| {
            let names = s.catalog.reserved_names().iter().take(MAX_RESERVED_NAMES);
            names.map(ToString::to_string).collect()
        }),
        watch_mode: watch_mode.into(),
        watch_message,
        ..pb::RootStatus::default()
    }
}

pub fn resolved_root(root: &RootView, visible: Option<&VisibleRoot<'_>>) -> pb::ResolvedRoot {
    let status = root_status(root, visible);
    let header = visible.map(|s| &s.catalog.header);

    pb::ResolvedRoot {
        id: status.id,
        state: status.state,
        reason: status.reason,
        message: status.message,
        kind: header.map_or(0, |h| root_kind(h.kind).into()),
        plugin: header
            .and_then(|h| h.plugin.as_ref())
            .map(|m| pb::PluginSummary {
                name: m.name.to_string(),
                version: m.version.to_string(),
            }),
        counts: status.counts,
        truncated: status.truncated,
        scope: header.and_then(|h| h.scope).map(|s| scope(s).into()),
        ..pb::ResolvedRoot::default()
    }
}

/// Builds the messages of the published roots. Hidden roots have no message.
pub fn published_roots(
    view: &CatalogView,
    roots: &[PublishedRoot],
    environment: &str,
) -> Vec<pb::PublishedRoot> {
    let visible = roots
        .iter()
        .zip(&view.roots)
        .filter(|(published, root)| !published.is_hidden(root.state.reason()));

    let roots = visible.map(|(published, root)| {
        let (state, reason, message) = root_state(&root.state);
        pb::PublishedRoot {
            id: published.id.as_str().to_owned(),
            scope: scope(published.scope).into(),
            // The location has the name of the root: no path of the executor goes over the wire.
            selected_capability_root: Some(pb::SelectedCapabilityRoot {
                id: published.id.as_str().to_owned(),
                location: Some(pb::CapabilityRootLocation {
                    r#type: "environment".to_owned(),
                    environment_id: environment.to_owned(),
                    path: format!("published:{}", published.id.as_str()),
                }),
            }),
            state: state.into(),
            reason,
            message,
        }
    });

    roots.collect()
}

pub fn diagnostic(root: &RootId, diagnostic: &Diagnostic) -> pb::Diagnostic {
    let problem = &diagnostic.problem;
    let code = problem.code.name();
    let severity = problem.severity.name();
    pb::Diagnostic {
        code: enum_value("DIAGNOSTIC_CODE", code, pb::DiagnosticCode::from_str_name),
        severity: enum_value("SEVERITY", severity, pb::Severity::from_str_name),
        root_id: root.as_str().to_owned(),
        resource: handle_or_empty(root, diagnostic.resource.as_ref()),
        message: problem.message.to_string(),
        line: problem.line,
        column: problem.column,
    }
}

/// Returns the handle of a path below a root, or an empty string if the handle would be too long.
pub fn handle_or_empty(root: &RootId, path: Option<&RelPath>) -> String {
    let text = path.map(|path| handle::format_handle(root, path));
    text.filter(|h| h.len() <= MAX_HANDLE_BYTES)
        .unwrap_or_default()
}

pub fn polling_message(reason: PollReason) -> String {
    format!("polled every few seconds: {reason}")
}

pub fn removal_reason(reason: RemovalReason) -> pb::RemovalReason {
    match reason {
        RemovalReason::Deleted => pb::RemovalReason::Deleted,
        RemovalReason::Invalid => pb::RemovalReason::Invalid,
        RemovalReason::Disabled => pb::RemovalReason::Disabled,
        RemovalReason::OverLimit => pb::RemovalReason::OverLimit,
        RemovalReason::Renamed => pb::RemovalReason::Renamed,
        RemovalReason::NotApproved => pb::RemovalReason::NotApproved,
    }
}

pub fn scope(scope: RootScope) -> pb::Scope {
    match scope {
        RootScope::Repo => pb::Scope::Repo,
        RootScope::User => pb::Scope::User,
        RootScope::System => pb::Scope::System,
        RootScope::Admin => pb::Scope::Admin,
    }
}

fn root_kind(kind: RootKind) -> pb::RootKind {
    match kind {
        RootKind::Plugin => pb::RootKind::Plugin,
        RootKind::Skill => pb::RootKind::Skill,
        RootKind::SkillSet => pb::RootKind::SkillSet,
    }
}

#[cfg(test)]
mod tests {
    use super::{enum_value, pb};
    use crate::daemon::model::{DiagnosticCode, RootReason, Severity};
    use std::collections::BTreeSet;

    /// Each name gives another number, which is not that of UNSPECIFIED.
    fn assert_values<const N: usize>(values: [i32; N]) {
        assert_eq!(BTreeSet::from(values).len(), N);
        assert!(!values.contains(&0), "{values:?}");
    }

    #[test]
    fn each_name_is_one_of_the_protobuf_enum() {
        assert_values(DiagnosticCode::ALL.map(|code| {
            enum_value(
                "DIAGNOSTIC_CODE",
                code.name(),
                pb::DiagnosticCode::from_str_name,
            )
        }));
        assert_values(
            RootReason::ALL.map(|reason| {
                enum_value("ROOT_REASON", reason.name(), pb::RootReason::from_str_name)
            }),
        );
        let severities = [Severity::Error, Severity::Warning, Severity::Note];
        assert_values(
            severities.map(|severity| {
                enum_value("SEVERITY", severity.name(), pb::Severity::from_str_name)
            }),
        );
    }
}
