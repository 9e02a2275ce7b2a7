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
    pub(super) reach: Reach,
    /// What may be opened.
    pub(super) allowed: Allowed,
    /// What is offered, in scope order, then by id.
    pub(super) published: Vec<Published>,
}

/// All bounds that were asked for.
#[derive(Debug)]
pub(super) struct Bounds {
    pub(super) opener: Opener,
    allowed: Vec<PathBuf>,
    published: Arc<[Published]>,
    made: Mutex<HashMap<Reach, Arc<Bound>>>,
}

impl Bounds {
    pub(super) fn new(opener: Opener, allowed: Vec<PathBuf>, published: Arc<[Published]>) -> Self {
        Self { opener, allowed, published, made: Mutex::default() }
    }

    /// The bound of a reach, always the same.
    pub(super) fn of(&self, reach: &Reach) -> Arc<Bound> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let number = made.len();
        let bound = made.entry(reach.clone()).or_insert_with(|| {
            let given = self.allowed.clone();
            let allowed = match reach {
                Reach::All => Allowed::with(self.opener, given),
                Reach::In(dirs) => {
                    let dirs = dirs.iter().map(|dir| PathBuf::from(OsStr::from_bytes(dir)));
                    Allowed::bounded(self.opener, given, dirs.collect())
                }
            };
            let offered = self.published.iter().filter(|root| reach.offers(&root.path));
            let published = offered.cloned().collect();
            Arc::new(Bound { number, reach: reach.clone(), allowed, published })
        });
        bound.clone()
    }
}
