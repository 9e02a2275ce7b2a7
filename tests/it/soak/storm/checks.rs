//! Checks of the storm: each state of each mirror, and the state in which all faults have ended.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use caproot_client::{Mirror, MirrorSnapshot, MirrorState};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::StormResult;
use super::executors::{InstanceKey, environment_id, skill_names};

/// Number of the last states of a mirror that are kept for its story.
const STORY_STATES: usize = 4;

/// Mirror of the executor of an environment. Each of its states is checked until it is dropped.
pub(crate) struct CheckedMirror {
    pub(crate) environment: usize,
    is_real: bool,
    mirror: Mirror,
    story: Arc<MirrorStory>,
    _task: AbortOnDropHandle<()>,
}

/// Last states of a mirror with their times.
#[derive(Default)]
struct MirrorStory(Mutex<VecDeque<(Instant, MirrorSnapshot)>>);

/// Number of checked states, and the first wrong state.
#[derive(Clone)]
pub(crate) struct StateChecks {
    states: Arc<AtomicU64>,
    wrong: watch::Sender<Option<String>>,
}

impl StateChecks {
    pub(crate) fn new() -> Self {
        Self {
            states: Arc::default(),
            wrong: watch::Sender::new(None),
        }
    }

    pub(crate) fn states(&self) -> u64 {
        self.states.load(Ordering::Relaxed)
    }

    /// Returns the first wrong state.
    pub(crate) async fn wait_for_wrong(&self) -> String {
        let mut wrong = self.wrong.subscribe();
        let found = wrong.wait_for(Option::is_some).await;
        // The sender belongs to this value.
        found.map_or_else(|_| String::new(), |found| found.clone().unwrap_or_default())
    }
}

impl CheckedMirror {
    pub(crate) fn new(
        environment: usize,
        is_real: bool,
        mirror: Mirror,
        checks: &StateChecks,
    ) -> Self {
        let (mut states, checks) = (mirror.clone(), checks.clone());
        let story = Arc::<MirrorStory>::default();
        let states_of_story = story.clone();
        let task = tokio::spawn(async move {
            let mut revisions = HashMap::new();
            loop {
                let snapshot = states.changed().await;
                checks.states.fetch_add(1, Ordering::Relaxed);
                states_of_story.record(&snapshot);
                if let Err(error) = check_state(environment, is_real, &snapshot, &mut revisions) {
                    let id = environment_id(environment);
                    checks
                        .wrong
                        .send_replace(Some(format!("a mirror of {id}: {error}")));
                    return;
                }
            }
        });
        Self {
            environment,
            is_real,
            mirror,
            story,
            _task: AbortOnDropHandle::new(task),
        }
    }

    /// Waits until the mirror is live with the skills of an executor.
    pub(crate) async fn wait_until_right(&self, key: InstanceKey, generation: u64) {
        let mut mirror = self.mirror.clone();
        let expected = skill_names(key, generation, self.is_real);
        while !is_right(&mirror.snapshot(), &expected) {
            mirror.changed().await;
        }
    }

    /// Describes the last states, with their times since a moment.
    pub(crate) fn tell_story(&self, since: Instant) -> String {
        format!(
            "{}: {}",
            environment_id(self.environment),
            self.story.tell(since)
        )
    }

    /// Returns the difference to the expected state.
    pub(crate) fn describe(&self, key: InstanceKey, generation: u64) -> Option<String> {
        let (snapshot, expected) = (
            self.mirror.snapshot(),
            skill_names(key, generation, self.is_real),
        );
        let names = names(&snapshot);
        let is_right = is_right(&snapshot, &expected);
        (!is_right).then(|| format!("{:?} with {names:?}, expected {expected:?}", snapshot.state))
    }
}

impl MirrorStory {
    fn record(&self, snapshot: &MirrorSnapshot) {
        let mut states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if states.len() == STORY_STATES {
            states.pop_front();
        }
        states.push_back((Instant::now(), snapshot.clone()));
    }

    fn tell(&self, since: Instant) -> String {
        let states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let tell = |(time, snapshot): &(Instant, MirrorSnapshot)| {
            let after = time.saturating_duration_since(since).as_secs_f64();
            let before = since.saturating_duration_since(*time).as_secs_f64();
            let state = match &snapshot.state {
                MirrorState::Live => names(snapshot).into_iter().next().unwrap_or_default(),
                MirrorState::Stale { why, .. } => format!("stale, {why}"),
                state => format!("{state:?}"),
            };
            format!("{:+.1} s {state}", after - before)
        };
        states.iter().map(tell).collect::<Vec<_>>().join("; ")
    }
}

fn is_right(snapshot: &MirrorSnapshot, expected: &[String]) -> bool {
    snapshot.state == MirrorState::Live && names(snapshot) == expected
}

/// Returns the names of the skills in byte order.
fn names(snapshot: &MirrorSnapshot) -> Vec<String> {
    let mut names: Vec<_> = snapshot
        .catalog
        .skills()
        .map(|skill| skill.name.clone())
        .collect();
    names.sort();
    names
}

/// Checks that a state has only skills of its environment, of one start and of one generation, and
/// that no revision goes back.
fn check_state(
    environment: usize,
    is_real: bool,
    snapshot: &MirrorSnapshot,
    revisions: &mut HashMap<Arc<str>, u64>,
) -> StormResult<()> {
    let names = names(snapshot);
    let id = environment_id(environment);
    if let Some(name) = names
        .iter()
        .find(|name| name.split('.').next() != Some(&id))
    {
        return Err(format!("has {name} of another environment").into());
    }
    if let (false, Some(first)) = (is_real, names.first()) {
        // The parts of a name: environment, epoch, generation, number.
        let mut parts = first.split('.').skip(1).map(str::parse);
        let (Some(Ok(epoch)), Some(Ok(generation))) = (parts.next(), parts.next()) else {
            return Err(format!("has the name {first}").into());
        };
        if names != skill_names((environment, epoch), generation, false) {
            return Err(format!("has a mixture: {names:?}").into());
        }
        if snapshot.epoch.split('.').next() != Some(&epoch.to_string()) {
            return Err(format!("has {names:?} at the epoch {}", snapshot.epoch).into());
        }
    }
    let before = revisions
        .insert(snapshot.epoch.clone(), snapshot.revision)
        .unwrap_or_default();
    if snapshot.revision < before {
        return Err(format!("went from revision {before} to {}", snapshot.revision).into());
    }
    Ok(())
}
