//! Protobuf messages for roots, their counts and their diagnostics. Handles contain the id of the
//! selected root.

use super::visible_view::VisibleRoot;
use crate::daemon::catalog::{CatalogView, PollReason, RootState, RootView, WatchMode};
use crate::daemon::model::catalog::RootKind;
use crate::daemon::model::diff::RemovalReason;
use crate::daemon::model::{
    Diagnostic, DiagnosticCode, FileProblem, PublishedRoot, RootReason, RootScope, Severity,
};
use caproot_core::proto::caproot::v1 as pb;
use caproot_core::text::quote_words;
use caproot_core::wire::limits::MAX_HANDLE_BYTES;
use caproot_core::wire::{RelPath, RootId, handle};
use std::fmt::Write as _;

/// Maximum number of reserved names of a root.
const MAX_RESERVED_NAMES: usize = 1_000;

/// Returns the state, reason and message of a root.
fn root_state(state: &RootState) -> (pb::RootState, pb::RootReason, String) {
    if let Some(reason) = state.reason() {
        return (
            pb::RootState::Unavailable,
            root_reason(reason),
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
    (state, pb::RootReason::Unspecified, message.to_owned())
}

/// Builds the state of a root, without the digest of its catalog.
pub fn root_status(root: &RootView, visible: Option<&VisibleRoot<'_>>) -> pb::RootStatus {
    let (state, reason, mut message) = root_state(&root.state);
    if !root.published_ids.is_empty() {
        let ids = root.published_ids.iter().map(RootId::as_str);
        // Writing to a `String` does not fail.
        let _ = write!(message, "; the published roots are {}", quote_words(ids));
    }

    let (watch_mode, watch_message) = match &root.state {
        RootState::Snapshot(snapshot) => match snapshot.watch_mode {
            WatchMode::Events => (pb::WatchMode::Events, String::new()),
            WatchMode::Polling(reason) => (pb::WatchMode::Polling, polling_message(reason)),
        },
        RootState::Pending | RootState::Unavailable(_) => {
            (pb::WatchMode::Unspecified, String::new())
        }
    };

    pb::RootStatus {
        id: root.id.as_str().to_owned(),
        state: state.into(),
        reason: reason.into(),
        message,
        counts: visible.map(VisibleRoot::counts),
        truncated: visible.is_some_and(|s| s.catalog.header.truncated),
        reserved_names: visible.map_or_else(Vec::new, |s| {
            let names = s.catalog.reserved_names().iter().take(MAX_RESERVED_NAMES);
            names.map(ToString::to_string).collect()
        }),
        watch_mode: watch_mode.into(),
        watch_message,
        catalog_digest: String::new(),
        unchanged: false,
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
        kind: header
            .map_or(pb::RootKind::Unspecified, |h| root_kind(h.kind))
            .into(),
        plugin: header
            .and_then(|h| h.plugin.as_ref())
            .map(|m| pb::PluginSummary {
                name: (*m.name).to_owned(),
                version: (*m.version).to_owned(),
            }),
        counts: status.counts,
        diagnostics: Vec::new(),
        plugins: Vec::new(),
        marketplaces: Vec::new(),
        truncated: status.truncated,
        scope: header.and_then(|h| h.scope).map(|s| scope(s).into()),
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
            reason: reason.into(),
            message,
        }
    });

    roots.collect()
}

pub fn diagnostic(root: &RootId, diagnostic: &Diagnostic) -> pb::Diagnostic {
    let FileProblem {
        code,
        severity,
        message,
        line,
        column,
    } = &diagnostic.problem;

    let resource = diagnostic
        .resource
        .as_ref()
        .map(|path| handle::format_handle(root, path));

    pb::Diagnostic {
        code: diagnostic_code(*code).into(),
        severity: match severity {
            Severity::Error => pb::Severity::Error,
            Severity::Warning => pb::Severity::Warning,
            Severity::Note => pb::Severity::Note,
        }
        .into(),
        root_id: root.as_str().to_owned(),
        resource: resource
            .filter(|h| h.len() <= MAX_HANDLE_BYTES)
            .unwrap_or_default(),
        message: (**message).to_owned(),
        line: *line,
        column: *column,
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

fn root_reason(reason: RootReason) -> pb::RootReason {
    match reason {
        RootReason::NotFound | RootReason::MountRemoved => pb::RootReason::NotFound,
        RootReason::NotADirectory => pb::RootReason::NotADirectory,
        RootReason::PermissionDenied | RootReason::SandboxDenied => {
            pb::RootReason::PermissionDenied
        }
        RootReason::NotAllowed => pb::RootReason::NotAllowed,
        RootReason::WrongEnvironment | RootReason::MissingEnvironment => {
            pb::RootReason::WrongEnvironment
        }
        RootReason::InvalidPath | RootReason::UnknownPublished | RootReason::PathTooLong => {
            pb::RootReason::InvalidPath
        }
        RootReason::UnsupportedLocation => pb::RootReason::UnsupportedLocation,
        RootReason::Timeout | RootReason::ParseTimeout => pb::RootReason::Timeout,
        RootReason::IoError | RootReason::NoThread | RootReason::ScanFailed => {
            pb::RootReason::IoError
        }
    }
}

fn diagnostic_code(code: DiagnosticCode) -> pb::DiagnosticCode {
    match code {
        DiagnosticCode::OutsideRoot => pb::DiagnosticCode::OutsideRoot,
        DiagnosticCode::LimitReached => pb::DiagnosticCode::LimitReached,
        DiagnosticCode::NotRegular => pb::DiagnosticCode::NotRegular,
        DiagnosticCode::Unreadable => pb::DiagnosticCode::Unreadable,
        DiagnosticCode::DanglingLink => pb::DiagnosticCode::DanglingLink,
        DiagnosticCode::Alias => pb::DiagnosticCode::Alias,
        DiagnosticCode::WrongCase => pb::DiagnosticCode::WrongCase,
        DiagnosticCode::DirectoriesSkipped => pb::DiagnosticCode::DirectoriesSkipped,
        DiagnosticCode::NoFrontmatter => pb::DiagnosticCode::NoFrontmatter,
        DiagnosticCode::YamlSyntax => pb::DiagnosticCode::YamlSyntax,
        DiagnosticCode::YamlRepaired => pb::DiagnosticCode::YamlRepaired,
        DiagnosticCode::MissingDescription => pb::DiagnosticCode::MissingDescription,
        DiagnosticCode::NameInvalid => pb::DiagnosticCode::NameInvalid,
        DiagnosticCode::FieldTooLong => pb::DiagnosticCode::FieldTooLong,
        DiagnosticCode::FieldInvalid => pb::DiagnosticCode::FieldInvalid,
        DiagnosticCode::FieldUnknown => pb::DiagnosticCode::FieldUnknown,
        DiagnosticCode::NotUtf8 => pb::DiagnosticCode::NotUtf8,
        DiagnosticCode::ManifestInvalid => pb::DiagnosticCode::ManifestInvalid,
        DiagnosticCode::HandleTooLong => pb::DiagnosticCode::HandleTooLong,
        DiagnosticCode::WatchDegraded => pb::DiagnosticCode::WatchDegraded,
        DiagnosticCode::PluginFileInvalid => pb::DiagnosticCode::PluginFileInvalid,
        DiagnosticCode::PathInvalid => pb::DiagnosticCode::PathInvalid,
        DiagnosticCode::PathMissing => pb::DiagnosticCode::PathMissing,
        DiagnosticCode::ComponentInvalid => pb::DiagnosticCode::ComponentInvalid,
        DiagnosticCode::SecretRedacted => pb::DiagnosticCode::SecretRedacted,
        DiagnosticCode::HiddenText => pb::DiagnosticCode::HiddenText,
        DiagnosticCode::ReferenceMissing => pb::DiagnosticCode::ReferenceMissing,
        DiagnosticCode::ScriptNotRunnable => pb::DiagnosticCode::ScriptNotRunnable,
        DiagnosticCode::SkillTooLong => pb::DiagnosticCode::SkillTooLong,
        DiagnosticCode::UseNotDescribed => pb::DiagnosticCode::UseNotDescribed,
        DiagnosticCode::PackageChanged => pb::DiagnosticCode::PackageChanged,
        DiagnosticCode::PackagesNotApproved => pb::DiagnosticCode::PackagesNotApproved,
        DiagnosticCode::SkillNotOffered => pb::DiagnosticCode::SkillNotOffered,
        DiagnosticCode::UnusualContent => pb::DiagnosticCode::UnusualContent,
    }
}
