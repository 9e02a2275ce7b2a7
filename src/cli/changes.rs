//! Text lines for the changes of a watch: the difference of two catalogs.

use crate::cli::ask::plugins::plugin_changes;
use crate::cli::ask::report::{diagnostic_line, enum_value_name, root_reason_name};
use crate::cli::table::truncate_to_width;
use caproot_client::{MirrorCatalog, MirrorUpdate};
use caproot_core::proto::caproot::v1::{
    Diagnostic, RemovalReason, RootState, RootStatus, Severity, Skill, WatchMode,
};
use caproot_core::text::{EscapedText, escape_text};
use caproot_session::missing_requirements;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum width of a description.
const MAX_DESCRIPTION_COLUMNS: usize = 100;

/// Diagnostics by root id.
type DiagnosticsByRoot<'a> = BTreeMap<&'a str, Vec<&'a Diagnostic>>;

/// Reporter of each complete state.
#[derive(Default)]
pub struct ChangeReporter {
    /// Catalog of the last state.
    catalog: Arc<MirrorCatalog>,
    shows_bookmarks: bool,
}

impl ChangeReporter {
    pub fn new(shows_bookmarks: bool) -> Self {
        Self {
            shows_bookmarks,
            ..Self::default()
        }
    }

    /// Returns the lines of a complete state.
    pub fn report_update(&mut self, update: &MirrorUpdate) -> Vec<String> {
        let before = std::mem::replace(&mut self.catalog, update.catalog.clone());
        let mut lines = Vec::new();
        if update.changed {
            lines = catalog_changes(&before, update);
        }
        let revision = update.revision;
        if update.is_bookmark && self.shows_bookmarks {
            lines.push(format!("= unchanged at revision {revision}"));
        } else if update.is_reset && !update.is_bookmark {
            lines.push(format!("= synced at revision {revision}"));
        }
        lines
    }
}

/// Returns the lines of the differences between a catalog and the next state.
fn catalog_changes(before: &MirrorCatalog, update: &MirrorUpdate) -> Vec<String> {
    let now = &*update.catalog;
    let diagnostics = diagnostics_by_root(now);
    let mut fresh = new_diagnostics(&diagnostics_by_root(before), &diagnostics);

    let mut lines: Vec<_> = now
        .roots()
        .iter()
        .filter_map(|root| root_line(before, root))
        .collect();

    for skill in removed_skills(before, now) {
        let reason = match update.removed.get(&skill.package) {
            Some(reason) => removal_reason_name(*reason),
            None => reason_after_reset(now, &diagnostics, skill),
        };
        lines.push(skill_line('-', skill, &reason));
    }

    for skill in now.skills() {
        let sign = match before.skill(&skill.package) {
            Some(same) if Arc::ptr_eq(same, skill) || same == skill => {
                lines.extend(readiness_line(before, now, skill));
                continue;
            }
            Some(_) => '~',
            None => '+',
        };

        let detail = if !skill.stale {
            truncate_to_width(&escape_text(&skill.description), MAX_DESCRIPTION_COLUMNS)
        } else if let Some(cause) = blocking_diagnostic(&diagnostics, skill) {
            // The line of the skill has the diagnostic.
            fresh.retain(|problem| *problem != cause);
            format!("stale: {}", short_diagnostic(cause))
        } else {
            "stale: its file can no longer be read".to_owned()
        };
        lines.push(skill_line(sign, skill, &detail));
    }

    lines.extend(plugin_changes(before, now));
    lines.extend(
        fresh
            .into_iter()
            .filter_map(diagnostic_line)
            .map(|text| format!("! {text}")),
    );
    lines
}

/// Returns the line of a skill whose readiness changed. A skill that was ready at first has no line.
fn readiness_line(before: &MirrorCatalog, now: &MirrorCatalog, skill: &Skill) -> Option<String> {
    // The requirements that the executor does not have.
    let [before, now] = [before, now].map(|catalog| {
        catalog
            .readiness(root_of(skill), &skill.package)
            .map_or_else(Vec::new, missing_requirements)
    });
    if before == now {
        return None;
    }
    let detail = if now.is_empty() {
        "nothing is missing any more".to_owned()
    } else {
        format!("missing: {}", escape_text(&now.join(", ")))
    };
    Some(skill_line('~', skill, &detail))
}

/// Returns the line of a root whose state changed. A root that is ready at first has no line.
fn root_line(before: &MirrorCatalog, root: &RootStatus) -> Option<String> {
    let now = describe_root(root);
    let before = before.roots().iter().find(|before| before.id == root.id);
    let is_news = before.map_or(now != "READY", |before| describe_root(before) != now);
    is_news.then(|| format!("! root {}: {now}", EscapedText(&root.id)))
}

fn describe_root(root: &RootStatus) -> String {
    let mut line = match root.state() {
        RootState::Ready => "READY".to_owned(),
        RootState::Pending => "PENDING".to_owned(),
        RootState::Unavailable | RootState::Unspecified => {
            format!("UNAVAILABLE {}", root_reason_name(root.reason))
        }
    };
    for (is_shown, text) in [
        (true, &root.message),
        (root.watch_mode() == WatchMode::Polling, &root.watch_message),
    ] {
        if is_shown && !text.is_empty() {
            line = format!("{line} {}", EscapedText(text));
        }
    }
    line
}

fn diagnostics_by_root(catalog: &MirrorCatalog) -> DiagnosticsByRoot<'_> {
    let mut by_root = DiagnosticsByRoot::new();
    for problem in catalog.diagnostics() {
        by_root.entry(&problem.root_id).or_default().push(problem);
    }
    by_root
}

/// Returns the diagnostics that are in `now` only.
fn new_diagnostics<'a>(
    before: &DiagnosticsByRoot<'_>,
    now: &DiagnosticsByRoot<'a>,
) -> Vec<&'a Diagnostic> {
    let mut new = Vec::new();
    for (root, list) in now {
        let before = before.get(root).map_or(&[][..], Vec::as_slice);
        // A catalog may have thousands of unchanged diagnostics.
        if before != list.as_slice() {
            new.extend(list.iter().filter(|problem| !before.contains(problem)));
        }
    }
    new
}

/// Returns the skills that are in `before` only, by root and by package.
fn removed_skills<'a>(before: &'a MirrorCatalog, now: &MirrorCatalog) -> Vec<&'a Arc<Skill>> {
    let mut removed: Vec<_> = before
        .skills()
        .filter(|skill| now.skill(&skill.package).is_none())
        .collect();
    for of_root in removed.chunk_by_mut(|a, b| a.authority == b.authority) {
        of_root.sort_by(|a, b| a.package.cmp(&b.package));
    }
    removed
}

/// Returns the error that blocks a skill, if there is one.
fn blocking_diagnostic<'a>(
    diagnostics: &DiagnosticsByRoot<'a>,
    skill: &Skill,
) -> Option<&'a Diagnostic> {
    diagnostics
        .get(root_of(skill))?
        .iter()
        .copied()
        .find(|problem| {
            problem.severity() == Severity::Error && problem.resource == skill.main_resource
        })
}

/// Returns the reason why a skill is missing in a state that replaces everything.
fn reason_after_reset(
    now: &MirrorCatalog,
    diagnostics: &DiagnosticsByRoot<'_>,
    skill: &Skill,
) -> String {
    let root = now.roots().iter().find(|root| root.id == root_of(skill));
    if root.is_some_and(|root| root.state() != RootState::Ready) {
        removal_reason_name(RemovalReason::RootUnavailable.into())
    } else if blocking_diagnostic(diagnostics, skill).is_some() {
        removal_reason_name(RemovalReason::Invalid.into())
    } else {
        "no longer listed".to_owned()
    }
}

fn root_of(skill: &Skill) -> &str {
    skill
        .authority
        .as_ref()
        .map_or("", |authority| &authority.id)
}

fn skill_line(sign: char, skill: &Skill, what: &str) -> String {
    format!(
        "{sign} {}  {}  {what}",
        EscapedText(&skill.name),
        EscapedText(&skill.package)
    )
}

/// Formats a diagnostic without its file name.
fn short_diagnostic(problem: &Diagnostic) -> String {
    let bare = Diagnostic {
        resource: String::new(),
        ..problem.clone()
    };
    let line = diagnostic_line(&bare).unwrap_or_default();
    let head = line.split_once(' ').map_or(line.as_str(), |(head, _)| head);
    let position = match (problem.line, problem.column) {
        (0, _) => String::new(),
        (line, 0) => format!(" line {line}"),
        (line, column) => format!(" line {line}:{column}"),
    };
    format!("{head}{position}: {}", EscapedText(&problem.message))
}

fn removal_reason_name(reason: i32) -> String {
    enum_value_name(reason, RemovalReason::as_str_name, "REMOVAL_REASON_")
}

#[cfg(test)]
mod tests {
    use super::ChangeReporter;
    use caproot_client::{MirrorReplica, MirrorSelection};
    use caproot_core::proto::caproot::v1::watch_skills_response::Event;
    use caproot_core::proto::caproot::v1::{
        Authority, Diagnostic, DiagnosticCode, DiagnosticList, RemovalReason, RemovedSkill, Reset,
        RootReason, RootState, RootStatus, SelectedCapabilityRoot, Severity, Skill, SkillDelta,
        Synced, WatchSkillsResponse,
    };

    /// Stream of one root, and the reporter of its states.
    struct ReportedStream {
        replica: MirrorReplica,
        reporter: ChangeReporter,
    }

    impl ReportedStream {
        fn new() -> Self {
            let root = SelectedCapabilityRoot {
                id: "r".into(),
                location: None,
            };
            let selection = MirrorSelection::new(vec![root]);
            let replica = MirrorReplica::new(&selection);
            Self {
                replica,
                reporter: ChangeReporter::default(),
            }
        }

        fn apply_event(&mut self, event: Event) -> Vec<String> {
            let event = Some(event);
            let message = WatchSkillsResponse {
                revision: 7,
                event,
                ..Default::default()
            };
            let update = self.replica.apply_event(message).expect("a valid event");
            update
                .map(|update| self.reporter.report_update(&update))
                .unwrap_or_default()
        }
    }

    fn skill(name: &str, description: &str) -> Skill {
        Skill {
            authority: Some(Authority {
                kind: "executor".into(),
                id: "r".into(),
            }),
            package: format!("skill://r/{name}"),
            main_resource: format!("skill://r/{name}/SKILL.md"),
            name: name.into(),
            description: description.into(),
            ..Skill::default()
        }
    }

    fn apply_events(
        stream: &mut ReportedStream,
        events: impl IntoIterator<Item = Event>,
    ) -> Vec<String> {
        let events = events.into_iter().chain([Event::Synced(Synced::default())]);
        events.flat_map(|event| stream.apply_event(event)).collect()
    }

    fn upserted(skills: Vec<Skill>) -> Event {
        let root_id = "r".into();
        Event::Delta(SkillDelta {
            root_id,
            upserted: skills,
            ..SkillDelta::default()
        })
    }

    fn root(state: RootState, reason: RootReason) -> Event {
        let message = if state == RootState::Ready {
            ""
        } else {
            "Create it."
        };
        Event::RootStatus(RootStatus {
            id: "r".into(),
            state: state.into(),
            reason: reason.into(),
            message: message.into(),
            ..RootStatus::default()
        })
    }

    #[test]
    fn each_change_is_a_line() {
        let stream = &mut ReportedStream::new();
        let first = apply_events(
            stream,
            [
                Event::Reset(Reset::default()),
                root(RootState::Ready, RootReason::Unspecified),
                upserted(vec![skill("a", "One\x1b."), skill("b", &"x".repeat(200))]),
            ],
        );
        let long = format!("+ b  skill://r/b  {}…", "x".repeat(99));
        assert_eq!(
            first,
            [
                r"+ a  skill://r/a  One\u{1b}.",
                &long,
                "= synced at revision 7"
            ]
        );

        assert_eq!(
            apply_events(stream, [upserted(vec![skill("a", "Two.")])]),
            ["~ a  skill://r/a  Two."]
        );
        let broken = Diagnostic {
            code: DiagnosticCode::YamlSyntax.into(),
            severity: Severity::Error.into(),
            root_id: "r".into(),
            resource: "skill://r/a/SKILL.md".into(),
            message: "no YAML".into(),
            line: 3,
            column: 7,
        };
        let other = Diagnostic {
            resource: "skill://r/c/SKILL.md".into(),
            ..broken.clone()
        };
        let problems = DiagnosticList {
            root_id: "r".into(),
            diagnostics: vec![broken, other],
            continued: false,
        };
        let stale = Skill {
            stale: true,
            ..skill("a", "Two.")
        };
        assert_eq!(
            apply_events(
                stream,
                [upserted(vec![stale]), Event::Diagnostics(problems)]
            ),
            [
                "~ a  skill://r/a  stale: error[YAML_SYNTAX] line 3:7: no YAML",
                "! error[YAML_SYNTAX] skill://r/c/SKILL.md:3:7: no YAML",
            ]
        );
        let removed = vec![RemovedSkill {
            package: "skill://r/a".into(),
            reason: RemovalReason::RootUnavailable.into(),
        }];
        let gone = Event::Delta(SkillDelta {
            root_id: "r".into(),
            removed,
            ..SkillDelta::default()
        });
        assert_eq!(
            apply_events(
                stream,
                [root(RootState::Unavailable, RootReason::NotFound), gone]
            ),
            [
                "! root r: UNAVAILABLE NOT_FOUND Create it.",
                "- a  skill://r/a  ROOT_UNAVAILABLE"
            ]
        );
    }

    #[test]
    fn reset_reports_only_differences() {
        let stream = &mut ReportedStream::new();
        let reset = || Event::Reset(Reset::default());
        apply_events(
            stream,
            [reset(), upserted(vec![skill("a", "A."), skill("b", "B.")])],
        );
        let incomplete = upserted(vec![skill("x", "X.")]);
        assert!(
            stream.apply_event(incomplete).is_empty(),
            "lost before its end"
        );
        assert_eq!(
            apply_events(
                stream,
                [reset(), upserted(vec![skill("a", "A."), skill("c", "C.")])]
            ),
            [
                "- b  skill://r/b  no longer listed",
                "+ c  skill://r/c  C.",
                "= synced at revision 7"
            ]
        );
    }
}
