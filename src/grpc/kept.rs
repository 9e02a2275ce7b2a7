//! Pages of lists as they were sent, for whoever asks for the same again: a list whose roots have not
//! changed is not made anew for each caller. Kept from the second time on, so that what is asked for
//! once costs no memory; and no longer than somebody asks, since they are as large as all that is held
//! of the skills.

use crate::catalog::{RootState, View};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::sleep;

/// What all pages may take: a whole catalog as large as it may be by default.
const MAX_BYTES: usize = 16 << 20;
/// Questions that are remembered, and the longest that is.
const MAX_PAGES: usize = 64;
const MAX_QUESTION_BYTES: usize = 64 << 10;
/// For how long pages are kept of which nobody asks for any; at most twice as long.
const UNASKED: Duration = Duration::from_secs(30);

/// Pages that were sent.
#[derive(Debug, Default)]
pub(super) struct Kept(Arc<Mutex<Pages>>);

/// Which page: of equal ones every byte is the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    revision: u64,
    begin: (usize, usize),
    page_size: usize,
    question: Vec<u8>,
}

#[derive(Debug, Default)]
struct Pages {
    /// Used last first.
    all: VecDeque<(Key, Option<Bytes>)>,
    bytes: usize,
    /// Whether one was asked for since the last look.
    asked: bool,
    /// Whether somebody looks.
    watched: bool,
}

impl Key {
    /// `None` for a page that says something else the next time, though no revision lies between.
    pub(super) fn new(
        question: &[u8],
        page_size: usize,
        view: &View,
        begin: (usize, usize),
    ) -> Option<Self> {
        let is_held = view.roots.iter().all(|root| matches!(root.state, RootState::Held(_)));
        let is_kept = is_held && question.len() <= MAX_QUESTION_BYTES;
        let question = question.to_vec();
        is_kept.then_some(Self { revision: view.revision, begin, page_size, question })
    }
}

impl Kept {
    /// The page, if it is kept.
    pub(super) fn get(&self, key: &Key) -> Option<Bytes> {
        let mut pages = lock(&self.0);
        pages.asked = true;
        let at = pages.all.iter().position(|(kept, _)| kept == key)?;
        let page = pages.all.remove(at)?;
        let bytes = page.1.clone();
        pages.all.push_front(page);
        bytes
    }

    /// Keeps a page that was asked for before; else remembers that it was.
    pub(super) fn put(&self, key: Key, page: &Bytes) {
        let mut pages = lock(&self.0);
        if !std::mem::replace(&mut pages.watched, true) {
            // Ends when nothing is kept any more.
            tokio::spawn(forget_unasked(self.0.clone()));
        }
        let is_new = pages.all.iter().all(|(kept, _)| kept.revision < key.revision);
        if is_new {
            // Nobody begins a list of an older revision any more.
            (pages.all, pages.bytes) = (VecDeque::new(), 0);
        }
        let before = pages.all.iter().position(|(kept, _)| *kept == key);
        let before = before.and_then(|at| pages.all.remove(at));
        pages.bytes -=
            before.iter().filter_map(|(_, page)| page.as_ref()).map(Bytes::len).sum::<usize>();
        let page = before.map(|_| page.clone());
        pages.bytes += page.as_ref().map_or(0, Bytes::len);
        pages.all.push_front((key, page));
        while pages.bytes > MAX_BYTES || pages.all.len() > MAX_PAGES {
            let last = pages.all.pop_back().and_then(|(_, page)| page);
            pages.bytes -= last.as_ref().map_or(0, Bytes::len);
        }
    }
}

/// Forgets all pages once nobody asks.
async fn forget_unasked(pages: Arc<Mutex<Pages>>) {
    loop {
        sleep(UNASKED).await;
        let mut pages = lock(&pages);
        if !std::mem::take(&mut pages.asked) {
            *pages = Pages::default();
            return;
        }
    }
}

fn lock(pages: &Mutex<Pages>) -> MutexGuard<'_, Pages> {
    pages.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::{Kept, Key, MAX_BYTES, MAX_PAGES, UNASKED, lock};
    use bytes::Bytes;
    use tokio::time::sleep;

    fn key(revision: u64, number: usize) -> Key {
        Key { revision, begin: (0, number), page_size: 10, question: vec![1] }
    }

    #[tokio::test]
    async fn keeps_what_is_asked_for_twice() {
        let kept = Kept::default();
        let page = Bytes::from_static(b"page");
        kept.put(key(1, 0), &page);
        assert_eq!(kept.get(&key(1, 0)), None);
        kept.put(key(1, 0), &page);
        assert_eq!(kept.get(&key(1, 0)), Some(page.clone()));
        let others = [
            key(1, 1),
            key(2, 0),
            Key { page_size: 11, ..key(1, 0) },
            Key { question: vec![2], ..key(1, 0) },
        ];
        for other in others {
            assert_eq!(kept.get(&other), None, "{other:?} is another page");
        }
        kept.put(key(2, 0), &page);
        assert_eq!(kept.get(&key(1, 0)), None, "older revisions are gone");
    }

    #[tokio::test(start_paused = true)]
    async fn keeps_nothing_for_which_nobody_asks() {
        let kept = Kept::default();
        let page = Bytes::from_static(b"page");
        for _ in 0..2 {
            kept.put(key(1, 0), &page);
            kept.put(key(1, 0), &page);
            for _ in 0..5 {
                sleep(UNASKED / 2).await;
                assert_eq!(kept.get(&key(1, 0)), Some(page.clone()));
            }
            sleep(UNASKED * 2).await;
            assert_eq!(lock(&kept.0).all.len(), 0);
        }
    }

    #[tokio::test]
    async fn keeps_no_more_than_it_may() {
        let kept = Kept::default();
        let page = Bytes::from(vec![0; MAX_BYTES / 4]);
        for number in 0..6 {
            kept.put(key(1, number), &page);
            kept.put(key(1, number), &page);
        }
        let is_kept = |number| kept.get(&key(1, number)).is_some();
        assert_eq!([0, 1, 2, 3, 4, 5].map(is_kept), [false, false, true, true, true, true]);
        for number in 0..2 * MAX_PAGES {
            kept.put(key(1, 100 + number), &page);
        }
        let pages = lock(&kept.0);
        assert_eq!((pages.all.len(), pages.bytes), (MAX_PAGES, 0));
    }
}
