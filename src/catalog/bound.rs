//! The part of the allowed roots within which somebody's roots are looked at.
//!
//! A root is searched, watched and read once for each bound that somebody has who asks for it, on a
//! ground that ends at the bound: the same code that keeps the daemon to its allowed roots then keeps
//! a caller to its part of them, links, reads and lists of files included, and no answer is filtered
//! afterwards. What that costs is a catalog more for a root that callers of several bounds use, and
//! bounds are as few as the operator's rules.

use crate::disk::{Allowed, Opener};
use crate::domain::{Published, Reach};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// One bound.
#[derive(Debug)]
pub(super) struct Bound {
    /// By which catalogs of one bound are told from those of another.
    pub(super) number: usize,
    /// What may be opened.
    pub(super) allowed: Allowed,
    /// What is offered, in scope order, then by id.
    pub(super) published: Arc<[Published]>,
    /// Their paths, by id.
    pub(super) by_id: HashMap<Box<str>, Arc<[u8]>>,
}

/// All bounds that were asked for, under the same terms.
#[derive(Debug)]
pub(super) struct Bounds {
    opener: Opener,
    allowed: Vec<PathBuf>,
    published: Arc<[Published]>,
    made: Mutex<HashMap<Reach, Arc<Bound>>>,
    /// Under all terms: what a reach has a catalog of stays its own.
    numbers: Arc<Mutex<HashMap<Reach, usize>>>,
}

impl Bounds {
    pub(super) fn new(opener: Opener, allowed: Vec<PathBuf>, published: Arc<[Published]>) -> Self {
        Self { opener, allowed, published, made: Mutex::default(), numbers: Arc::default() }
    }

    /// The same reaches, under other terms.
    pub(super) fn renewed(&self, allowed: Vec<PathBuf>, published: Arc<[Published]>) -> Self {
        let numbers = self.numbers.clone();
        Self { opener: self.opener, allowed, published, made: Mutex::default(), numbers }
    }

    /// The bound of a reach, always the same.
    pub(super) fn of(&self, reach: &Reach) -> Arc<Bound> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bound) = made.get(reach) {
            return bound.clone();
        }
        let number = {
            let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
            let next = numbers.len();
            *numbers.entry(reach.clone()).or_insert(next)
        };
        let given = self.allowed.clone();
        let allowed = match reach {
            Reach::All => Allowed::with(self.opener, given),
            Reach::In(dirs) => {
                let dirs = dirs.iter().map(|dir| PathBuf::from(OsStr::from_bytes(dir)));
                Allowed::bounded(self.opener, given, dirs.collect())
            }
        };
        let published = self.published.iter().filter(|root| reach.offers(&root.path));
        let published: Arc<[_]> = published.cloned().collect();
        let by_id = published.iter().map(|root| (root.id.as_str().into(), (&*root.path).into()));
        let by_id = by_id.collect();
        let bound = Arc::new(Bound { number, allowed, published, by_id });
        made.insert(reach.clone(), bound.clone());
        bound
    }
}
