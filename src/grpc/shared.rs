//! Events of streams that show the same. Each is made once for all who are sent it at about the same
//! time, and held once however many have not taken it. Leaves what leads where to `changes`, and who is
//! sent it to `stream`.

use super::parts::message;
use crate::proto::caproot::v1 as pb;
use bytes::Bytes;
use pb::watch_skills_response::Event;
use sha2::{Digest as _, Sha256};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tonic::Status;

/// What those that were made last may take, for streams that come a little later.
const MAX_BYTES: usize = 256 << 10;
/// Below so many, those that nobody holds any more are not looked for.
const FEW: usize = 64;

/// Where one that was made is found. Cheap to clone; all clones are one.
#[derive(Debug, Clone, Default)]
pub(super) struct Shared(Arc<Mutex<Events>>);

/// From what to what the events of a stream lead. Of equal ones every event is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Way {
    question: [u8; 32],
    from: Option<u64>,
    to: u64,
    reset: Option<i32>,
    /// Whether `synced` is owed even where nothing changed.
    is_first: bool,
}

/// An event as it is sent.
#[derive(Debug)]
pub(super) struct Made {
    /// With its prefix.
    bytes: Bytes,
    /// The root of which it says that the caller may not use it.
    pub(super) refused: Option<String>,
    /// Whether it closes a state.
    pub(super) is_last: bool,
}

/// Bytes that are there for as long as any of them waits to be sent.
struct Sending(Arc<Made>);

#[derive(Debug, Default)]
struct Events {
    all: HashMap<(Way, usize), Weak<Made>>,
    /// The latest, oldest first.
    last: VecDeque<Arc<Made>>,
    bytes: usize,
    /// How many there were that somebody held, when that was looked for.
    held: usize,
}

impl Way {
    /// By the bytes of the question, and the revisions of two views that answer it, of which every root
    /// is known.
    pub(super) fn new(
        question: &[u8],
        from: Option<u64>,
        to: u64,
        reset: Option<pb::ResetReason>,
        is_first: bool,
    ) -> Self {
        // Whole, and not a part of it: who could find another question of the same hash would be
        // sent what answers that one.
        let question = Sha256::digest(question).into();
        Self { question, from, to, reset: reset.map(Into::into), is_first }
    }
}

impl Made {
    pub(super) fn new(event: &pb::WatchSkillsResponse) -> Result<Self, Status> {
        let refused = match &event.event {
            Some(Event::RootStatus(root)) if root.reason() == pb::RootReason::NotAllowed => {
                Some(root.id.clone())
            }
            _ => None,
        };
        let is_last = matches!(event.event, Some(Event::Synced(_)));
        Ok(Self { bytes: message(event)?, refused, is_last })
    }

    /// What is sent.
    pub(super) fn bytes(self: Arc<Self>) -> Bytes {
        Bytes::from_owner(Sending(self))
    }
}

impl AsRef<[u8]> for Sending {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl Shared {
    /// The event of that number on a way, if it was made and somebody holds it.
    pub(super) fn get(&self, way: &Way, number: usize) -> Option<Arc<Made>> {
        self.lock().all.get(&(*way, number))?.upgrade()
    }

    /// Shares an event; gives the one that another stream made meanwhile, if it did.
    pub(super) fn put(&self, way: &Way, number: usize, made: Made) -> Arc<Made> {
        let mut events = self.lock();
        let key = (*way, number);
        if let Some(made) = events.all.get(&key).and_then(Weak::upgrade) {
            return made;
        }
        let made = Arc::new(made);
        events.all.insert(key, Arc::downgrade(&made));
        events.bytes += made.bytes.len();
        events.last.push_back(made.clone());
        while events.bytes > MAX_BYTES {
            let Some(oldest) = events.last.pop_front() else { break };
            events.bytes -= oldest.bytes.len();
        }
        if events.all.len() > FEW.max(2 * events.held) {
            events.all.retain(|_, made| made.strong_count() > 0);
            events.held = events.all.len();
        }
        made
    }

    fn lock(&self) -> MutexGuard<'_, Events> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{FEW, MAX_BYTES, Made, Shared, Way};
    use crate::proto::caproot::v1 as pb;
    use pb::watch_skills_response::Event;
    use prost::Message as _;
    use std::sync::Arc;

    fn made(token: &str) -> Made {
        let synced = Event::Synced(pb::Synced { resume_token: token.to_owned() });
        let event = pb::WatchSkillsResponse { event: Some(synced), ..Default::default() };
        Made::new(&event).expect("short enough")
    }

    fn way(to: u64) -> Way {
        Way::new(b"question", Some(1), to, None, false)
    }

    #[test]
    fn one_is_made_for_all_who_go_the_same_way() {
        let shared = Shared::default();
        assert!(shared.get(&way(2), 0).is_none());
        let first = shared.put(&way(2), 0, made("a"));
        let second = shared.put(&way(2), 0, made("made meanwhile"));
        assert!(Arc::ptr_eq(&first, &second));
        assert!(shared.get(&way(2), 0).is_some_and(|made| Arc::ptr_eq(&made, &first)));
        let reset = Some(pb::ResetReason::Initial);
        let others = [
            way(3),
            Way::new(b"question", Some(0), 2, None, false),
            Way::new(b"question", None, 2, None, false),
            Way::new(b"question", Some(1), 2, reset, false),
            Way::new(b"question", Some(1), 2, None, true),
            Way::new(b"another", Some(1), 2, None, false),
        ];
        for other in others {
            assert!(shared.get(&other, 0).is_none(), "{other:?}");
        }
        assert!(shared.get(&way(2), 1).is_none());
        let event = pb::WatchSkillsResponse::decode(&first.bytes()[5..]).expect("a message");
        assert!(matches!(event.event, Some(Event::Synced(synced)) if synced.resume_token == "a"));
    }

    #[test]
    fn what_nobody_holds_is_forgotten() {
        let shared = Shared::default();
        let long = "x".repeat(MAX_BYTES / 4);
        let held = shared.put(&way(0), 0, made(&long)).bytes().slice(7..9);
        for to in 1..1_000 {
            shared.put(&way(to), 0, made(&long));
        }
        let is_there = |to| shared.get(&way(to), 0).is_some();
        assert!(is_there(0), "a piece of it waits to be sent");
        assert_eq!([995, 996, 997, 998, 999].map(is_there), [false, false, true, true, true]);
        drop(held);
        assert!(!is_there(0));
        let events = shared.0.lock().expect("not poisoned");
        assert!(events.all.len() <= 2 * FEW && events.bytes <= MAX_BYTES);
    }

    #[test]
    fn roots_that_may_not_be_used_are_told() {
        let status = |reason: pb::RootReason| {
            let status =
                pb::RootStatus { id: "r".into(), reason: reason.into(), ..Default::default() };
            let event = Some(Event::RootStatus(status));
            let event = pb::WatchSkillsResponse { event, ..Default::default() };
            Made::new(&event).expect("short enough").refused
        };
        assert_eq!(status(pb::RootReason::NotAllowed).as_deref(), Some("r"));
        assert_eq!(status(pb::RootReason::NotFound), None);
    }
}
