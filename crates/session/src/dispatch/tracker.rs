//! Tracker of calls: the delivery mode, and the calls that are in flight, unsent or done. All sets
//! are limited.

use super::DispatchError;
use super::call::RequestId;
use super::record::AnswerOrigin;
use crate::ToolResult;
use lru::LruCache;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::num::NonZeroUsize;
use std::time::Duration;

/// Delivery of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryMode {
    /// The program pushes calls.
    Pushed,
    /// The dispatcher polls the manager.
    Polled,
}

impl fmt::Display for DeliveryMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pushed => "pushed",
            Self::Polled => "polled",
        })
    }
}

/// Answer of a call, with its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallAnswer {
    pub tool: String,
    pub origin: AnswerOrigin,
    pub result: ToolResult,
    pub duration: Duration,
}

/// Status of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallStatus {
    /// Unknown, or forgotten.
    New,
    InFlight,
    Unsent,
    Done,
}

/// Each id is in at most one of `in_flight`, `unsent`, `done` and `pinned_done`.
pub struct CallTracker {
    /// Mode, once a call was delivered.
    pub mode: Option<DeliveryMode>,
    /// Limited by the permits; never forgotten.
    in_flight: HashSet<RequestId>,
    /// Sorted by the last attempt; never forgotten.
    unsent: LruCache<RequestId, CallAnswer>,
    max_unsent: usize,
    /// The least recently used id is forgotten first.
    done: LruCache<RequestId, ()>,
    /// Number of waiters for a permit with each id.
    waiter_counts: HashMap<RequestId, usize>,
    /// Done ids with waiters. They are not forgotten while a waiter could answer the call again.
    pinned_done: HashSet<RequestId>,
}

impl CallTracker {
    /// Returns a tracker with limits of the done ids and of the unsent answers.
    pub fn new(done: NonZeroUsize, unsent: usize) -> Self {
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

    /// Checks that calls may be delivered in this mode.
    pub fn check_mode(&self, mode: DeliveryMode) -> Result<(), DispatchError> {
        match self.mode {
            Some(current) if current != mode => Err(DispatchError::Mode(current)),
            _ => Ok(()),
        }
    }

    /// Sets the mode.
    pub fn set_mode(&mut self, mode: DeliveryMode) -> Result<(), DispatchError> {
        self.check_mode(mode)?;
        self.mode = Some(mode);
        Ok(())
    }

    /// Returns the status of a call, and marks the id as used.
    pub fn look_up(&mut self, id: &RequestId) -> CallStatus {
        // A look-up must not change the order of the last attempts, so only a done id is marked.
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

    /// Adds a waiter with an id.
    pub fn add_waiter(&mut self, id: &RequestId) {
        *self.waiter_counts.entry(id.clone()).or_default() += 1;
    }

    /// Removes a waiter with an id.
    pub fn remove_waiter(&mut self, id: &RequestId) {
        let Some(waiting) = self.waiter_counts.get_mut(id) else {
            return;
        };
        *waiting -= 1;
        if *waiting == 0 {
            self.waiter_counts.remove(id);
            if self.pinned_done.remove(id) {
                self.done.put(id.clone(), ());
            }
        }
    }

    /// Returns whether no call may start, as its answer might exceed the limit of unsent answers.
    pub fn is_full(&self) -> bool {
        self.in_flight.len() + self.unsent.len() >= self.max_unsent
    }

    /// Records the start of a new call.
    pub fn start_call(&mut self, id: &RequestId) {
        self.in_flight.insert(id.clone());
    }

    /// Moves an unsent answer to the calls in flight, and returns the answer.
    pub fn start_resend(&mut self, id: &RequestId) -> Option<CallAnswer> {
        let unsent = self.unsent.pop(id)?;
        self.in_flight.insert(id.clone());
        Some(unsent)
    }

    /// Returns the ids of unsent answers, the oldest attempt first.
    pub fn unsent(&self) -> Vec<RequestId> {
        self.unsent.iter().rev().map(|(id, _)| id.clone()).collect()
    }

    pub fn oldest_unsent(&self) -> Option<RequestId> {
        self.unsent.peek_lru().map(|(id, _)| id.clone())
    }

    /// Records the end of a call in flight: done, or with an unsent answer.
    pub fn finish_call(&mut self, id: RequestId, unsent: Option<CallAnswer>) {
        self.in_flight.remove(&id);
        match unsent {
            Some(unsent) => drop(self.unsent.put(id, unsent)),
            None if self.waiter_counts.contains_key(&id) => drop(self.pinned_done.insert(id)),
            None => drop(self.done.put(id, ())),
        }
    }

    /// Returns how many ids are remembered.
    pub fn len(&self) -> usize {
        self.in_flight.len() + self.unsent.len() + self.pinned_done.len() + self.done.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{AnswerOrigin, CallAnswer, CallStatus, CallTracker, DeliveryMode};
    use crate::ToolResult;
    use crate::dispatch::{DispatchError, RequestId};
    use std::num::NonZeroUsize;
    use std::time::Duration;

    impl CallTracker {
        /// Returns whether an id is remembered. Does not count as a use of the id.
        pub(in crate::dispatch) fn contains(&self, id: &RequestId) -> bool {
            self.in_flight.contains(id)
                || self.unsent.contains(id)
                || self.pinned_done.contains(id)
                || self.done.contains(id)
        }
    }

    fn id(n: usize) -> RequestId {
        n.to_string().as_str().try_into().expect("short")
    }

    fn unsent() -> CallAnswer {
        let result = ToolResult {
            success: true,
            external_context: true,
            json: "{}".to_owned(),
            images: Vec::new(),
        };
        CallAnswer {
            tool: "t".to_owned(),
            origin: AnswerOrigin::Resent,
            result,
            duration: Duration::ZERO,
        }
    }

    #[test]
    fn the_least_recently_used_done_id_is_forgotten_first() {
        let mut tracker = CallTracker::new(NonZeroUsize::new(3).expect("three"), 9);
        tracker.start_call(&id(100));
        tracker.start_call(&id(101));
        tracker.finish_call(id(101), Some(unsent()));
        for n in 0..50 {
            tracker.start_call(&id(n));
            tracker.finish_call(id(n), None);
            assert_eq!(tracker.look_up(&id(n)), CallStatus::Done, "the latest");
            assert_eq!(
                tracker.look_up(&id(0)),
                CallStatus::Done,
                "each look-up marks the id as used"
            );
            assert!(tracker.len() <= 5);
        }
        assert_eq!(tracker.look_up(&id(47)), CallStatus::New);
        assert_eq!(tracker.look_up(&id(100)), CallStatus::InFlight);
        assert_eq!(tracker.look_up(&id(101)), CallStatus::Unsent);
    }

    #[test]
    fn an_id_with_a_waiter_is_not_forgotten() {
        let mut tracker = CallTracker::new(NonZeroUsize::MIN, 9);
        tracker.add_waiter(&id(0));
        tracker.add_waiter(&id(0));
        for n in 0..3 {
            tracker.start_call(&id(n));
            tracker.finish_call(id(n), None);
            assert_eq!(tracker.look_up(&id(0)), CallStatus::Done);
        }
        tracker.remove_waiter(&id(0));
        assert_eq!(
            (tracker.look_up(&id(0)), tracker.len()),
            (CallStatus::Done, 2)
        );
        tracker.remove_waiter(&id(0));
        assert_eq!(
            (tracker.look_up(&id(0)), tracker.len()),
            (CallStatus::Done, 1),
            "the id is now the latest"
        );
        tracker.finish_call(id(5), None);
        assert_eq!(tracker.look_up(&id(0)), CallStatus::New);
        assert!(tracker.waiter_counts.is_empty() && tracker.pinned_done.is_empty());
    }

    #[test]
    fn unsent_answers_are_sorted_by_their_last_attempt() {
        let mut tracker = CallTracker::new(NonZeroUsize::MIN, 2);
        for n in 0..2 {
            assert!(!tracker.is_full());
            tracker.start_call(&id(n));
            tracker.finish_call(id(n), Some(unsent()));
        }
        assert!(tracker.is_full());
        assert_eq!(tracker.start_resend(&id(0)), Some(unsent()));
        assert_eq!(tracker.start_resend(&id(0)), None, "the call is in flight");
        tracker.finish_call(id(0), Some(unsent()));
        assert_eq!(tracker.unsent(), [id(1), id(0)]);
        assert_eq!(tracker.oldest_unsent(), Some(id(1)));
    }

    #[test]
    fn the_mode_is_fixed_until_a_reset() {
        let mut tracker = CallTracker::new(NonZeroUsize::MIN, 1);
        assert_eq!(tracker.check_mode(DeliveryMode::Polled), Ok(()));
        assert_eq!(
            (tracker.mode, tracker.set_mode(DeliveryMode::Pushed)),
            (None, Ok(()))
        );
        assert_eq!(
            tracker.set_mode(DeliveryMode::Polled),
            Err(DispatchError::Mode(DeliveryMode::Pushed))
        );
        tracker.mode = None;
        assert_eq!(tracker.set_mode(DeliveryMode::Polled), Ok(()));
    }
}
