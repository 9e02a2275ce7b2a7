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
pub struct EventCache(Arc<Mutex<CachedEvents>>);

/// Key of the events between two views. Streams with equal keys send the same events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransitionKey {
    query_digest: [u8; 32],
    from_revision: Option<u64>,
    to_revision: u64,
    reset: Option<i32>,
    /// Whether `synced` is sent even if nothing changed.
    is_first: bool,
}

/// Encoded event.
#[derive(Debug)]
pub struct EncodedEvent {
    /// Message with its prefix.
    bytes: Bytes,
    /// Root in the event that the caller may not use.
    pub denied_root: Option<String>,
    /// Whether the event ends a state.
    pub is_synced: bool,
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
    pub fn new(
        query: &[u8],
        from_revision: Option<u64>,
        to_revision: u64,
        reset: Option<pb::ResetReason>,
        is_first: bool,
    ) -> Self {
        // A full SHA-256 digest: if an attacker could find another query with the same digest, the
        // attacker would receive its events.
        let query_digest = Sha256::digest(query).into();
        let reset = reset.map(Into::into);
        Self { query_digest, from_revision, to_revision, reset, is_first }
    }
}

impl EncodedEvent {
    pub fn new(event: &pb::WatchSkillsResponse) -> Result<Self, Status> {
        let denied_root = match &event.event {
            Some(Event::RootStatus(root)) if root.reason() == pb::RootReason::NotAllowed => {
                Some(root.id.clone())
            }
            _ => None,
        };
        let is_synced = matches!(event.event, Some(Event::Synced(_)));
        Ok(Self { bytes: encode_message(event)?, denied_root, is_synced })
    }

    /// Returns the message with its prefix.
    pub fn into_bytes(self: Arc<Self>) -> Bytes {
        Bytes::from_owner(SharedBytes(self))
    }
}

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl EventCache {
    /// Returns event `number` of a transition, if it is cached.
    pub fn get(&self, transition: &TransitionKey, number: usize) -> Option<Arc<EncodedEvent>> {
        self.lock().by_key.get(&(*transition, number))?.upgrade()
    }

    /// Adds an event. If another stream added the event first, returns the existing event.
    pub fn insert(
        &self,
        transition: &TransitionKey,
        number: usize,
        event: EncodedEvent,
    ) -> Arc<EncodedEvent> {
        let mut events = self.lock();
        let key = (*transition, number);
        if let Some(event) = events.by_key.get(&key).and_then(Weak::upgrade) {
            return event;
        }
        let event = Arc::new(event);
        events.by_key.insert(key, Arc::downgrade(&event));
        events.bytes += event.bytes.len();
        events.recent.push_back(event.clone());
        while events.bytes > MAX_RECENT_BYTES {
            let Some(oldest) = events.recent.pop_front() else { break };
            events.bytes -= oldest.bytes.len();
        }
        if events.by_key.len() > MIN_SWEEP_LEN.max(2 * events.live_count) {
            events.by_key.retain(|_, event| event.strong_count() > 0);
            events.live_count = events.by_key.len();
        }
        event
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
        EncodedEvent::new(&event).expect("message below the size limit")
    }

    fn transition_key(to: u64) -> TransitionKey {
        TransitionKey::new(b"query", Some(1), to, None, false)
    }

    #[test]
    fn event_is_shared_by_equal_transitions() {
        let cache = EventCache::default();
        assert!(cache.get(&transition_key(2), 0).is_none());
        let first = cache.insert(&transition_key(2), 0, synced_event("a"));
        let second = cache.insert(&transition_key(2), 0, synced_event("from another stream"));
        assert!(Arc::ptr_eq(&first, &second));
        assert!(cache.get(&transition_key(2), 0).is_some_and(|event| Arc::ptr_eq(&event, &first)));
        let reset = Some(pb::ResetReason::Initial);
        let others = [
            transition_key(3),
            TransitionKey::new(b"query", Some(0), 2, None, false),
            TransitionKey::new(b"query", None, 2, None, false),
            TransitionKey::new(b"query", Some(1), 2, reset, false),
            TransitionKey::new(b"query", Some(1), 2, None, true),
            TransitionKey::new(b"another", Some(1), 2, None, false),
        ];
        for other in others {
            assert!(cache.get(&other, 0).is_none(), "{other:?}");
        }
        assert!(cache.get(&transition_key(2), 1).is_none());
        let event =
            pb::WatchSkillsResponse::decode(&first.into_bytes()[5..]).expect("valid message");
        assert!(matches!(event.event, Some(Event::Synced(synced)) if synced.resume_token == "a"));
    }

    #[test]
    fn unused_events_are_dropped() {
        let cache = EventCache::default();
        let long = "x".repeat(MAX_RECENT_BYTES / 4);
        let unsent =
            cache.insert(&transition_key(0), 0, synced_event(&long)).into_bytes().slice(7..9);
        for to in 1..1_000 {
            cache.insert(&transition_key(to), 0, synced_event(&long));
        }
        let is_cached = |to| cache.get(&transition_key(to), 0).is_some();
        assert!(is_cached(0), "part of the event is not sent yet");
        assert_eq!([995, 996, 997, 998, 999].map(is_cached), [false, false, true, true, true]);
        drop(unsent);
        assert!(!is_cached(0));
        let events = cache.0.lock().expect("lock is not poisoned");
        assert!(events.by_key.len() <= 2 * MIN_SWEEP_LEN && events.bytes <= MAX_RECENT_BYTES);
    }

    #[test]
    fn denied_root_is_recorded() {
        let status = |reason: pb::RootReason| {
            let status =
                pb::RootStatus { id: "r".into(), reason: reason.into(), ..Default::default() };
            let event = Some(Event::RootStatus(status));
            let event = pb::WatchSkillsResponse { event, ..Default::default() };
            EncodedEvent::new(&event).expect("message below the size limit").denied_root
        };
        assert_eq!(status(pb::RootReason::NotAllowed).as_deref(), Some("r"));
        assert_eq!(status(pb::RootReason::NotFound), None);
    }
}
