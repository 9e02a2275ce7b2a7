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
pub enum Mode {
    /// They are handed in as they come.
    Pushed,
    /// The manager is asked for them.
    Polled,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pushed => "handed in",
            Self::Polled => "polled",
        })
    }
}

/// An answer that the manager did not take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unsent {
    pub(super) tool: String,
    pub(super) result: ToolResult,
}

/// What is known of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// Nothing; it is new, or was forgotten.
    No,
    Underway,
    Unsent,
    Done,
}

/// Each id is in at most one of `underway`, `unsent`, `done` and `held`.
#[derive(Debug)]
pub(super) struct Memory {
    mode: Option<Mode>,
    /// As many as may be worked on at once; never forgotten.
    underway: HashSet<RequestId>,
    /// In the order of their last attempt; never forgotten.
    unsent: LruCache<RequestId, Unsent>,
    most_unsent: usize,
    /// The one that was longest not seen is forgotten first.
    done: LruCache<RequestId, ()>,
    /// How many wait for their turn with each of these ids.
    awaited: HashMap<RequestId, usize>,
    /// Those of them that are done meanwhile; not forgotten while somebody waits with them, who would do
    /// them again.
    held: HashSet<RequestId>,
}

impl Memory {
    /// Remembers so many that are done, and keeps so many unsent answers.
    pub(super) fn new(done: NonZeroUsize, unsent: usize) -> Self {
        Self {
            mode: None,
            underway: HashSet::new(),
            unsent: LruCache::unbounded(),
            most_unsent: unsent,
            done: LruCache::new(done),
            awaited: HashMap::new(),
            held: HashSet::new(),
        }
    }

    /// Whether calls may come so; what they come by where not.
    pub(super) fn allows(&self, mode: Mode) -> Result<(), Mode> {
        self.mode.filter(|fixed| *fixed != mode).map_or(Ok(()), Err)
    }

    /// From now on calls come so.
    pub(super) fn fix(&mut self, mode: Mode) -> Result<(), Mode> {
        self.allows(mode)?;
        self.mode = Some(mode);
        Ok(())
    }

    /// Calls may come either way again.
    pub(super) fn reset(&mut self) {
        self.mode = None;
    }

    pub(super) fn mode(&self) -> Option<Mode> {
        self.mode
    }

    /// What is known of a call, which is seen by this.
    pub(super) fn see(&mut self, id: &RequestId) -> Known {
        if self.underway.contains(id) {
            Known::Underway
        } else if self.unsent.contains(id) {
            Known::Unsent
        } else if self.held.contains(id) || self.done.get(id).is_some() {
            Known::Done
        } else {
            Known::No
        }
    }

    /// Somebody waits for a turn with this id.
    pub(super) fn wait_with(&mut self, id: &RequestId) {
        *self.awaited.entry(id.clone()).or_default() += 1;
    }

    /// One of those who do waits no longer.
    pub(super) fn waits_no_longer(&mut self, id: &RequestId) {
        let Some(waiting) = self.awaited.get_mut(id) else { return };
        *waiting -= 1;
        if *waiting == 0 {
            self.awaited.remove(id);
            if self.held.remove(id) {
                self.done.put(id.clone(), ());
            }
        }
    }

    /// Whether no call may be begun, since its answer might be one too many to keep.
    pub(super) fn is_full(&self) -> bool {
        self.underway.len() + self.unsent.len() >= self.most_unsent
    }

    /// A new call is begun.
    pub(super) fn begin(&mut self, id: &RequestId) {
        self.underway.insert(id.clone());
    }

    /// The answer of this call is sent again.
    pub(super) fn begin_again(&mut self, id: &RequestId) -> Option<Unsent> {
        let unsent = self.unsent.pop(id)?;
        self.underway.insert(id.clone());
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
    pub(super) fn end(&mut self, id: RequestId, unsent: Option<Unsent>) {
        self.underway.remove(&id);
        match unsent {
            Some(unsent) => drop(self.unsent.put(id, unsent)),
            None if self.awaited.contains_key(&id) => drop(self.held.insert(id)),
            None => drop(self.done.put(id, ())),
        }
    }

    /// Whether an id is remembered; does not count as seeing it.
    #[cfg(test)]
    pub(super) fn knows(&self, id: &RequestId) -> bool {
        self.underway.contains(id)
            || self.unsent.contains(id)
            || self.held.contains(id)
            || self.done.contains(id)
    }

    /// How many ids are remembered.
    pub(super) fn len(&self) -> usize {
        self.underway.len() + self.unsent.len() + self.held.len() + self.done.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{Known, Memory, Mode, Unsent};
    use crate::session::ToolResult;
    use crate::session::dispatch::RequestId;
    use std::num::NonZeroUsize;

    fn id(n: usize) -> RequestId {
        n.to_string().as_str().try_into().expect("short")
    }

    fn unsent() -> Unsent {
        let result = ToolResult { success: true, external_context: true, json: "{}".to_owned() };
        Unsent { tool: "t".to_owned(), result }
    }

    #[test]
    fn the_longest_unseen_goes_first_and_none_that_is_needed() {
        let mut memory = Memory::new(NonZeroUsize::new(3).expect("three"), 9);
        memory.begin(&id(100));
        memory.begin(&id(101));
        memory.end(id(101), Some(unsent()));
        for n in 0..50 {
            memory.begin(&id(n));
            memory.end(id(n), None);
            assert_eq!(memory.see(&id(n)), Known::Done, "the latest");
            assert_eq!(memory.see(&id(0)), Known::Done, "it is seen again and again");
            assert!(memory.len() <= 5);
        }
        assert_eq!(memory.see(&id(47)), Known::No);
        assert_eq!(memory.see(&id(100)), Known::Underway);
        assert_eq!(memory.see(&id(101)), Known::Unsent);
    }

    #[test]
    fn what_somebody_waits_with_is_not_forgotten() {
        let mut memory = Memory::new(NonZeroUsize::MIN, 9);
        memory.wait_with(&id(0));
        memory.wait_with(&id(0));
        for n in 0..3 {
            memory.begin(&id(n));
            memory.end(id(n), None);
            assert_eq!(memory.see(&id(0)), Known::Done);
        }
        memory.waits_no_longer(&id(0));
        assert_eq!((memory.see(&id(0)), memory.len()), (Known::Done, 2));
        memory.waits_no_longer(&id(0));
        assert_eq!((memory.see(&id(0)), memory.len()), (Known::Done, 1), "it is the latest now");
        memory.end(id(5), None);
        assert_eq!(memory.see(&id(0)), Known::No);
        assert!(memory.awaited.is_empty() && memory.held.is_empty());
    }

    #[test]
    fn answers_are_kept_in_the_order_of_their_attempts() {
        let mut memory = Memory::new(NonZeroUsize::MIN, 2);
        for n in 0..2 {
            assert!(!memory.is_full());
            memory.begin(&id(n));
            memory.end(id(n), Some(unsent()));
        }
        assert!(memory.is_full());
        assert_eq!(memory.begin_again(&id(0)), Some(unsent()));
        assert_eq!(memory.begin_again(&id(0)), None, "it is under way");
        memory.end(id(0), Some(unsent()));
        assert_eq!(memory.unsent(), [id(1), id(0)]);
        assert_eq!(memory.oldest_unsent(), Some(id(1)));
    }

    #[test]
    fn one_way_until_it_is_reset() {
        let mut memory = Memory::new(NonZeroUsize::MIN, 1);
        assert_eq!(memory.allows(Mode::Polled), Ok(()));
        assert_eq!((memory.mode(), memory.fix(Mode::Pushed)), (None, Ok(())));
        assert_eq!(memory.fix(Mode::Polled), Err(Mode::Pushed));
        memory.reset();
        assert_eq!(memory.fix(Mode::Polled), Ok(()));
    }
}
