//! What the domain knows, in the words of the wire. Handles are made here, for the id under which a
//! root was selected.

use crate::catalog::{Degraded, RootState, RootView, View, WatchMode};
use crate::domain::catalog::{Catalog, Counts, Kind};
use crate::domain::diff::Removal;
use crate::domain::limits::MAX_HANDLE_BYTES;
use crate::domain::{
    Code, Diagnostic, Plugin, Problem, Published, Reason, RelPath, RootId, Scope, Severity, Skill,
    handle,
};
use crate::proto::caproot::v1 as pb;
use std::sync::Arc;

/// One root as one answer shows it: what a caller of this product sees under this id.
#[derive(Clone, Copy)]
pub(super) struct Shown<'a> {
    pub(super) id: &'a RootId,
    pub(super) catalog: &'a Catalog,
    watch: WatchMode,
    product: &'a str,
}

impl<'a> Shown<'a> {
    /// `None` for a root that is not ready.
    pub(super) fn new(root: &'a RootView, product: &'a str) -> Option<Self> {
        let RootState::Held(held) = &root.state else { return None };
        let catalog = held.content.as_ref().ok()?;
        Some(Self { id: &root.id, catalog, watch: held.watch, product })
    }

    /// The skills with their indices in the catalog, from the given one on.
    pub(super) fn skills(&self, from: usize) -> impl Iterator<Item = (usize, &'a Skill)> {
        let skills = (from..).zip(self.catalog.skills(from));
        skills.map(|(at, skill)| (at, &**skill)).filter(|(_, s)| self.lists(s))
    }

    /// Whether a skill of the catalog is listed for this caller.
    pub(super) fn lists(&self, skill: &Skill) -> bool {
        self.fits(skill) && skill.is_for(self.product)
    }

    /// The plugins, by package.
    pub(super) fn plugins(&self) -> impl Iterator<Item = &'a Arc<Plugin>> + use<'a> {
        let Self { id, catalog, .. } = *self;
        catalog.plugins().iter().filter(move |plugin| plugin.check_handle(id).is_ok())
    }

    fn fits(&self, skill: &Skill) -> bool {
        skill.check_handle(self.id).is_ok()
    }

    /// Diagnostics, most severe first: the catalog's, and those that only this id brings about.
    pub(super) fn diagnostics(&self) -> Vec<pb::Diagnostic> {
        let may_be_too_long = !self.catalog.lists_all(self.id, "");
        let skills = may_be_too_long.then(|| self.catalog.skills(0)).into_iter().flatten();
        let plugins = may_be_too_long.then(|| self.catalog.plugins()).into_iter().flatten();
        let too_long = skills.filter_map(|s| s.check_handle(self.id).err());
        let too_long = too_long.chain(plugins.filter_map(|p| p.check_handle(self.id).err()));
        let too_long = too_long.map(|problem| Diagnostic { resource: None, problem });
        let own: Vec<_> = too_long.chain(self.degraded()).collect();
        let all = own.iter().chain(self.catalog.diagnostics.kept());
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|d| d.problem.severity);
        all.into_iter().map(|d| diagnostic(self.id, d)).collect()
    }

    fn degraded(&self) -> Option<Diagnostic> {
        let WatchMode::Polling(why) = self.watch else { return None };
        let problem = Problem::warning(Code::WatchDegraded, degraded(why));
        Some(Diagnostic { resource: None, problem })
    }

    pub(super) fn counts(&self) -> pb::RootCounts {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let all = self.catalog.len();
        let (listed, too_long) = if self.catalog.lists_all(self.id, self.product) {
            (all, 0)
        } else {
            let too_long = self.catalog.skills(0).filter(|s| !self.fits(s)).count();
            (self.skills(0).count(), too_long)
        };
        let plugins = self.plugins().count();
        let plugins_too_long = self.catalog.plugins().len() - plugins;
        let Counts { left_out, disabled, directories, entries, passed_over } =
            self.catalog.header.counts;
        pb::RootCounts {
            skills: number(listed),
            other_product: number(all - too_long - listed),
            left_out: left_out + number(too_long),
            disabled,
            directories,
            entries,
            passed_over,
            plugins: number(plugins),
            diagnostics: self.catalog.diagnostics.total()
                + number(too_long + plugins_too_long)
                + u32::from(self.degraded().is_some()),
        }
    }
}

/// A root's state, reason and message.
pub(super) fn state(state: &RootState) -> (pb::RootState, pb::RootReason, String) {
    if let Some(why) = state.reason() {
        return (pb::RootState::Unavailable, reason(why), why.message().to_owned());
    }
    let (state, message) = match state.catalog() {
        Some(_) => (pb::RootState::Ready, ""),
        None => (pb::RootState::Pending, "the first search of the root goes on; ask again"),
    };
    (state, pb::RootReason::Unspecified, message.to_owned())
}

pub(super) fn root_status(root: &RootView, product: &str) -> pb::RootStatus {
    let (state, reason, message) = state(&root.state);
    let shown = Shown::new(root, product);
    let (watch_mode, watch_message) = match &root.state {
        RootState::Held(held) => match held.watch {
            WatchMode::Events => (pb::WatchMode::Events, String::new()),
            WatchMode::Polling(why) => (pb::WatchMode::Polling, degraded(why)),
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
        counts: shown.as_ref().map(Shown::counts),
        truncated: shown.is_some_and(|s| s.catalog.header.truncated),
        watch_mode: watch_mode.into(),
        watch_message,
    }
}

pub(super) fn resolved_root(root: &RootView) -> pb::ResolvedRoot {
    let status = root_status(root, "");
    let shown = Shown::new(root, "");
    let header = shown.as_ref().map(|s| &s.catalog.header);
    pb::ResolvedRoot {
        id: status.id,
        state: status.state,
        reason: status.reason,
        message: status.message,
        kind: header.map_or(pb::RootKind::Unspecified, |h| kind(h.kind)).into(),
        plugin: header.and_then(|h| h.plugin.as_ref()).map(|m| pb::PluginSummary {
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

/// The published roots, as a platform can select them.
pub(super) fn published(
    view: &View,
    roots: &[Published],
    environment: &str,
) -> Vec<pb::PublishedRoot> {
    let roots = roots.iter().zip(&view.roots).map(|(published, seen)| {
        let (state, reason, message) = state(&seen.state);
        pb::PublishedRoot {
            id: published.id.as_str().to_owned(),
            scope: scope(published.scope).into(),
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

fn diagnostic(root: &RootId, diagnostic: &Diagnostic) -> pb::Diagnostic {
    let Problem { code, severity, message, line, column } = &diagnostic.problem;
    let resource = diagnostic.resource.as_ref().map(|place| handle::print(root, place));
    pb::Diagnostic {
        code: self::code(*code).into(),
        severity: match severity {
            Severity::Error => pb::Severity::Error,
            Severity::Warning => pb::Severity::Warning,
            Severity::Note => pb::Severity::Note,
        }
        .into(),
        root_id: root.as_str().to_owned(),
        resource: resource.filter(|h| h.len() <= MAX_HANDLE_BYTES).unwrap_or_default(),
        message: (**message).to_owned(),
        line: *line,
        column: *column,
    }
}

/// A handle for a place below a root; empty where it would be too long.
pub(super) fn place(root: &RootId, place: Option<&RelPath>) -> String {
    let text = place.map(|place| handle::print(root, place));
    text.filter(|h| h.len() <= MAX_HANDLE_BYTES).unwrap_or_default()
}

/// Why a root is polled, and what to do about it.
fn degraded(why: Degraded) -> String {
    let (why, cure) = match why {
        Degraded::WatchLimit => (
            "the limit of inotify watches is reached".to_owned(),
            "raise fs.inotify.max_user_watches",
        ),
        Degraded::NoInstance => (
            "no inotify instance can be had".to_owned(),
            "raise fs.inotify.max_user_instances, or the daemon's limit of open files",
        ),
        Degraded::Refused => (
            "the kernel refused to watch a directory".to_owned(),
            "give the daemon's user permission to read it",
        ),
        Degraded::Eventless(name) => (
            format!("{name} tells no events of what others change"),
            "keep the root on a local filesystem for faster news",
        ),
    };
    format!("polled every few seconds, since {why}; {cure}")
}

pub(super) fn removal(why: Removal) -> pb::RemovalReason {
    match why {
        Removal::Deleted => pb::RemovalReason::Deleted,
        Removal::Invalid => pb::RemovalReason::Invalid,
        Removal::Disabled => pb::RemovalReason::Disabled,
        Removal::OverLimit => pb::RemovalReason::OverLimit,
        Removal::Renamed => pb::RemovalReason::Renamed,
    }
}

pub(super) fn scope(scope: Scope) -> pb::Scope {
    match scope {
        Scope::Repo => pb::Scope::Repo,
        Scope::User => pb::Scope::User,
        Scope::System => pb::Scope::System,
        Scope::Admin => pb::Scope::Admin,
    }
}

fn kind(kind: Kind) -> pb::RootKind {
    match kind {
        Kind::Plugin => pb::RootKind::Plugin,
        Kind::Skill => pb::RootKind::Skill,
        Kind::SkillSet => pb::RootKind::SkillSet,
    }
}

fn reason(reason: Reason) -> pb::RootReason {
    match reason {
        Reason::NotFound => pb::RootReason::NotFound,
        Reason::NotADirectory => pb::RootReason::NotADirectory,
        Reason::PermissionDenied | Reason::WalledOff => pb::RootReason::PermissionDenied,
        Reason::NotAllowed => pb::RootReason::NotAllowed,
        Reason::WrongEnvironment | Reason::MissingEnvironment => pb::RootReason::WrongEnvironment,
        Reason::InvalidPath | Reason::PathTooLong => pb::RootReason::InvalidPath,
        Reason::UnsupportedLocation => pb::RootReason::UnsupportedLocation,
        Reason::Timeout => pb::RootReason::Timeout,
        Reason::IoError => pb::RootReason::IoError,
    }
}

fn code(code: Code) -> pb::DiagnosticCode {
    match code {
        Code::OutsideRoot => pb::DiagnosticCode::OutsideRoot,
        Code::LimitReached => pb::DiagnosticCode::LimitReached,
        Code::NotRegular => pb::DiagnosticCode::NotRegular,
        Code::Unreadable => pb::DiagnosticCode::Unreadable,
        Code::DanglingLink => pb::DiagnosticCode::DanglingLink,
        Code::Alias => pb::DiagnosticCode::Alias,
        Code::WrongCase => pb::DiagnosticCode::WrongCase,
        Code::PassedOver => pb::DiagnosticCode::PassedOver,
        Code::NoFrontmatter => pb::DiagnosticCode::NoFrontmatter,
        Code::YamlSyntax => pb::DiagnosticCode::YamlSyntax,
        Code::YamlRepaired => pb::DiagnosticCode::YamlRepaired,
        Code::MissingDescription => pb::DiagnosticCode::MissingDescription,
        Code::NameInvalid => pb::DiagnosticCode::NameInvalid,
        Code::FieldTooLong => pb::DiagnosticCode::FieldTooLong,
        Code::FieldInvalid => pb::DiagnosticCode::FieldInvalid,
        Code::FieldUnknown => pb::DiagnosticCode::FieldUnknown,
        Code::NotUtf8 => pb::DiagnosticCode::NotUtf8,
        Code::ManifestInvalid => pb::DiagnosticCode::ManifestInvalid,
        Code::HandleTooLong => pb::DiagnosticCode::HandleTooLong,
        Code::WatchDegraded => pb::DiagnosticCode::WatchDegraded,
        Code::PluginFileInvalid => pb::DiagnosticCode::PluginFileInvalid,
        Code::PathInvalid => pb::DiagnosticCode::PathInvalid,
        Code::PathMissing => pb::DiagnosticCode::PathMissing,
        Code::ComponentInvalid => pb::DiagnosticCode::ComponentInvalid,
        Code::SecretWithheld => pb::DiagnosticCode::SecretWithheld,
        Code::HiddenText => pb::DiagnosticCode::HiddenText,
    }
}
