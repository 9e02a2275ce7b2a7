//! Bounds that callers share: so many in all, and so many of one caller, so that nobody takes all of
//! them. Leaves what is counted, and what is done beyond, to whoever asks for places.

use crate::domain::{Account, Limits};
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
    /// Those under which the bounds are told.
    names: [&'static str; 2],
    taken: Mutex<Taken>,
}

/// A caller is in the map only while it has a place, so that the map is no larger than the bound.
#[derive(Debug, Default)]
struct Taken {
    /// How many there are in all, and how many of one caller.
    most: [usize; 2],
    in_all: usize,
    by_caller: HashMap<Account, usize>,
}

impl Places {
    /// None is taken yet.
    #[must_use]
    pub fn new(in_all: Bound, per_caller: Bound) -> Self {
        let taken = Taken { most: [in_all.1, per_caller.1], ..Taken::default() };
        Self(Arc::new(Shared { names: [in_all.0, per_caller.0], taken: Mutex::new(taken) }))
    }

    /// Of streams that are open.
    #[must_use]
    pub fn of_streams(limits: &Limits) -> Self {
        Self::new(
            ("max_streams", limits.max_streams),
            ("max_streams_per_caller", limits.max_streams_per_caller),
        )
    }

    /// There are so many from now on, in all and of one caller. Those beyond that are taken stay taken.
    pub fn resize(&self, in_all: usize, per_caller: usize) {
        self.taken().most = [in_all, per_caller];
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
        let [in_all, per_caller] = self.places.0.names;
        let mut taken = self.places.taken();
        let own = taken.by_caller.get(&self.caller).copied().unwrap_or(0);
        // What one caller may have is looked at first: it is the nearer cause.
        let [most_in_all, most_per_caller] = taken.most;
        let bounds = [(per_caller, most_per_caller, own), (in_all, most_in_all, taken.in_all)];
        for (name, limit, now) in bounds {
            if now.checked_add(amount).is_none_or(|after| after > limit) {
                return Err(Full { name, limit });
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
        places.resize(2, 1);
        assert_eq!(places.take(&a, 1).err(), Some(Full { name: "all", limit: 2 }));
        drop(other);
        assert_eq!(places.take(&a, 2).err(), Some(Full { name: "each", limit: 1 }));
        let taken = places.taken();
        assert_eq!((taken.in_all, taken.by_caller.len()), (0, 0));
    }
}
