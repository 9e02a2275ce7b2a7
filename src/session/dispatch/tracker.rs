//! What a dispatcher remembers: where its calls come from, which are under way, whose answers the manager
//! did not take, and which are done. Bounded, and without a clock.

use super::call::RequestId;
use crate::session::ToolResult;
use lru::LruCache;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::num::NonZeroUsize;

/// Where calls come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryMode {
    /// They are handed in as they come.
    Pushed,
    /// The manager is asked for them.
    Polled,
}

impl fmt::Display for DeliveryMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pushed => "handed in",
            Self::Polled => "polled",
        })
    }
}

/// An answer that the manager did not take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnsentAnswer {
    pub(super) tool: String,
    pub(super) result: ToolResult,
}

/// What is known of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallStatus {
    /// Nothing; it is new, or was forgotten.
    New,
    InFlight,
    Unsent,
    Done,
}

/// Each id is in at most one of `underway`, `unsent`, `done` and `held`.
#[derive(Debug)]
pub(super) struct CallTracker {
    mode: Option<DeliveryMode>,
    /// As many as may be worked on at once; never forgotten.
    in_flight: HashSet<RequestId>,
    /// In the order of their last attempt; never forgotten.
    unsent: LruCache<RequestId, UnsentAnswer>,
    max_unsent: usize,
    /// The one that was longest not seen is forgotten first.
    done: LruCache<RequestId, ()>,
    /// How many wait for their turn with each of these ids.
    waiter_counts: HashMap<RequestId, usize>,
    /// Those of them that are done meanwhile; not forgotten while somebody waits with them, who would do
    /// them again.
    pinned_done: HashSet<RequestId>,
}

impl CallTracker {
    /// Remembers so many that are done, and keeps so many unsent answers.
    pub(super) fn new(done: NonZeroUsize, unsent: usize) -> Self {
        Self {
            mode: None,
            in_flight: HashSet::new(),
            unsent: LruCache::unbounded(),
            max_unsent: unsent,
            done: LruCache::new(done),
            waiter_counts: HashMap::new(),
            pinned_done: HashSet::new(),
        }
    }

    /// Whether calls may come so; what they come by where not.
    pub(super) fn check_mode(&self, mode: DeliveryMode) -> Result<(), DeliveryMode> {
        self.mode.filter(|fixed| *fixed != mode).map_or(Ok(()), Err)
    }

    /// From now on calls come so.
    pub(super) fn set_mode(&mut self, mode: DeliveryMode) -> Result<(), DeliveryMode> {
        self.check_mode(mode)?;
        self.mode = Some(mode);
        Ok(())
    }

    /// Calls may come either way again.
    pub(super) fn reset_mode(&mut self) {
        self.mode = None;
    }

    pub(super) fn mode(&self) -> Option<DeliveryMode> {
        self.mode
    }

    /// What is known of a call, which is seen by this.
    pub(super) fn look_up(&mut self, id: &RequestId) -> CallStatus {
        if self.in_flight.contains(id) {
            CallStatus::InFlight
        } else if self.unsent.contains(id) {
            CallStatus::Unsent
        } else if self.pinned_done.contains(id) || self.done.get(id).is_some() {
            CallStatus::Done
        } else {
            CallStatus::New
        }
    }

    /// Somebody waits for a turn with this id.
    pub(super) fn add_waiter(&mut self, id: &RequestId) {
        *self.waiter_counts.entry(id.clone()).or_default() += 1;
    }

    /// One of those who do waits no longer.
    pub(super) fn remove_waiter(&mut self, id: &RequestId) {
        let Some(waiting) = self.waiter_counts.get_mut(id) else { return };
        *waiting -= 1;
        if *waiting == 0 {
            self.waiter_counts.remove(id);
            if self.pinned_done.remove(id) {
                self.done.put(id.clone(), ());
            }
        }
    }

    /// Whether no call may be begun, since its answer might be one too many to keep.
    pub(super) fn is_full(&self) -> bool {
        self.in_flight.len() + self.unsent.len() >= self.max_unsent
    }

    /// A new call is begun.
    pub(super) fn start_call(&mut self, id: &RequestId) {
        self.in_flight.insert(id.clone());
    }

    /// The answer of this call is sent again.
    pub(super) fn start_resend(&mut self, id: &RequestId) -> Option<UnsentAnswer> {
        let unsent = self.unsent.pop(id)?;
        self.in_flight.insert(id.clone());
        Some(unsent)
    }

    /// The ids of unsent answers, that of the oldest attempt first.
    pub(super) fn unsent(&self) -> Vec<RequestId> {
        self.unsent.iter().rev().map(|(id, _)| id.clone()).collect()
    }

    pub(super) fn oldest_unsent(&self) -> Option<RequestId> {
        self.unsent.peek_lru().map(|(id, _)| id.clone())
    }

    /// A call that was under way is over: done, or with an answer to keep.
    pub(super) fn finish_call(&mut self, id: RequestId, unsent: Option<UnsentAnswer>) {
        self.in_flight.remove(&id);
        match unsent {
            Some(unsent) => drop(self.unsent.put(id, unsent)),
            None if self.waiter_counts.contains_key(&id) => drop(self.pinned_done.insert(id)),
            None => drop(self.done.put(id, ())),
        }
    }

    /// Whether an id is remembered; does not count as seeing it.
    #[cfg(test)]
    pub(super) fn contains(&self, id: &RequestId) -> bool {
        self.in_flight.contains(id)
            || self.unsent.contains(id)
            || self.pinned_done.contains(id)
            || self.done.contains(id)
    }

    /// How many ids are remembered.
    pub(super) fn len(&self) -> usize {
        self.in_flight.len() + self.unsent.len() + self.pinned_done.len() + self.done.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{CallStatus, CallTracker, DeliveryMode, UnsentAnswer};
    use crate::session::ToolResult;
    use crate::session::dispatch::RequestId;
    use std::num::NonZeroUsize;

    fn id(n: usize) -> RequestId {
        n.to_string().as_str().try_into().expect("short")
    }

    fn unsent() -> UnsentAnswer {
        let result = ToolResult { success: true, external_context: true, json: "{}".to_owned() };
        UnsentAnswer { tool: "t".to_owned(), result }
    }

    #[test]
    fn the_longest_unseen_goes_first_and_none_that_is_needed() {
        let mut memory = CallTracker::new(NonZeroUsize::new(3).expect("three"), 9);
        memory.start_call(&id(100));
        memory.start_call(&id(101));
        memory.finish_call(id(101), Some(unsent()));
        for n in 0..50 {
            memory.start_call(&id(n));
            memory.finish_call(id(n), None);
            assert_eq!(memory.look_up(&id(n)), CallStatus::Done, "the latest");
            assert_eq!(memory.look_up(&id(0)), CallStatus::Done, "it is seen again and again");
            assert!(memory.len() <= 5);
        }
        assert_eq!(memory.look_up(&id(47)), CallStatus::New);
        assert_eq!(memory.look_up(&id(100)), CallStatus::InFlight);
        assert_eq!(memory.look_up(&id(101)), CallStatus::Unsent);
    }

    #[test]
    fn what_somebody_waits_with_is_not_forgotten() {
        let mut memory = CallTracker::new(NonZeroUsize::MIN, 9);
        memory.add_waiter(&id(0));
        memory.add_waiter(&id(0));
        for n in 0..3 {
            memory.start_call(&id(n));
            memory.finish_call(id(n), None);
            assert_eq!(memory.look_up(&id(0)), CallStatus::Done);
        }
        memory.remove_waiter(&id(0));
        assert_eq!((memory.look_up(&id(0)), memory.len()), (CallStatus::Done, 2));
        memory.remove_waiter(&id(0));
        assert_eq!(
            (memory.look_up(&id(0)), memory.len()),
            (CallStatus::Done, 1),
            "it is the latest now"
        );
        memory.finish_call(id(5), None);
        assert_eq!(memory.look_up(&id(0)), CallStatus::New);
        assert!(memory.waiter_counts.is_empty() && memory.pinned_done.is_empty());
    }

    #[test]
    fn answers_are_kept_in_the_order_of_their_attempts() {
        let mut memory = CallTracker::new(NonZeroUsize::MIN, 2);
        for n in 0..2 {
            assert!(!memory.is_full());
            memory.start_call(&id(n));
            memory.finish_call(id(n), Some(unsent()));
        }
        assert!(memory.is_full());
        assert_eq!(memory.start_resend(&id(0)), Some(unsent()));
        assert_eq!(memory.start_resend(&id(0)), None, "it is under way");
        memory.finish_call(id(0), Some(unsent()));
        assert_eq!(memory.unsent(), [id(1), id(0)]);
        assert_eq!(memory.oldest_unsent(), Some(id(1)));
    }

    #[test]
    fn one_way_until_it_is_reset() {
        let mut memory = CallTracker::new(NonZeroUsize::MIN, 1);
        assert_eq!(memory.check_mode(DeliveryMode::Polled), Ok(()));
        assert_eq!((memory.mode(), memory.set_mode(DeliveryMode::Pushed)), (None, Ok(())));
        assert_eq!(memory.set_mode(DeliveryMode::Polled), Err(DeliveryMode::Pushed));
        memory.reset_mode();
        assert_eq!(memory.set_mode(DeliveryMode::Polled), Ok(()));
    }
}
