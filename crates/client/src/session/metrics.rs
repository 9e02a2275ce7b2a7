//! Metrics of invocations: counters by source, kind and outcome, and by skill, and a span for each
//! invocation. Metrics of sources: their state, and their requests to daemons and servers. The number
//! of series and the size of every label are limited, and no label contains text of a skill.

use super::request_metrics::{DURATION_BUCKETS, RequestMetrics, record_duration};
use super::result::{ToolError, ToolErrorCode, ToolResult};
use super::skill::SharedSkill;
use super::skill_source::SkillSource;
use super::tool_names::ToolNames;
use caproot_core::sync::Mutex;
use caproot_core::text::{single_line, truncate_with_ellipsis};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tracing::Span;
use tracing::field::{Empty, display};

/// Limit of the series, and of the skills that are counted separately. Further keys are counted as
/// `other`.
const MAX_SERIES: usize = 1_024;
/// Outcome of a successful invocation.
const OUTCOME_OK: &str = "OK";
/// Outcome of a search without a result.
const OUTCOME_EMPTY: &str = "EMPTY";
/// Label of the keys beyond [`MAX_SERIES`].
const OVERFLOW_LABEL: &str = "other";
/// Limits of the labels in bytes.
const MAX_HANDLE_BYTES: usize = 2_048;
const MAX_NAME_BYTES: usize = 256;
const MAX_OUTCOME_BYTES: usize = 64;

/// Kind of an invocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "handlers", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum InvocationKind {
    /// A model called `skills.list`.
    List,
    /// A model called `skills.read`.
    Read,
    /// A model called `skills.search`.
    Search,
    /// A user mentioned a skill.
    Inject,
    /// A model called another tool.
    Tool,
}

/// Counters of all invocations since the start of the session, and the sources. Counters never
/// decrease.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "handlers", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct InvocationMetrics {
    /// Series sorted by source, kind and outcome.
    pub invocations: Vec<InvocationSeries>,
    /// Skills sorted by the bytes of their handles; `other` counts the skills beyond
    /// the first 1,024.
    pub skills: Vec<SkillCount>,
    /// Sources in the order of [`super::Session::sources`].
    pub sources: Vec<SourceMetrics>,
}

/// State and requests of one source.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "handlers", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SourceMetrics {
    /// Kind of the source.
    pub source_kind: String,
    /// Id of the source, such as the environment of an executor.
    pub source_id: String,
    /// Whether the skills of the source are listed now.
    pub available: bool,
    /// Reason if the source is unavailable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Number of skills in the latest listing that the session has.
    pub skills: usize,
    /// Requests since the start of the source. Forks share a source with their parent.
    #[serde(flatten)]
    pub requests: RequestMetrics,
}

/// Counter and histogram with one set of labels, as in `OpenMetrics`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "handlers", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct InvocationSeries {
    /// Kind of the source's authority, `custom` for a custom tool, or `session` without a source.
    pub source_kind: String,
    /// Environment, or name of the tool.
    pub source_id: String,
    /// Kind of the invocations.
    pub kind: InvocationKind,
    /// Whether a user mentioned the skill.
    pub explicit: bool,
    /// `OK`, `EMPTY` for a search that found nothing, the code of an error, or `DROPPED` if the caller
    /// stopped waiting.
    pub outcome: String,
    /// Number of invocations.
    pub count: u64,
    /// Bytes that a model got.
    pub bytes: u64,
    /// Total duration.
    pub seconds: f64,
    /// Cumulative counts for each bound of [`DURATION_BUCKETS`], and the count of all invocations.
    pub buckets: [u64; DURATION_BUCKETS.len() + 1],
}

/// Successful invocations of one skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "handlers", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SkillCount {
    /// Handle of the skill, or `other`.
    pub skill: String,
    /// Number of reads by a tool.
    pub by_tool: u64,
    /// Number of mentions by a user.
    pub explicit: u64,
    /// Bytes of the skill that a model got.
    pub bytes: u64,
}

/// Counters of one session.
#[derive(Debug, Default)]
pub struct InvocationCounters(Mutex<CounterState>);

#[derive(Debug, Default)]
struct CounterState {
    series: BTreeMap<SeriesKey, SeriesTotals>,
    skills: BTreeMap<String, SkillTotals>,
}

/// Labels of a series, in the order of the series.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SeriesKey {
    source_kind: String,
    source_id: String,
    kind: InvocationKind,
    outcome: String,
}

#[derive(Debug, Default, Clone, Copy)]
struct SeriesTotals {
    count: u64,
    bytes: u64,
    seconds: f64,
    buckets: [u64; DURATION_BUCKETS.len() + 1],
}

#[derive(Debug, Default, Clone, Copy)]
struct SkillTotals {
    by_tool: u64,
    explicit: u64,
    bytes: u64,
}

/// Session in which an invocation runs.
#[derive(Debug, Clone, Copy)]
pub struct InvocationSession<'a> {
    pub id: &'a str,
    pub counters: &'a InvocationCounters,
    pub tool_names: ToolNames,
}

/// Source and skill that an invocation calls.
#[derive(Debug, Clone, Copy)]
pub struct InvocationTarget<'a> {
    source_kind: &'static str,
    source_id: &'a str,
    /// Handle of a skill of the source, or empty.
    package: &'a str,
    /// Skill, if the source lists it.
    skill: Option<&'a SharedSkill>,
}

/// Finished invocation.
#[derive(Debug)]
struct InvocationRecord<'a> {
    source_kind: &'a str,
    source_id: &'a str,
    kind: InvocationKind,
    /// Handle of a skill of the session, or empty.
    skill: &'a str,
    outcome: &'a str,
    bytes: usize,
    duration: Duration,
}

/// Invocation in flight. Counted when it finishes, or as `DROPPED` on drop.
pub struct InvocationGuard<'a> {
    counters: &'a InvocationCounters,
    kind: InvocationKind,
    source_kind: &'static str,
    source_id: String,
    skill: String,
    started_at: Instant,
    span: Span,
    is_recorded: bool,
}

impl SourceMetrics {
    /// Returns the metrics of a source of which the session has this number of skills.
    pub(super) fn of_source(source: &dyn SkillSource, skills: usize) -> Self {
        let snapshot = source.snapshot();
        let reason = snapshot.unavailable_reason;
        Self {
            source_kind: source.kind().name().to_owned(),
            source_id: truncate_with_ellipsis(&single_line(source.id()), MAX_NAME_BYTES),
            available: reason.is_none(),
            reason: reason.map(|why| truncate_with_ellipsis(&single_line(&why), MAX_NAME_BYTES)),
            skills,
            requests: source.request_metrics(),
        }
    }
}

impl<'a> InvocationTarget<'a> {
    /// Target of an invocation that calls no source.
    pub const SESSION: Self = Self {
        source_kind: "session",
        source_id: "",
        package: "",
        skill: None,
    };

    /// Returns a skill of a source as the target: by its handle, as the source may not list it.
    pub fn of_skill(
        source: &'a dyn SkillSource,
        package: &'a str,
        skill: Option<&'a SharedSkill>,
    ) -> Self {
        Self {
            source_kind: source.kind().name(),
            source_id: source.id(),
            package,
            skill,
        }
    }

    /// Returns a custom tool of the program as the target.
    pub fn of_custom_tool(tool: &'a str) -> Self {
        Self {
            source_kind: "custom",
            source_id: tool,
            package: "",
            skill: None,
        }
    }
}

impl InvocationTarget<'_> {
    /// Records the names of the tool and of the skill in a span.
    fn record_names(&self, span: &Span, kind: InvocationKind, names: ToolNames) {
        if let Some(tool) = self.tool_name(kind, names) {
            span.record("otel.name", format!("execute_tool {tool}"));
            span.record("gen_ai.operation.name", "execute_tool");
            span.record("gen_ai.tool.name", tool);
        }
        if !self.package.is_empty() {
            let uri = truncate_with_ellipsis(&single_line(self.package), MAX_HANDLE_BYTES);
            span.record("gen_ai.skill.source.uri", uri);
        }
        if let Some(skill) = self.skill {
            let name = truncate_with_ellipsis(&single_line(&skill.name), MAX_NAME_BYTES);
            span.record("gen_ai.skill.name", name);
            span.record("skill.digest", skill.digest.as_str());
        }
    }

    /// Returns the name of the called tool. A model may have invented the name of an unknown tool.
    fn tool_name(&self, kind: InvocationKind, names: ToolNames) -> Option<&str> {
        match kind {
            InvocationKind::List => Some(names.list()),
            InvocationKind::Read => Some(names.read()),
            InvocationKind::Search => Some(names.search()),
            InvocationKind::Inject => None,
            InvocationKind::Tool => Some(self.source_id).filter(|name| !name.is_empty()),
        }
    }
}

impl SeriesKey {
    /// Returns the key of the invocations beyond [`MAX_SERIES`].
    fn overflow(kind: InvocationKind) -> Self {
        Self {
            source_kind: OVERFLOW_LABEL.to_owned(),
            source_id: String::new(),
            kind,
            outcome: OVERFLOW_LABEL.to_owned(),
        }
    }
}

impl CounterState {
    /// Counts an invocation in its series.
    fn count_in_series(&mut self, record: &InvocationRecord<'_>) {
        let own_key = SeriesKey {
            source_kind: record.source_kind.to_owned(),
            source_id: record.source_id.to_owned(),
            kind: record.kind,
            outcome: record.outcome.to_owned(),
        };
        let is_full = self.series.len() >= MAX_SERIES && !self.series.contains_key(&own_key);
        let key = if is_full {
            SeriesKey::overflow(record.kind)
        } else {
            own_key
        };

        let seconds = record.duration.as_secs_f64();
        let totals = self.series.entry(key).or_default();
        totals.count += 1;
        totals.bytes += record.bytes as u64;
        totals.seconds += seconds;
        record_duration(&mut totals.buckets, seconds);
    }

    /// Counts a successful invocation of a skill.
    fn count_skill(&mut self, record: &InvocationRecord<'_>) {
        let is_full = self.skills.len() >= MAX_SERIES && !self.skills.contains_key(record.skill);
        let label = if is_full {
            OVERFLOW_LABEL
        } else {
            record.skill
        };

        let totals = self.skills.entry(label.to_owned()).or_default();
        if record.kind == InvocationKind::Inject {
            totals.explicit += 1;
        } else {
            totals.by_tool += 1;
        }
        totals.bytes += record.bytes as u64;
    }
}

impl InvocationCounters {
    fn record_invocation(&self, record: &InvocationRecord<'_>) {
        let mut counters = self.0.lock();
        counters.count_in_series(record);

        // The handle of a failed call may name no skill at all.
        if !record.skill.is_empty() && record.outcome == OUTCOME_OK {
            counters.count_skill(record);
        }
    }

    pub fn snapshot(&self, sources: Vec<SourceMetrics>) -> InvocationMetrics {
        let counters = self.0.lock();
        let series = counters
            .series
            .iter()
            .map(|(key, totals)| InvocationSeries {
                source_kind: key.source_kind.clone(),
                source_id: key.source_id.clone(),
                kind: key.kind,
                explicit: key.kind == InvocationKind::Inject,
                outcome: key.outcome.clone(),
                count: totals.count,
                bytes: totals.bytes,
                seconds: totals.seconds,
                buckets: totals.buckets,
            });

        let skills = counters.skills.iter().map(|(skill, totals)| SkillCount {
            skill: skill.clone(),
            by_tool: totals.by_tool,
            explicit: totals.explicit,
            bytes: totals.bytes,
        });

        InvocationMetrics {
            invocations: series.collect(),
            skills: skills.collect(),
            sources,
        }
    }
}

impl<'a> InvocationGuard<'a> {
    /// Starts an invocation of a session.
    pub fn start(
        session: InvocationSession<'a>,
        kind: InvocationKind,
        target: InvocationTarget<'_>,
    ) -> Self {
        let source_kind = target.source_kind;
        let source_id = truncate_with_ellipsis(&single_line(target.source_id), MAX_NAME_BYTES);
        let package = truncate_with_ellipsis(&single_line(target.package), MAX_HANDLE_BYTES);

        // The names that begin with `gen_ai` are those of the GenAI conventions of OpenTelemetry.
        let span = tracing::info_span!(
            "invocation",
            otel.name = Empty,
            gen_ai.operation.name = Empty,
            gen_ai.tool.name = Empty,
            gen_ai.conversation.id = session.id,
            gen_ai.skill.name = Empty,
            gen_ai.skill.source.uri = Empty,
            "error.type" = Empty,
            skill.digest = Empty,
            kind = ?kind,
            explicit = kind == InvocationKind::Inject,
            source.kind = source_kind,
            source.id = source_id,
            outcome = Empty,
            bytes = Empty,
            duration_ms = Empty,
        );
        target.record_names(&span, kind, session.tool_names);

        Self {
            counters: session.counters,
            kind,
            source_kind,
            source_id,
            skill: package,
            started_at: Instant::now(),
            span,
            is_recorded: false,
        }
    }

    /// Returns the span in which the work of the invocation runs.
    pub fn span(&self) -> Span {
        self.span.clone()
    }

    /// Finishes the invocation with the result of a tool.
    pub fn finish_with_result(mut self, result: &ToolResult) {
        self.record_outcome(&outcome_code(self.kind, result), result.json.len());
    }

    /// Finishes the invocation with the text of a fragment or file, or with an error.
    pub fn finish_with_text(mut self, text: Result<&str, &ToolError>) {
        match text {
            Ok(text) => self.record_outcome(OUTCOME_OK, text.len()),
            Err(error) => self.record_outcome(error.code().name(), 0),
        }
    }

    fn record_outcome(&mut self, outcome: &str, bytes: usize) {
        self.is_recorded = true;
        let duration = self.started_at.elapsed();
        let outcome = truncate_with_ellipsis(&single_line(outcome), MAX_OUTCOME_BYTES);

        if outcome == ToolErrorCode::UnknownTool.name() {
            // The model invented the name of the tool; the name must not become a label.
            self.source_kind = InvocationTarget::SESSION.source_kind;
            self.source_id.clear();
        }

        self.span.record("outcome", display(&outcome));
        if outcome != OUTCOME_OK {
            self.span.record("error.type", display(&outcome));
        }
        self.span.record("bytes", bytes);
        self.span
            .record("duration_ms", duration.as_secs_f64() * 1_000.0);

        self.counters.record_invocation(&InvocationRecord {
            source_kind: self.source_kind,
            source_id: &self.source_id,
            kind: self.kind,
            skill: &self.skill,
            outcome: &outcome,
            bytes,
            duration,
        });
    }
}

impl Drop for InvocationGuard<'_> {
    fn drop(&mut self) {
        if !self.is_recorded {
            self.record_outcome("DROPPED", 0);
        }
    }
}

/// Returns `OK`, `EMPTY` or the error code of a result.
fn outcome_code(kind: InvocationKind, result: &ToolResult) -> String {
    if result.success && kind != InvocationKind::Search {
        return OUTCOME_OK.to_owned();
    }

    let json = serde_json::from_str::<Value>(&result.json).unwrap_or_default();
    if !result.success {
        let code = json["error"]["code"].as_str();
        return code.unwrap_or("FAILED").to_owned();
    }
    let skills = json["skills"].as_array();
    let is_empty = skills.is_none_or(Vec::is_empty);
    if is_empty { OUTCOME_EMPTY } else { OUTCOME_OK }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::{InvocationCounters, InvocationKind, InvocationRecord, MAX_SERIES};
    use std::time::Duration;

    fn invoked<'a>(
        source_id: &'a str,
        skill: &'a str,
        how: InvocationKind,
    ) -> InvocationRecord<'a> {
        let (bytes, took) = (10, Duration::from_millis(200));
        InvocationRecord {
            source_kind: "executor",
            source_id,
            kind: how,
            skill,
            outcome: "OK",
            bytes,
            duration: took,
        }
    }

    #[test]
    fn invocations_are_counted_by_kind_and_skill() {
        let counters = InvocationCounters::default();
        for how in [
            InvocationKind::Read,
            InvocationKind::Read,
            InvocationKind::Inject,
        ] {
            counters.record_invocation(&invoked("e", "skill://r/a", how));
        }
        let metrics = counters.snapshot(Vec::new());
        let [read, inject] = &metrics.invocations[..] else {
            panic!("{metrics:?}")
        };
        assert_eq!(
            (read.count, read.bytes, read.explicit, inject.explicit),
            (2, 20, false, true)
        );
        assert_eq!(
            read.buckets,
            [0, 0, 0, 0, 2, 2, 2, 2, 2],
            "buckets are cumulative"
        );
        assert!((read.seconds - 0.4).abs() < 1e-9);
        let [skill] = &metrics.skills[..] else {
            panic!("{metrics:?}")
        };
        assert_eq!((skill.by_tool, skill.explicit, skill.bytes), (2, 1, 30));
        let json = serde_json::to_value(&metrics).expect("JSON");
        assert_eq!(json["invocations"][1]["kind"], "inject");
        assert_eq!(json["skills"][0]["byTool"], 2);
    }

    #[test]
    fn keys_beyond_the_limit_are_counted_as_other() {
        let counters = InvocationCounters::default();
        let names: Vec<String> = (0..MAX_SERIES * 2)
            .map(|n| format!("skill://r/{n}"))
            .collect();
        for name in &names {
            counters.record_invocation(&invoked(name, name, InvocationKind::Read));
        }
        let metrics = counters.snapshot(Vec::new());
        assert_eq!(
            (metrics.skills.len(), metrics.invocations.len()),
            (MAX_SERIES + 1, MAX_SERIES + 1)
        );
        let other = |skill: &&super::SkillCount| skill.skill == "other";
        let other = metrics.skills.iter().find(other).expect("the rest");
        assert_eq!(other.by_tool, MAX_SERIES as u64);
        assert_eq!(
            metrics.invocations.iter().map(|s| s.count).sum::<u64>(),
            names.len() as u64
        );
    }
}
