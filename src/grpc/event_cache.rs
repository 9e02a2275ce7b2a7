//! Cache of encoded events, shared by all streams that send the same change at about the same time.
//! An event is encoded once, and its bytes are in memory once until all streams have sent them.

use super::encoded_body::encode_message;
use crate::proto::caproot::v1 as pb;
use bytes::Bytes;
use pb::watch_skills_response::Event;
use sha2::{Digest as _, Sha256};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tonic::Status;

/// Limit of recent events that stay cached for streams that are a little late.
const MAX_RECENT_BYTES: usize = 256 << 10;
/// Minimum number of entries before unused entries are removed.
const MIN_SWEEP_LEN: usize = 64;

/// Cache of encoded events. All clones share the same entries.
#[derive(Debug, Clone, Default)]
pub(super) struct EventCache(Arc<Mutex<CachedEvents>>);

/// Key of the events between two views. Streams with equal keys send the same events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct TransitionKey {
    query_digest: [u8; 32],
    from_revision: Option<u64>,
    to_revision: u64,
    reset: Option<i32>,
    /// Whether `synced` is sent even if nothing changed.
    is_first: bool,
}

/// Encoded event.
#[derive(Debug)]
pub(super) struct EncodedEvent {
    /// Message with its prefix.
    into_bytes: Bytes,
    /// Root in the event that the caller may not use.
    pub(super) denied_root: Option<String>,
    /// Whether the event ends a state.
    pub(super) is_synced: bool,
}

/// Owner of the bytes. An event is cached as long as a part of its bytes is not sent.
struct SharedBytes(Arc<EncodedEvent>);

#[derive(Debug, Default)]
struct CachedEvents {
    by_key: HashMap<(TransitionKey, usize), Weak<EncodedEvent>>,
    /// Recent events, oldest first.
    recent: VecDeque<Arc<EncodedEvent>>,
    bytes: usize,
    /// Number of entries in use at the last sweep.
    live_count: usize,
}

impl TransitionKey {
    /// Creates a key from the bytes of a query and the revisions of two views. Every root of both
    /// views must be known.
    pub(super) fn new(
        question: &[u8],
        from: Option<u64>,
        to: u64,
        reset: Option<pb::ResetReason>,
        is_first: bool,
    ) -> Self {
        // A full SHA-256 digest: if an attacker could find another query with the same digest, the
        // attacker would receive its events.
        let question = Sha256::digest(question).into();
        Self {
            query_digest: question,
            from_revision: from,
            to_revision: to,
            reset: reset.map(Into::into),
            is_first,
        }
    }
}

impl EncodedEvent {
    pub(super) fn new(event: &pb::WatchSkillsResponse) -> Result<Self, Status> {
        let refused = match &event.event {
            Some(Event::RootStatus(root)) if root.reason() == pb::RootReason::NotAllowed => {
                Some(root.id.clone())
            }
            _ => None,
        };
        let is_last = matches!(event.event, Some(Event::Synced(_)));
        Ok(Self { into_bytes: encode_message(event)?, denied_root: refused, is_synced: is_last })
    }

    /// Returns the message with its prefix.
    pub(super) fn into_bytes(self: Arc<Self>) -> Bytes {
        Bytes::from_owner(SharedBytes(self))
    }
}

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0.into_bytes
    }
}

impl EventCache {
    /// Returns event `number` of a transition, if it is cached.
    pub(super) fn get(&self, way: &TransitionKey, number: usize) -> Option<Arc<EncodedEvent>> {
        self.lock().by_key.get(&(*way, number))?.upgrade()
    }

    /// Adds an event. If another stream added the event first, returns that one.
    pub(super) fn insert(
        &self,
        way: &TransitionKey,
        number: usize,
        made: EncodedEvent,
    ) -> Arc<EncodedEvent> {
        let mut events = self.lock();
        let key = (*way, number);
        if let Some(made) = events.by_key.get(&key).and_then(Weak::upgrade) {
            return made;
        }
        let made = Arc::new(made);
        events.by_key.insert(key, Arc::downgrade(&made));
        events.bytes += made.into_bytes.len();
        events.recent.push_back(made.clone());
        while events.bytes > MAX_RECENT_BYTES {
            let Some(oldest) = events.recent.pop_front() else { break };
            events.bytes -= oldest.into_bytes.len();
        }
        if events.by_key.len() > MIN_SWEEP_LEN.max(2 * events.live_count) {
            events.by_key.retain(|_, made| made.strong_count() > 0);
            events.live_count = events.by_key.len();
        }
        made
    }

    fn lock(&self) -> MutexGuard<'_, CachedEvents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{EncodedEvent, EventCache, MAX_RECENT_BYTES, MIN_SWEEP_LEN, TransitionKey};
    use crate::proto::caproot::v1 as pb;
    use pb::watch_skills_response::Event;
    use prost::Message as _;
    use std::sync::Arc;

    fn synced_event(token: &str) -> EncodedEvent {
        let synced = Event::Synced(pb::Synced { resume_token: token.to_owned() });
        let event = pb::WatchSkillsResponse { event: Some(synced), ..Default::default() };
        EncodedEvent::new(&event).expect("short enough")
    }

    fn transition_key(to: u64) -> TransitionKey {
        TransitionKey::new(b"question", Some(1), to, None, false)
    }

    #[test]
    fn one_is_made_for_all_who_go_the_same_way() {
        let shared = EventCache::default();
        assert!(shared.get(&transition_key(2), 0).is_none());
        let first = shared.insert(&transition_key(2), 0, synced_event("a"));
        let second = shared.insert(&transition_key(2), 0, synced_event("made meanwhile"));
        assert!(Arc::ptr_eq(&first, &second));
        assert!(shared.get(&transition_key(2), 0).is_some_and(|made| Arc::ptr_eq(&made, &first)));
        let reset = Some(pb::ResetReason::Initial);
        let others = [
            transition_key(3),
            TransitionKey::new(b"question", Some(0), 2, None, false),
            TransitionKey::new(b"question", None, 2, None, false),
            TransitionKey::new(b"question", Some(1), 2, reset, false),
            TransitionKey::new(b"question", Some(1), 2, None, true),
            TransitionKey::new(b"another", Some(1), 2, None, false),
        ];
        for other in others {
            assert!(shared.get(&other, 0).is_none(), "{other:?}");
        }
        assert!(shared.get(&transition_key(2), 1).is_none());
        let event = pb::WatchSkillsResponse::decode(&first.into_bytes()[5..]).expect("a message");
        assert!(matches!(event.event, Some(Event::Synced(synced)) if synced.resume_token == "a"));
    }

    #[test]
    fn what_nobody_holds_is_forgotten() {
        let shared = EventCache::default();
        let long = "x".repeat(MAX_RECENT_BYTES / 4);
        let held =
            shared.insert(&transition_key(0), 0, synced_event(&long)).into_bytes().slice(7..9);
        for to in 1..1_000 {
            shared.insert(&transition_key(to), 0, synced_event(&long));
        }
        let is_there = |to| shared.get(&transition_key(to), 0).is_some();
        assert!(is_there(0), "a piece of it waits to be sent");
        assert_eq!([995, 996, 997, 998, 999].map(is_there), [false, false, true, true, true]);
        drop(held);
        assert!(!is_there(0));
        let events = shared.0.lock().expect("not poisoned");
        assert!(events.by_key.len() <= 2 * MIN_SWEEP_LEN && events.bytes <= MAX_RECENT_BYTES);
    }

    #[test]
    fn roots_that_may_not_be_used_are_told() {
        let status = |reason: pb::RootReason| {
            let status =
                pb::RootStatus { id: "r".into(), reason: reason.into(), ..Default::default() };
            let event = Some(Event::RootStatus(status));
            let event = pb::WatchSkillsResponse { event, ..Default::default() };
            EncodedEvent::new(&event).expect("short enough").denied_root
        };
        assert_eq!(status(pb::RootReason::NotAllowed).as_deref(), Some("r"));
        assert_eq!(status(pb::RootReason::NotFound), None);
    }
}
