//! What was invoked, counted: by source, how and outcome, and by skill. Bounded whatever is called. Plain
//! data: leaves sending it anywhere to whoever reads it, and spans to `invocation`.

use super::lock;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

/// The most skills that are counted each by itself, and the most series; the rest is `other`.
pub const MAX_SERIES: usize = 1_024;
/// Upper bounds of the histogram of durations, in seconds; one more bucket has no bound.
pub const DURATION_BUCKETS: [f64; 8] = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0];
/// The outcome of what went well.
pub(super) const OUTCOME_OK: &str = "OK";
/// What is over a bound is counted by this name.
const OVERFLOW_LABEL: &str = "other";

/// How a skill, or a tool, was invoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum InvocationKind {
    /// A model called `skills.list`.
    List,
    /// A model called `skills.read`.
    Read,
    /// A person named a skill.
    Inject,
    /// A model called another tool.
    Tool,
}

/// What was invoked since the session began: every counter only grows.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InvocationMetrics {
    /// By source, how and outcome, in this order.
    pub invocations: Vec<InvocationSeries>,
    /// By skill, in the byte order of their handles; `other` holds those over [`MAX_COUNTED`].
    pub skills: Vec<SkillCount>,
}

/// One series of a counter and a histogram, as `OpenMetrics` has them: with the same labels.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InvocationSeries {
    /// `executor`, `own` of a tool of the program, or `session` where none was asked.
    pub source_kind: String,
    /// The environment, or the name of the tool.
    pub source_id: String,
    /// How.
    pub kind: InvocationKind,
    /// Whether a person named what was invoked.
    pub explicit: bool,
    /// `OK`, the code of a refusal, or `DROPPED` where nobody waited for the end.
    pub outcome: String,
    /// How often.
    pub count: u64,
    /// The bytes that a model got.
    pub bytes: u64,
    /// What it took in all.
    pub seconds: f64,
    /// Of each bound of [`DURATION_BUCKETS`], and then of all, how many took at most that long.
    pub buckets: [u64; DURATION_BUCKETS.len() + 1],
}

/// How often one skill was invoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SkillCount {
    /// Its handle, or `other`.
    pub skill: String,
    /// How often a tool read of it.
    pub by_tool: u64,
    /// How often a person named it.
    pub explicit: u64,
    /// The bytes that a model got of it.
    pub bytes: u64,
}

/// One invocation that is over.
#[derive(Debug)]
pub(super) struct InvocationRecord<'a> {
    pub(super) source_kind: &'a str,
    pub(super) source_id: &'a str,
    pub(super) kind: InvocationKind,
    /// A handle of the session's; empty where none was meant.
    pub(super) skill: &'a str,
    pub(super) outcome: &'a str,
    pub(super) bytes: usize,
    pub(super) duration: Duration,
}

/// Counts.
#[derive(Debug, Default)]
pub(super) struct InvocationCounters(Mutex<CounterState>);

#[derive(Debug, Default)]
struct CounterState {
    series: BTreeMap<(String, String, InvocationKind, String), SeriesTotals>,
    skills: BTreeMap<String, [u64; 3]>,
}

#[derive(Debug, Default, Clone, Copy)]
struct SeriesTotals {
    count: u64,
    bytes: u64,
    seconds: f64,
    buckets: [u64; DURATION_BUCKETS.len() + 1],
}

impl InvocationCounters {
    pub(super) fn record_invocation(&self, invoked: &InvocationRecord<'_>) {
        let &InvocationRecord {
            source_kind,
            source_id,
            kind: how,
            skill,
            outcome,
            bytes,
            duration: took,
        } = invoked;
        let (bytes, seconds) = (bytes as u64, took.as_secs_f64());
        let mut counted = lock(&self.0);
        let key = (source_kind.to_owned(), source_id.to_owned(), how, outcome.to_owned());
        let is_full = counted.series.len() >= MAX_SERIES && !counted.series.contains_key(&key);
        let key = if is_full {
            (OVERFLOW_LABEL.into(), String::new(), how, OVERFLOW_LABEL.into())
        } else {
            key
        };
        let sums = counted.series.entry(key).or_default();
        sums.count += 1;
        sums.bytes += bytes;
        sums.seconds += seconds;
        for (bucket, most) in sums.buckets.iter_mut().zip(DURATION_BUCKETS) {
            *bucket += u64::from(seconds <= most);
        }
        sums.buckets[DURATION_BUCKETS.len()] += 1;
        // What was only asked for may be of no skill at all.
        if skill.is_empty() || outcome != OUTCOME_OK {
            return;
        }
        let is_full = counted.skills.len() >= MAX_SERIES && !counted.skills.contains_key(skill);
        let skill = if is_full { OVERFLOW_LABEL } else { skill };
        let sums = counted.skills.entry(skill.to_owned()).or_default();
        sums[usize::from(how == InvocationKind::Inject)] += 1;
        sums[2] += bytes;
    }

    pub(super) fn snapshot(&self) -> InvocationMetrics {
        let counted = lock(&self.0);
        let series =
            counted.series.iter().map(|((kind, id, how, outcome), sums)| InvocationSeries {
                source_kind: kind.clone(),
                source_id: id.clone(),
                kind: *how,
                explicit: *how == InvocationKind::Inject,
                outcome: outcome.clone(),
                count: sums.count,
                bytes: sums.bytes,
                seconds: sums.seconds,
                buckets: sums.buckets,
            });
        let skills = counted.skills.iter().map(|(skill, [by_tool, explicit, bytes])| SkillCount {
            skill: skill.clone(),
            by_tool: *by_tool,
            explicit: *explicit,
            bytes: *bytes,
        });
        InvocationMetrics { invocations: series.collect(), skills: skills.collect() }
    }
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
    fn counted_by_what_it_was() {
        let counters = InvocationCounters::default();
        for how in [InvocationKind::Read, InvocationKind::Read, InvocationKind::Inject] {
            counters.record_invocation(&invoked("e", "skill://r/a", how));
        }
        let told = counters.snapshot();
        let [read, inject] = &told.invocations[..] else { panic!("{told:?}") };
        assert_eq!((read.count, read.bytes, read.explicit, inject.explicit), (2, 20, false, true));
        assert_eq!(read.buckets, [0, 0, 0, 0, 2, 2, 2, 2, 2], "each holds those before it");
        assert!((read.seconds - 0.4).abs() < 1e-9);
        let [skill] = &told.skills[..] else { panic!("{told:?}") };
        assert_eq!((skill.by_tool, skill.explicit, skill.bytes), (2, 1, 30));
        let json = serde_json::to_value(&told).expect("JSON");
        assert_eq!(json["invocations"][1]["how"], "inject");
        assert_eq!(json["skills"][0]["byTool"], 2);
    }

    #[test]
    fn bounded_and_nothing_is_lost() {
        let counters = InvocationCounters::default();
        let names: Vec<String> = (0..MAX_SERIES * 2).map(|n| format!("skill://r/{n}")).collect();
        for name in &names {
            counters.record_invocation(&invoked(name, name, InvocationKind::Read));
        }
        let told = counters.snapshot();
        assert_eq!((told.skills.len(), told.invocations.len()), (MAX_SERIES + 1, MAX_SERIES + 1));
        let other = |skill: &&super::SkillCount| skill.skill == "other";
        let other = told.skills.iter().find(other).expect("the rest");
        assert_eq!(other.by_tool, MAX_SERIES as u64);
        assert_eq!(told.invocations.iter().map(|s| s.count).sum::<u64>(), names.len() as u64);
    }
}
