//! Cache of encoded messages that callers share: pages of `ListSkills`, and events of streams. A
//! message is encoded once, and it is in memory once until all callers have received it.

use crate::daemon::catalog::{CatalogView, RootState};
use caproot_core::sync::{Mutex, WeightedLru};
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::sleep;

/// Limits of cached pages: the size of a maximal catalog with the default limits.
pub const PAGE_CACHE_LIMITS: CacheLimits = CacheLimits {
    max_bytes: 16 << 20,
    max_messages: 64,
    needs_second_insertion: true,
    keeps_older_revisions: false,
};
/// Limits of recent events, for streams that are a little late.
pub const EVENT_CACHE_LIMITS: CacheLimits = CacheLimits {
    max_bytes: 256 << 10,
    max_messages: usize::MAX,
    needs_second_insertion: false,
    keeps_older_revisions: true,
};
/// Idle time after which recent messages are dropped. The check runs at this interval, so messages
/// live at most twice as long.
const IDLE_EXPIRY: Duration = Duration::from_secs(30);
/// Minimum number of keys before the keys of dropped messages are removed.
const MIN_SWEEP_LEN: usize = 64;

/// Cache of encoded messages. All clones share the same messages.
#[derive(Debug)]
pub struct MessageCache<T>(Arc<Mutex<CachedMessages<T>>>);

/// Limits of the recent messages of a cache.
#[derive(Debug, Clone, Copy)]
pub struct CacheLimits {
    max_bytes: usize,
    max_messages: usize,
    /// Whether a message is recent from its second insertion only, so that a message that is
    /// requested once costs no memory.
    needs_second_insertion: bool,
    /// Whether recent messages stay when a message of a newer revision is added.
    keeps_older_revisions: bool,
}

/// Key of a message. Messages with equal keys are byte-identical.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageKey {
    query_digest: [u8; 32],
    from_revision: Option<u64>,
    to_revision: u64,
    /// Other parameters of the message.
    parameters: [usize; 2],
    /// Start of a page, or number of an event.
    position: (usize, usize),
}

#[derive(Debug)]
struct CachedMessages<T> {
    limits: CacheLimits,
    /// Messages that stay cached after all callers have received them.
    recent: WeightedLru<MessageKey, Arc<T>>,
    /// All messages in memory, and some that were dropped.
    by_key: HashMap<MessageKey, Weak<T>>,
    /// Number of messages in memory at the last sweep.
    live_count: usize,
    /// Newest revision of the messages, if the messages of older revisions are dropped.
    revision: u64,
    /// Whether the cache was used since the last check.
    used_since_check: bool,
    /// Whether the expiry task is running.
    has_expiry_task: bool,
}

impl MessageKey {
    /// Creates the key of a message about a view, or about the difference of two views. Returns
    /// `None` if the state of a root is unknown, because it can change without a new revision.
    pub fn new(
        query: &[u8],
        from: Option<&CatalogView>,
        to: &CatalogView,
        parameters: [usize; 2],
    ) -> Option<Self> {
        let mut roots = from.into_iter().chain([to]).flat_map(|view| &view.roots);
        if !roots.all(|root| matches!(root.state, RootState::Snapshot(_))) {
            return None;
        }

        // A full SHA-256 digest: if an attacker could find another query with the same digest, the
        // attacker would receive its messages.
        let query_digest = Sha256::digest(query).into();
        Some(Self {
            query_digest,
            from_revision: from.map(|view| view.revision),
            to_revision: to.revision,
            parameters,
            position: (0, 0),
        })
    }

    /// Returns the key of the message at another position.
    pub fn at_position(self, position: (usize, usize)) -> Self {
        Self { position, ..self }
    }
}

impl<T: AsRef<[u8]> + Send + Sync + 'static> MessageCache<T> {
    /// Creates an empty cache.
    pub fn new(limits: CacheLimits) -> Self {
        Self(Arc::new(Mutex::new(CachedMessages {
            recent: WeightedLru::new(limits.max_bytes, limits.max_messages),
            limits,
            by_key: HashMap::new(),
            live_count: 0,
            revision: 0,
            used_since_check: false,
            has_expiry_task: false,
        })))
    }

    /// Returns a cached message.
    pub fn get(&self, key: &MessageKey) -> Option<Arc<T>> {
        let mut messages = self.0.lock();
        messages.used_since_check = true;
        messages.get(key)
    }

    /// Adds a message. If another caller added the message first, returns the existing message.
    pub fn insert(&self, key: MessageKey, message: T) -> Arc<T> {
        let mut messages = self.0.lock();
        if !std::mem::replace(&mut messages.has_expiry_task, true) {
            // The task ends when the cache is idle.
            tokio::spawn(clear_when_idle(self.0.clone()));
        }

        if messages.revision < key.to_revision && !messages.limits.keeps_older_revisions {
            messages.revision = key.to_revision;
            messages.clear_recent();
        }

        if let Some(message) = messages.get(&key) {
            return message;
        }

        let message = Arc::new(message);
        let is_first = messages
            .by_key
            .insert(key, Arc::downgrade(&message))
            .is_none();
        if !(is_first && messages.limits.needs_second_insertion) {
            let bytes = T::as_ref(&message).len();
            messages.recent.put(key, message.clone(), bytes);
        }

        if messages.by_key.len() > MIN_SWEEP_LEN.max(2 * messages.live_count) {
            messages.sweep();
        }
        message
    }
}

impl<T: AsRef<[u8]>> CachedMessages<T> {
    fn get(&mut self, key: &MessageKey) -> Option<Arc<T>> {
        self.recent
            .get(key)
            .cloned()
            .or_else(|| self.by_key.get(key)?.upgrade())
    }

    fn clear_recent(&mut self) {
        self.recent.clear();
        self.sweep();
        self.by_key.shrink_to_fit();
    }

    /// Removes the keys of dropped messages.
    fn sweep(&mut self) {
        self.by_key.retain(|_, message| message.strong_count() > 0);
        self.live_count = self.by_key.len();
    }
}

impl<T> Clone for MessageCache<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Drops the recent messages as soon as the cache was idle for [`IDLE_EXPIRY`].
async fn clear_when_idle<T: AsRef<[u8]>>(messages: Arc<Mutex<CachedMessages<T>>>) {
    loop {
        sleep(IDLE_EXPIRY).await;
        let mut locked = messages.lock();
        if !std::mem::take(&mut locked.used_since_check) {
            locked.clear_recent();
            locked.has_expiry_task = false;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        EVENT_CACHE_LIMITS, IDLE_EXPIRY, MIN_SWEEP_LEN, MessageCache, MessageKey, PAGE_CACHE_LIMITS,
    };
    use crate::daemon::grpc::encoded_body::EncodedEvent;
    use bytes::Bytes;
    use caproot_core::proto::caproot::v1 as pb;
    use pb::watch_skills_response::Event;
    use prost::Message as _;
    use std::sync::Arc;
    use tokio::time::sleep;

    fn key(to_revision: u64, number: usize) -> MessageKey {
        MessageKey {
            query_digest: [1; 32],
            from_revision: Some(1),
            to_revision,
            parameters: [10, 0],
            position: (0, number),
        }
    }

    /// Returns keys that differ from `key` in one part.
    fn other_keys(key: MessageKey) -> [MessageKey; 7] {
        [
            MessageKey {
                query_digest: [2; 32],
                ..key
            },
            MessageKey {
                from_revision: Some(0),
                ..key
            },
            MessageKey {
                from_revision: None,
                ..key
            },
            MessageKey {
                to_revision: key.to_revision + 1,
                ..key
            },
            MessageKey {
                parameters: [11, 0],
                ..key
            },
            MessageKey {
                parameters: [10, 1],
                ..key
            },
            key.at_position((0, key.position.1 + 1)),
        ]
    }

    fn synced_event(token: &str) -> EncodedEvent {
        let synced = Event::Synced(pb::Synced {
            resume_token: token.to_owned(),
        });
        EncodedEvent::new(1, 1, synced).expect("message below the size limit")
    }

    #[tokio::test]
    async fn event_is_shared_by_equal_transitions() {
        let cache = MessageCache::new(EVENT_CACHE_LIMITS);
        assert!(cache.get(&key(2, 0)).is_none());
        let first = cache.insert(key(2, 0), synced_event("a"));
        let second = cache.insert(key(2, 0), synced_event("from another stream"));
        assert!(Arc::ptr_eq(&first, &second));
        assert!(
            cache
                .get(&key(2, 0))
                .is_some_and(|event| Arc::ptr_eq(&event, &first))
        );
        for other in other_keys(key(2, 0)) {
            assert!(cache.get(&other).is_none(), "{other:?}");
        }
        let event =
            pb::WatchSkillsResponse::decode(&first.into_bytes()[5..]).expect("valid message");
        assert!(matches!(event.event, Some(Event::Synced(synced)) if synced.resume_token == "a"));
    }

    #[tokio::test]
    async fn unused_events_are_dropped() {
        let cache = MessageCache::new(EVENT_CACHE_LIMITS);
        let long = "x".repeat(EVENT_CACHE_LIMITS.max_bytes / 4);
        let unsent = cache
            .insert(key(0, 0), synced_event(&long))
            .into_bytes()
            .slice(7..9);
        for to in 1..1_000 {
            cache.insert(key(to, 0), synced_event(&long));
        }
        let is_cached = |to| cache.get(&key(to, 0)).is_some();
        assert!(is_cached(0), "part of the event is not sent yet");
        assert_eq!(
            [995, 996, 997, 998, 999].map(is_cached),
            [false, false, true, true, true]
        );
        drop(unsent);
        assert!(!is_cached(0));
        let events = cache.0.lock();
        assert!(events.by_key.len() <= 2 * MIN_SWEEP_LEN);
        assert!(events.recent.weight() <= EVENT_CACHE_LIMITS.max_bytes);
    }

    #[tokio::test]
    async fn page_is_cached_on_second_request() {
        let cache = MessageCache::new(PAGE_CACHE_LIMITS);
        let page = Bytes::from_static(b"page");
        cache.insert(key(1, 0), page.clone());
        assert_eq!(cache.get(&key(1, 0)), None);
        cache.insert(key(1, 0), page.clone());
        assert_eq!(cache.get(&key(1, 0)).as_deref(), Some(&page));
        for other in other_keys(key(1, 0)) {
            assert_eq!(cache.get(&other), None, "{other:?} is another page");
        }
        cache.insert(key(2, 0), page.clone());
        assert_eq!(cache.get(&key(1, 0)), None, "older revisions are gone");
    }

    #[tokio::test(start_paused = true)]
    async fn idle_pages_are_dropped() {
        let cache = MessageCache::new(PAGE_CACHE_LIMITS);
        let page = Bytes::from_static(b"page");
        for _ in 0..2 {
            cache.insert(key(1, 0), page.clone());
            cache.insert(key(1, 0), page.clone());
            for _ in 0..5 {
                sleep(IDLE_EXPIRY / 2).await;
                assert_eq!(cache.get(&key(1, 0)).as_deref(), Some(&page));
            }
            sleep(IDLE_EXPIRY * 2).await;
            assert_eq!(cache.0.lock().by_key.len(), 0);
        }
    }

    #[tokio::test]
    async fn cache_size_is_limited() {
        let cache = MessageCache::new(PAGE_CACHE_LIMITS);
        let insert_twice = |number, page: &Bytes| {
            cache.insert(key(1, number), page.clone());
            cache.insert(key(1, number), page.clone());
        };
        let page = Bytes::from(vec![0; PAGE_CACHE_LIMITS.max_bytes / 4]);
        for number in 0..6 {
            insert_twice(number, &page);
        }
        let is_cached = |number| cache.get(&key(1, number)).is_some();
        assert_eq!(
            [0, 1, 2, 3, 4, 5].map(is_cached),
            [false, false, true, true, true, true]
        );
        for number in 0..2 * PAGE_CACHE_LIMITS.max_messages {
            insert_twice(100 + number, &Bytes::from_static(b"page"));
        }
        let pages = cache.0.lock();
        assert_eq!((pages.recent.len(), pages.recent.weight()), (64, 4 * 64));
        assert!(pages.by_key.len() <= 2 * MIN_SWEEP_LEN);
    }
}
