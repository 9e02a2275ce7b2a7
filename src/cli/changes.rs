//! Text lines for the changes of a watch. The reporter holds the state of the stream and reports
//! each complete state.

use super::plugins::PluginChangeReporter;
use super::report::{diagnostic_line, root_reason_name};
use super::table::truncate_to_width;
use super::text::{EscapedText, escape_text};
use crate::proto::caproot::v1::watch_skills_response::Event;
use crate::proto::caproot::v1::{
    Diagnostic, DiagnosticList, RemovalReason, RootState, RootStatus, Severity, Skill, SkillDelta,
    WatchMode, WatchSkillsResponse,
};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum width of a description.
const MAX_DESCRIPTION_COLUMNS: usize = 100;

/// State of the stream, and the events since.
#[derive(Default)]
pub(super) struct ChangeReporter {
    /// By package.
    skills: BTreeMap<String, Skill>,
    /// By root id.
    roots: BTreeMap<String, RootStatus>,
    /// By root id.
    diagnostics: BTreeMap<String, Vec<Diagnostic>>,
    plugins: PluginChangeReporter,
    pending: PendingState,
}

/// State that is not complete yet.
#[derive(Default)]
struct PendingState {
    /// Whether it replaces the whole state.
    replaces_all: bool,
    roots: Vec<RootStatus>,
    removed: Vec<(String, String)>,
    upserted: Vec<Skill>,
    /// Deltas without their skills.
    plugins: Vec<SkillDelta>,
    /// Whole lists, by root id.
    diagnostics: BTreeMap<String, Vec<Diagnostic>>,
}

impl ChangeReporter {
    /// Discards the incomplete state of a lost stream.
    pub(super) fn discard_pending(&mut self) {
        self.pending = PendingState::default();
    }

    /// Applies an event. If the event completes a state, returns its lines.
    pub(super) fn apply_event(&mut self, message: WatchSkillsResponse) -> Vec<String> {
        let revision = message.revision;
        let pending = &mut self.pending;
        match message.event {
            Some(Event::Reset(_)) => {
                *pending = PendingState { replaces_all: true, ..PendingState::default() }
            }
            Some(Event::RootStatus(status)) => pending.roots.push(status),
            Some(Event::Delta(mut delta)) => {
                let removed = std::mem::take(&mut delta.removed);
                pending.upserted.append(&mut delta.upserted);
                pending.removed.extend(removed.into_iter().map(|removed| {
                    let why = removal_reason_name(removed.reason);
                    (removed.package, why)
                }));
                pending.plugins.push(delta);
            }
            Some(Event::Diagnostics(list)) => pending.add_diagnostics(list),
            Some(Event::Synced(_)) => {
                let pending = std::mem::take(pending);
                let replaces_all = pending.replaces_all;
                let mut lines = self.apply_state(pending);
                if replaces_all {
                    lines.push(format!("= synced at revision {revision}"));
                }
                return lines;
            }
            Some(Event::Bookmark(_)) => return vec![format!("= unchanged at revision {revision}")],
            // Event of a newer daemon.
            None => {}
        }
        Vec::new()
    }

    fn apply_state(&mut self, mut pending: PendingState) -> Vec<String> {
        if pending.replaces_all {
            self.reduce_to_differences(&mut pending);
        }
        let mut lines: Vec<_> =
            pending.roots.into_iter().filter_map(|r| self.record_root_status(r)).collect();
        let mut fresh = Vec::new();
        for (root, list) in pending.diagnostics {
            let before = self.diagnostics.get(&root).map_or(&[][..], Vec::as_slice);
            fresh.extend(list.iter().filter(|problem| !before.contains(problem)).cloned());
            self.diagnostics.insert(root, list);
        }
        for (package, why) in pending.removed {
            if let Some(skill) = self.skills.remove(&package) {
                lines.push(skill_line('-', &skill, &why));
            }
        }
        for skill in pending.upserted {
            let before = self.skills.get(&skill.package);
            let sign = if before.is_some() { '~' } else { '+' };
            let cause = skill
                .stale
                .then(|| blocking_diagnostic(&self.diagnostics, &skill))
                .flatten()
                .cloned();
            if let Some(cause) = &cause {
                // The line of the skill has the diagnostic.
                fresh.retain(|problem| problem != cause);
            }
            let what = match (skill.stale, cause) {
                (true, Some(cause)) => format!("stale: {}", short_diagnostic(&cause)),
                (true, None) => "stale: its file can no longer be read".to_owned(),
                (false, _) => {
                    truncate_to_width(&escape_text(&skill.description), MAX_DESCRIPTION_COLUMNS)
                }
            };
            lines.push(skill_line(sign, &skill, &what));
            self.skills.insert(skill.package.clone(), skill);
        }
        lines.extend(self.plugins.apply_deltas(pending.plugins, pending.replaces_all));
        lines.extend(fresh.iter().filter_map(diagnostic_line).map(|text| format!("! {text}")));
        lines
    }

    /// Reduces a state that replaces everything to its differences.
    fn reduce_to_differences(&mut self, pending: &mut PendingState) {
        let now: BTreeSet<_> = pending.upserted.iter().map(|s| s.package.as_str()).collect();
        let gone = self.skills.values().filter(|skill| !now.contains(skill.package.as_str()));
        let gone: Vec<_> = gone
            .map(|skill| (skill.package.clone(), pending.removal_reason(skill).to_owned()))
            .collect();
        pending.removed = gone;
        pending.upserted.retain(|skill| self.skills.get(&skill.package) != Some(skill));
        self.diagnostics.retain(|root, _| pending.diagnostics.contains_key(root));
        self.roots.retain(|id, _| pending.roots.iter().any(|root| root.id == *id));
    }

    /// Returns the line of a root whose state changed. A root that is ready at first has no line.
    fn record_root_status(&mut self, root: RootStatus) -> Option<String> {
        let describe = |root: &RootStatus| {
            let mut line = match root.state() {
                RootState::Ready => "READY".to_owned(),
                RootState::Pending => "PENDING".to_owned(),
                RootState::Unavailable | RootState::Unspecified => {
                    format!("UNAVAILABLE {}", root_reason_name(root.reason))
                }
            };
            let polled = root.watch_mode() == WatchMode::Polling;
            for message in [(true, &root.message), (polled, &root.watch_message)] {
                if let (true, text) = message
                    && !text.is_empty()
                {
                    line = format!("{line} {}", EscapedText(text));
                }
            }
            line
        };
        let now = describe(&root);
        let id = escape_text(&root.id);
        let before = self.roots.insert(root.id.clone(), root);
        let is_news = before.map_or(now != "READY", |before| describe(&before) != now);
        is_news.then(|| format!("! root {id}: {now}"))
    }
}

/// Returns the error that blocks a skill, if there is one.
fn blocking_diagnostic<'a>(
    problems: &'a BTreeMap<String, Vec<Diagnostic>>,
    skill: &Skill,
) -> Option<&'a Diagnostic> {
    let root = &skill.authority.as_ref()?.id;
    let is_cause = |problem: &&Diagnostic| {
        problem.severity() == Severity::Error && problem.resource == skill.main_resource
    };
    problems.get(root)?.iter().find(is_cause)
}

impl PendingState {
    /// Returns the reason why the skill is missing in a state that replaces everything.
    fn removal_reason(&self, skill: &Skill) -> &'static str {
        let id = skill.authority.as_ref().map_or("", |authority| &authority.id);
        let root = self.roots.iter().find(|root| root.id == id);
        if root.is_some_and(|root| root.state() != RootState::Ready) {
            "ROOT_UNAVAILABLE"
        } else if blocking_diagnostic(&self.diagnostics, skill).is_some() {
            "INVALID"
        } else {
            "no longer listed"
        }
    }

    fn add_diagnostics(&mut self, list: DiagnosticList) {
        let diagnostics = self.diagnostics.entry(list.root_id).or_default();
        if !list.continued {
            diagnostics.clear();
        }
        diagnostics.extend(list.diagnostics);
    }
}

fn skill_line(sign: char, skill: &Skill, what: &str) -> String {
    format!("{sign} {}  {}  {what}", EscapedText(&skill.name), EscapedText(&skill.package))
}

/// Formats a diagnostic without its file name.
fn short_diagnostic(problem: &Diagnostic) -> String {
    let bare = Diagnostic { resource: String::new(), ..problem.clone() };
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
    RemovalReason::try_from(reason).map_or_else(
        |number| number.0.to_string(),
        |reason| reason.as_str_name().trim_start_matches("REMOVAL_REASON_").to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::ChangeReporter;
    use crate::proto::caproot::v1::watch_skills_response::Event;
    use crate::proto::caproot::v1::{
        Authority, Diagnostic, DiagnosticCode, DiagnosticList, RemovalReason, RemovedSkill, Reset,
        RootReason, RootState, RootStatus, Severity, Skill, SkillDelta, Synced,
        WatchSkillsResponse,
    };

    fn skill(name: &str, description: &str) -> Skill {
        Skill {
            authority: Some(Authority { kind: "executor".into(), id: "r".into() }),
            package: format!("skill://r/{name}"),
            main_resource: format!("skill://r/{name}/SKILL.md"),
            name: name.into(),
            description: description.into(),
            ..Skill::default()
        }
    }

    fn apply_events(
        reporter: &mut ChangeReporter,
        events: impl IntoIterator<Item = Event>,
    ) -> Vec<String> {
        let events = events.into_iter().chain([Event::Synced(Synced::default())]);
        let message = |event| WatchSkillsResponse {
            revision: 7,
            event: Some(event),
            ..WatchSkillsResponse::default()
        };
        events.flat_map(|event| reporter.apply_event(message(event))).collect()
    }

    fn upserted(skills: Vec<Skill>) -> Event {
        let root_id = "r".into();
        Event::Delta(SkillDelta { root_id, upserted: skills, ..SkillDelta::default() })
    }

    fn root(state: RootState, reason: RootReason) -> Event {
        let message = if state == RootState::Ready { "" } else { "Create it." };
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
        let reporter = &mut ChangeReporter::default();
        let first = apply_events(
            reporter,
            [
                Event::Reset(Reset::default()),
                root(RootState::Ready, RootReason::Unspecified),
                upserted(vec![skill("a", "One\x1b."), skill("b", &"x".repeat(200))]),
            ],
        );
        let long = format!("+ b  skill://r/b  {}…", "x".repeat(99));
        assert_eq!(first, [r"+ a  skill://r/a  One\u{1b}.", &long, "= synced at revision 7"]);

        assert_eq!(
            apply_events(reporter, [upserted(vec![skill("a", "Two.")])]),
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
        let other = Diagnostic { resource: "skill://r/c/SKILL.md".into(), ..broken.clone() };
        let problems = DiagnosticList {
            root_id: "r".into(),
            diagnostics: vec![broken, other],
            continued: false,
        };
        let stale = Skill { stale: true, ..skill("a", "Two.") };
        assert_eq!(
            apply_events(reporter, [upserted(vec![stale]), Event::Diagnostics(problems)]),
            [
                "~ a  skill://r/a  stale: error[YAML_SYNTAX] line 3:7: no YAML",
                "! error[YAML_SYNTAX] skill://r/c/SKILL.md:3:7: no YAML",
            ]
        );
        let removed = vec![RemovedSkill {
            package: "skill://r/a".into(),
            reason: RemovalReason::RootUnavailable.into(),
        }];
        let gone = Event::Delta(SkillDelta { removed, ..SkillDelta::default() });
        assert_eq!(
            apply_events(reporter, [root(RootState::Unavailable, RootReason::NotFound), gone]),
            ["! root r: UNAVAILABLE NOT_FOUND Create it.", "- a  skill://r/a  ROOT_UNAVAILABLE"]
        );
    }

    #[test]
    fn reset_reports_only_differences() {
        let reporter = &mut ChangeReporter::default();
        let reset = || Event::Reset(Reset::default());
        apply_events(reporter, [reset(), upserted(vec![skill("a", "A."), skill("b", "B.")])]);
        let lost = WatchSkillsResponse {
            event: Some(upserted(vec![skill("x", "X.")])),
            ..WatchSkillsResponse::default()
        };
        assert!(reporter.apply_event(lost).is_empty());
        reporter.discard_pending();
        assert_eq!(
            apply_events(reporter, [reset(), upserted(vec![skill("a", "A."), skill("c", "C.")])]),
            [
                "- b  skill://r/b  no longer listed",
                "+ c  skill://r/c  C.",
                "= synced at revision 7"
            ]
        );
    }
}
