//! Cache of encoded pages of `ListSkills`, shared by all callers with the same query. A page is
//! cached on its second request, so that a page that is requested once costs no memory. The cache
//! can be as large as all catalogs, so it is dropped when idle.

use crate::catalog::{CatalogView, RootState};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::sleep;

/// Limit of all cached pages: the size of a maximal catalog with the default limits.
const MAX_BYTES: usize = 16 << 20;
/// Limits of remembered pages and of the length of a query.
const MAX_PAGES: usize = 64;
const MAX_QUERY_BYTES: usize = 64 << 10;
/// Idle time after which all pages are dropped. The check runs at this interval, so pages live at
/// most twice as long.
const IDLE_EXPIRY: Duration = Duration::from_secs(30);

/// Cache of encoded pages.
#[derive(Debug, Default)]
pub struct PageCache(Arc<Mutex<CachedPages>>);

/// Key of a page. Pages with equal keys are byte-identical.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageKey {
    revision: u64,
    begin: (usize, usize),
    page_size: usize,
    query: Vec<u8>,
}

#[derive(Debug, Default)]
struct CachedPages {
    /// Entries, most recently used first. A page that was requested once has no bytes yet.
    entries: VecDeque<(PageKey, Option<Bytes>)>,
    bytes: usize,
    /// Whether the cache was used since the last check.
    used_since_check: bool,
    /// Whether the expiry task is running.
    has_expiry_task: bool,
}

impl PageKey {
    /// Returns `None` if the page can change without a new revision, or if the query is too long.
    pub fn new(
        query: &[u8],
        page_size: usize,
        view: &CatalogView,
        begin: (usize, usize),
    ) -> Option<Self> {
        let is_known = view.roots.iter().all(|root| matches!(root.state, RootState::Snapshot(_)));
        let is_cacheable = is_known && query.len() <= MAX_QUERY_BYTES;
        let query = query.to_vec();
        is_cacheable.then_some(Self { revision: view.revision, begin, page_size, query })
    }
}

impl PageCache {
    /// Returns a cached page.
    pub fn get(&self, key: &PageKey) -> Option<Bytes> {
        let mut pages = lock(&self.0);
        pages.used_since_check = true;
        let at = pages.entries.iter().position(|(cached, _)| cached == key)?;
        let page = pages.entries.remove(at)?;
        let bytes = page.1.clone();
        pages.entries.push_front(page);
        bytes
    }

    /// Caches a page on its second request. On the first request, only remembers its key.
    pub fn insert(&self, key: PageKey, page: &Bytes) {
        let mut pages = lock(&self.0);
        if !std::mem::replace(&mut pages.has_expiry_task, true) {
            // The task ends when the cache is idle.
            tokio::spawn(clear_when_idle(self.0.clone()));
        }
        let is_new = pages.entries.iter().all(|(cached, _)| cached.revision < key.revision);
        if is_new {
            // Pages of older revisions are not requested again.
            (pages.entries, pages.bytes) = (VecDeque::new(), 0);
        }
        let previous = pages.entries.iter().position(|(cached, _)| *cached == key);
        let previous = previous.and_then(|at| pages.entries.remove(at));
        pages.bytes -=
            previous.iter().filter_map(|(_, page)| page.as_ref()).map(Bytes::len).sum::<usize>();
        let page = previous.map(|_| page.clone());
        pages.bytes += page.as_ref().map_or(0, Bytes::len);
        pages.entries.push_front((key, page));
        while pages.bytes > MAX_BYTES || pages.entries.len() > MAX_PAGES {
            let last = pages.entries.pop_back().and_then(|(_, page)| page);
            pages.bytes -= last.as_ref().map_or(0, Bytes::len);
        }
    }
}

/// Drops all pages as soon as the cache was idle for [`IDLE_EXPIRY`].
async fn clear_when_idle(pages: Arc<Mutex<CachedPages>>) {
    loop {
        sleep(IDLE_EXPIRY).await;
        let mut pages = lock(&pages);
        if !std::mem::take(&mut pages.used_since_check) {
            *pages = CachedPages::default();
            return;
        }
    }
}

fn lock(pages: &Mutex<CachedPages>) -> MutexGuard<'_, CachedPages> {
    pages.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::{IDLE_EXPIRY, MAX_BYTES, MAX_PAGES, PageCache, PageKey, lock};
    use bytes::Bytes;
    use tokio::time::sleep;

    fn key(revision: u64, number: usize) -> PageKey {
        PageKey { revision, begin: (0, number), page_size: 10, query: vec![1] }
    }

    #[tokio::test]
    async fn page_is_cached_on_second_request() {
        let cache = PageCache::default();
        let page = Bytes::from_static(b"page");
        cache.insert(key(1, 0), &page);
        assert_eq!(cache.get(&key(1, 0)), None);
        cache.insert(key(1, 0), &page);
        assert_eq!(cache.get(&key(1, 0)), Some(page.clone()));
        let others = [
            key(1, 1),
            key(2, 0),
            PageKey { page_size: 11, ..key(1, 0) },
            PageKey { query: vec![2], ..key(1, 0) },
        ];
        for other in others {
            assert_eq!(cache.get(&other), None, "{other:?} is another page");
        }
        cache.insert(key(2, 0), &page);
        assert_eq!(cache.get(&key(1, 0)), None, "older revisions are gone");
    }

    #[tokio::test(start_paused = true)]
    async fn idle_pages_are_dropped() {
        let cache = PageCache::default();
        let page = Bytes::from_static(b"page");
        for _ in 0..2 {
            cache.insert(key(1, 0), &page);
            cache.insert(key(1, 0), &page);
            for _ in 0..5 {
                sleep(IDLE_EXPIRY / 2).await;
                assert_eq!(cache.get(&key(1, 0)), Some(page.clone()));
            }
            sleep(IDLE_EXPIRY * 2).await;
            assert_eq!(lock(&cache.0).entries.len(), 0);
        }
    }

    #[tokio::test]
    async fn cache_size_is_limited() {
        let cache = PageCache::default();
        let page = Bytes::from(vec![0; MAX_BYTES / 4]);
        for number in 0..6 {
            cache.insert(key(1, number), &page);
            cache.insert(key(1, number), &page);
        }
        let is_cached = |number| cache.get(&key(1, number)).is_some();
        assert_eq!([0, 1, 2, 3, 4, 5].map(is_cached), [false, false, true, true, true, true]);
        for number in 0..2 * MAX_PAGES {
            cache.insert(key(1, 100 + number), &page);
        }
        let pages = lock(&cache.0);
        assert_eq!((pages.entries.len(), pages.bytes), (MAX_PAGES, 0));
    }
}
