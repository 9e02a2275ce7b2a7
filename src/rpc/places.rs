//! Bounds that callers share: so many in all, and so many of one caller, so that nobody takes all of
//! them. Leaves what is counted, and what is done beyond, to whoever asks for places.

use crate::domain::Account;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A bound by the name under which it is told.
pub type Bound = (&'static str, usize);

/// Places of one kind. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct Places(Arc<Shared>);

/// Places that one caller has taken. Dropped, it gives them back.
#[derive(Debug)]
pub struct Place {
    places: Places,
    caller: Account,
    amount: usize,
}

/// No place is left: the bound that was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full {
    /// Its name.
    pub name: &'static str,
    /// How many there are.
    pub limit: usize,
}

#[derive(Debug)]
struct Shared {
    in_all: Bound,
    per_caller: Bound,
    taken: Mutex<Taken>,
}

/// A caller is in the map only while it has a place, so that the map is no larger than the bound.
#[derive(Debug, Default)]
struct Taken {
    in_all: usize,
    by_caller: HashMap<Account, usize>,
}

impl Places {
    /// None is taken yet.
    #[must_use]
    pub fn new(in_all: Bound, per_caller: Bound) -> Self {
        Self(Arc::new(Shared { in_all, per_caller, taken: Mutex::default() }))
    }

    /// Takes so many places, or none.
    pub fn take(&self, caller: &Account, amount: usize) -> Result<Place, Full> {
        let mut place = Place { places: self.clone(), caller: caller.clone(), amount: 0 };
        place.grow(amount)?;
        Ok(place)
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Takes so many more, or none.
    pub fn grow(&mut self, amount: usize) -> Result<(), Full> {
        let Shared { in_all, per_caller, .. } = *self.places.0;
        let mut taken = self.places.taken();
        let own = taken.by_caller.get(&self.caller).copied().unwrap_or(0);
        // What one caller may have is looked at first: it is the nearer cause.
        for (bound, now) in [(per_caller, own), (in_all, taken.in_all)] {
            if now.checked_add(amount).is_none_or(|after| after > bound.1) {
                return Err(Full { name: bound.0, limit: bound.1 });
            }
        }
        taken.in_all += amount;
        *taken.by_caller.entry(self.caller.clone()).or_default() += amount;
        self.amount += amount;
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        taken.in_all -= self.amount;
        if let Some(own) = taken.by_caller.get_mut(&self.caller) {
            *own -= self.amount;
            if *own == 0 {
                taken.by_caller.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Full, Places};
    use crate::domain::Account;

    #[test]
    fn nobody_takes_all_and_all_comes_back() {
        let places = Places::new(("all", 5), ("each", 3));
        let [a, b] = [1, 2].map(Account::User);
        let mut held = places.take(&a, 2).expect("room");
        held.grow(1).expect("room");
        assert_eq!(held.grow(1), Err(Full { name: "each", limit: 3 }));
        let other = places.take(&b, 2).expect("room for another");
        assert_eq!(places.take(&b, 1).err(), Some(Full { name: "all", limit: 5 }));
        assert_eq!(places.take(&b, usize::MAX).err(), Some(Full { name: "each", limit: 3 }));
        drop(held);
        assert!(places.take(&a, 3).is_ok());
        drop(other);
        let taken = places.taken();
        assert_eq!((taken.in_all, taken.by_caller.len()), (0, 0));
    }
}
