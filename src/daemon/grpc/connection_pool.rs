//! Pool of connections without an accepted call. A new connection always enters the pool: if the
//! pool is full, an older connection is closed for it.

use crate::daemon::model::QuotaKey;
use caproot_core::sync::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// Pool with a fixed capacity. Clones share their connections.
#[derive(Debug, Clone)]
pub struct ConnectionPool(Arc<PoolInner>);

/// Connection that enters a pool.
#[derive(Debug, Clone)]
pub struct NewConnection {
    /// Grows with each connection.
    pub number: u64,
    pub caller: QuotaKey,
    /// Cancelled to close the connection for a newer one.
    pub displaced: CancellationToken,
}

/// Place of one connection in a pool; released on drop.
#[derive(Debug)]
pub struct PoolSlot {
    pool: ConnectionPool,
    number: u64,
    _permit: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
struct PoolInner {
    capacity: usize,
    /// A closed connection keeps its permit until its task has ended, so that the pool never holds
    /// more sockets than its capacity.
    permits: Arc<Semaphore>,
    /// Connections by their numbers, oldest first.
    members: Mutex<BTreeMap<u64, NewConnection>>,
}

impl ConnectionPool {
    pub fn new(capacity: usize) -> Self {
        Self(Arc::new(PoolInner {
            capacity,
            permits: Arc::new(Semaphore::new(capacity)),
            members: Mutex::default(),
        }))
    }

    pub fn capacity(&self) -> usize {
        self.0.capacity
    }

    /// Adds a connection if the pool has a free slot.
    pub fn try_add(&self, connection: &NewConnection) -> Option<PoolSlot> {
        let permit = self.0.permits.clone().try_acquire_owned().ok()?;
        Some(self.insert(connection, Some(permit)))
    }

    /// Adds a connection. If the pool is full, closes another connection and waits for its end.
    /// Returns the slot, and the caller of the closed connection.
    pub async fn add(&self, connection: &NewConnection) -> (PoolSlot, Option<QuotaKey>) {
        if let Some(slot) = self.try_add(connection) {
            return (slot, None);
        }
        let displaced = self.displace_connection();
        // The semaphore is never closed.
        let permit = self.0.permits.clone().acquire_owned().await.ok();
        (self.insert(connection, permit), displaced)
    }

    fn insert(&self, connection: &NewConnection, permit: Option<OwnedSemaphorePermit>) -> PoolSlot {
        let number = connection.number;
        self.0.members.lock().insert(number, connection.clone());
        PoolSlot {
            pool: self.clone(),
            number,
            _permit: permit,
        }
    }

    /// Closes the oldest connection of the caller with the most connections, so that a caller
    /// displaces the connections of others only if it has no more than they have.
    fn displace_connection(&self) -> Option<QuotaKey> {
        let mut members = self.0.members.lock();
        let mut counts: HashMap<&QuotaKey, usize> = HashMap::new();
        for member in members.values() {
            *counts.entry(&member.caller).or_default() += 1;
        }

        let most = counts.values().max().copied()?;
        let mut by_age = members.values();
        let number = by_age.find(|member| counts[&member.caller] == most)?.number;

        let member = members.remove(&number)?;
        member.displaced.cancel();
        Some(member.caller)
    }
}

impl Drop for PoolSlot {
    fn drop(&mut self) {
        self.pool.0.members.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::{ConnectionPool, NewConnection, PoolSlot};
    use crate::daemon::model::QuotaKey;
    use futures_util::FutureExt as _;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use tokio_util::sync::CancellationToken;

    /// Connection that ends as soon as it is displaced.
    struct TestConnection {
        caller: u32,
        displaced: CancellationToken,
        _slot: PoolSlot,
    }

    fn connection(number: u64, caller: u32) -> NewConnection {
        NewConnection {
            number,
            caller: QuotaKey::User(caller),
            displaced: CancellationToken::new(),
        }
    }

    #[tokio::test]
    async fn a_slot_is_free_once_the_displaced_connection_has_ended() {
        let pool = ConnectionPool::new(1);
        let [first, second] = [connection(1, 1), connection(2, 2)];
        let slot = pool.try_add(&first).expect("a free slot");
        assert!(pool.try_add(&second).is_none());
        assert!(!first.displaced.is_cancelled());

        let mut waiting = Box::pin(pool.add(&second));
        assert!((&mut waiting).now_or_never().is_none());
        assert!(first.displaced.is_cancelled());
        drop(slot);
        let (_slot, displaced) = waiting.await;
        assert_eq!(displaced, Some(QuotaKey::User(1)));
        assert!(!second.displaced.is_cancelled());
    }

    proptest! {
        #[test]
        fn the_caller_with_most_connections_loses_its_oldest(
            callers in prop::collection::vec(0_u32..4, 1..60),
            capacity in 1_usize..8,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(async {
                let pool = ConnectionPool::new(capacity);
                let mut open: BTreeMap<u64, TestConnection> = BTreeMap::new();
                for (number, caller) in (0_u64..).zip(callers) {
                    let count = |caller| open.values().filter(|c| c.caller == caller).count();
                    let most = (0..4).map(count).max().unwrap_or(0);
                    let expected = (open.len() == capacity).then(|| {
                        let oldest = open.iter().find(|(_, c)| count(c.caller) == most);
                        *oldest.expect("a connection").0
                    });

                    let newcomer = connection(number, caller);
                    let mut adding = Box::pin(pool.add(&newcomer));
                    let added = (&mut adding).now_or_never();
                    assert_eq!(added.is_none(), expected.is_some());
                    let slot = if let Some((slot, _)) = added {
                        slot
                    } else {
                        let closed = expected.and_then(|number| open.remove(&number));
                        assert!(closed.expect("an open connection").displaced.is_cancelled());
                        adding.await.0
                    };
                    assert!(open.values().all(|c| !c.displaced.is_cancelled()));
                    let displaced = newcomer.displaced.clone();
                    open.insert(number, TestConnection { caller, displaced, _slot: slot });
                }
            });
        }
    }
}
