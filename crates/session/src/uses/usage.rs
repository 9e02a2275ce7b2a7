//! Use of skills: which skills a session showed to a model, gave to a model, or found for a model. An
//! event has the skill with its digest, the session, the outcome, and no text of a skill, prompt or query.

use crate::skills::skill::{AuthorityRef, SharedSkill, SkillAuthority};
use caproot_core::sync::Mutex;
use serde::{Serialize, Serializer};
use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender, channel};
use tokio_util::sync::CancellationToken;

/// Calls whose events wait for a slow reader. The events of older calls are lost.
const MAX_WAITING_CALLS: usize = 256;
/// Outcome of a use without an error.
pub const OUTCOME_OK: &str = "OK";
/// Skills that a session remembers as listed. After more, it reports listed skills again.
const MAX_LISTED: usize = 65_536;

/// Kind of a use.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, schemars::JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum UsageKind {
    /// The skill came into a text or a page of the list, for the first time in the session with this
    /// digest.
    Listed,
    /// A model or the program read a file of the skill, or listed its files. Further pages are no
    /// further use.
    Read,
    /// The skill came into a prompt as a fragment.
    Injected,
    /// The skill came into the result of a search.
    Searched,
}

/// Use of one skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageEvent {
    /// Time in UTC, such as `2026-11-25T10:30:00.000Z`.
    #[serde(serialize_with = "write_time")]
    #[schemars(with = "String")]
    pub time: SystemTime,
    /// Kind of the use.
    pub kind: UsageKind,
    /// Id of the session.
    pub session: String,
    /// Name of the skill.
    pub name: String,
    /// Handle of the skill.
    pub package: String,
    /// Authority that lists the skill.
    pub authority: SkillAuthority,
    /// Digest of the SKILL.md; empty if the source has none.
    pub digest: String,
    /// `OK`, the code of the error with which a read or an injection failed, or `DROPPED` if its caller
    /// stopped waiting.
    pub outcome: String,
    /// Bytes that the model or the program got from a read or an injection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
    /// Duration of a read or an injection, in seconds.
    #[serde(
        rename = "seconds",
        serialize_with = "write_seconds",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<f64>")]
    pub duration: Option<Duration>,
    /// Number of events before this one that are lost, because their reader was too slow.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(default)]
    pub lost: u64,
}

/// Watch for the uses of a session's skills.
#[derive(Debug)]
pub struct UsageWatch {
    session: String,
    receiver: Receiver<Arc<UsedSkills>>,
    closed: CancellationToken,
    /// Call whose events are being returned.
    current: Option<Arc<UsedSkills>>,
    /// Number of the next event.
    next_number: u64,
}

/// Skills that one call used.
#[derive(Debug)]
struct UsedSkills {
    time: SystemTime,
    kind: UsageKind,
    /// Number of the first event among all events of the session.
    first_number: u64,
    skills: Vec<SharedSkill>,
    /// Missing for a list or a search.
    call: Option<CallOutcome>,
}

/// End of a read or an injection.
#[derive(Debug)]
pub struct CallOutcome {
    pub outcome: String,
    pub bytes: usize,
    pub duration: Duration,
}

/// Recorder of the uses of one session.
#[derive(Debug, Default)]
pub struct UsageRecorder(Mutex<RecorderState>);

#[derive(Debug, Default)]
struct RecorderState {
    /// Number of events so far.
    count: u64,
    /// Hashes of the skills that are listed, with their digests.
    listed: HashSet<u64>,
    hasher: RandomState,
    /// Missing until the first watch.
    sender: Option<Sender<Arc<UsedSkills>>>,
}

impl UsageKind {
    /// Returns the name of the kind in an event.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Listed => "listed",
            Self::Read => "read",
            Self::Injected => "injected",
            Self::Searched => "searched",
        }
    }
}

impl UsageRecorder {
    /// Returns a watch for the uses from now on, until the session is closed.
    pub fn watch(&self, session: &str, closed: CancellationToken) -> UsageWatch {
        let mut state = self.0.lock();
        let sender = state
            .sender
            .get_or_insert_with(|| channel(MAX_WAITING_CALLS).0);
        UsageWatch {
            session: session.to_owned(),
            receiver: sender.subscribe(),
            closed,
            current: None,
            next_number: state.count,
        }
    }

    /// Records that a list or a search showed these skills.
    pub fn record<'a>(&self, kind: UsageKind, skills: impl IntoIterator<Item = &'a SharedSkill>) {
        self.record_call(kind, skills, None);
    }

    /// Records that these skills were used; with the end of the call, if it was a read or an injection.
    pub fn record_call<'a>(
        &self,
        kind: UsageKind,
        skills: impl IntoIterator<Item = &'a SharedSkill>,
        call: Option<CallOutcome>,
    ) {
        let mut state = self.0.lock();
        let skills: Vec<_> = skills
            .into_iter()
            .filter(|skill| kind != UsageKind::Listed || state.is_newly_listed(skill))
            .cloned()
            .collect();
        if skills.is_empty() {
            return;
        }

        let first_number = state.count;
        state.count += skills.len() as u64;
        if let Some(sender) = &state.sender {
            // Without a watch, the events are only counted.
            drop(sender.send(Arc::new(UsedSkills {
                time: SystemTime::now(),
                kind,
                first_number,
                skills,
                call,
            })));
        }
    }
}

impl RecorderState {
    fn is_newly_listed(&mut self, skill: &SharedSkill) -> bool {
        if self.listed.len() >= MAX_LISTED {
            self.listed.clear();
        }
        let AuthorityRef { kind, id } = AuthorityRef::of_skill(skill);
        let identity = (kind, id, &skill.package, &skill.digest);
        self.listed.insert(self.hasher.hash_one(identity))
    }
}

impl UsageWatch {
    /// Waits for the next use. Returns `None` once the session is closed and each event is returned.
    /// Cancel-safe.
    pub async fn next(&mut self) -> Option<UsageEvent> {
        loop {
            if let Some(event) = self.take_event() {
                return Some(event);
            }

            tokio::select! {
                biased;
                received = self.receiver.recv() => match received {
                    Ok(used) => self.current = Some(used),
                    // The numbers of the next events tell how many are lost.
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return None,
                },
                () = self.closed.cancelled() => return None,
            }
        }
    }

    /// Returns the next event of the current call.
    fn take_event(&mut self) -> Option<UsageEvent> {
        let used = self.current.as_ref()?;
        let lost = used.first_number.saturating_sub(self.next_number);
        let number = self.next_number + lost;
        let index = usize::try_from(number - used.first_number).ok()?;

        let Some(skill) = used.skills.get(index) else {
            self.current = None;
            return None;
        };
        self.next_number = number + 1;
        let call = used.call.as_ref();
        Some(UsageEvent {
            time: used.time,
            kind: used.kind,
            session: self.session.clone(),
            name: skill.name.clone(),
            package: skill.package.clone(),
            authority: SkillAuthority::of_skill(skill),
            digest: skill.digest.clone(),
            outcome: call.map_or(OUTCOME_OK, |call| &call.outcome).to_owned(),
            bytes: call.map(|call| call.bytes),
            duration: call.map(|call| call.duration),
            lost,
        })
    }
}

fn write_time<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_rfc3339_millis(*time))
}

#[allow(clippy::ref_option)] // serde passes a reference
fn write_seconds<S: Serializer>(
    duration: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    duration
        .map(|duration| duration.as_secs_f64())
        .serialize(serializer)
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::{MAX_WAITING_CALLS, UsageEvent, UsageKind, UsageRecorder, UsageWatch};
    use crate::view::list::tests::skill;
    use proptest::prelude::*;
    use std::time::{Duration, SystemTime};
    use tokio_util::sync::CancellationToken;

    fn collect(mut watch: UsageWatch) -> Vec<UsageEvent> {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.build().expect("a runtime");
        runtime.block_on(async {
            let mut events = Vec::new();
            while let Some(event) = watch.next().await {
                events.push(event);
            }
            events
        })
    }

    #[test]
    fn a_skill_is_listed_once_with_each_digest() {
        let recorder = UsageRecorder::default();
        let closed = CancellationToken::new();
        let watch = recorder.watch("s", closed.clone());
        let first = skill("r", "a", "A.", false);
        let mut changed = (*first).clone();
        changed.digest = "sha256:2".into();
        for _ in 0..2 {
            recorder.record(UsageKind::Listed, [&first]);
            recorder.record(UsageKind::Listed, [&changed.clone().into()]);
            recorder.record(UsageKind::Read, [&first]);
        }
        closed.cancel();
        let kinds: Vec<_> = collect(watch)
            .iter()
            .map(|event| event.kind.name())
            .collect();
        assert_eq!(kinds, ["listed", "listed", "read", "read"]);
    }

    #[test]
    fn an_event_is_json_without_text() {
        let recorder = UsageRecorder::default();
        let closed = CancellationToken::new();
        let watch = recorder.watch("s", closed.clone());
        recorder.record(UsageKind::Searched, [&skill("r", "a", "A secret.", false)]);
        closed.cancel();
        let mut event = collect(watch).remove(0);
        event.time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_500);
        assert_eq!(
            serde_json::to_string(&event).expect("JSON"),
            r#"{"time":"1970-01-01T00:00:01.500Z","kind":"searched","session":"s","name":"a","package":"skill://r/a","authority":{"kind":"executor","id":"r"},"digest":"","outcome":"OK"}"#
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        /// Returned and lost events are all events, in their order.
        #[test]
        fn each_lost_event_is_counted(
            sizes in prop::collection::vec(0_usize..4, 0..3 * MAX_WAITING_CALLS),
            read_before in 0_usize..40,
        ) {
            let recorder = UsageRecorder::default();
            let closed = CancellationToken::new();
            let watch = recorder.watch("s", closed.clone());
            let mut total = 0_u64;
            for (call, size) in sizes.iter().enumerate() {
                let skills: Vec<_> =
                    (0..*size).map(|n| skill("r", &format!("s{}", total + n as u64), "", false)).collect();
                let kind = if call < read_before { UsageKind::Injected } else { UsageKind::Read };
                recorder.record(kind, &skills);
                total += *size as u64;
            }
            closed.cancel();
            let events = collect(watch);

            let mut next = 0;
            for event in &events {
                next += event.lost;
                prop_assert_eq!(&event.name, &format!("s{next}"));
                next += 1;
            }
            prop_assert_eq!(next, total);
            let calls = sizes.iter().filter(|size| **size > 0).count();
            prop_assert_eq!(events.iter().any(|event| event.lost > 0), calls > MAX_WAITING_CALLS);
        }
    }
}
