//! Admission of connections. A new connection enters a small pool, and leaves the pool with its
//! first accepted call: a call whose caller the rules accept. So peers without credentials take
//! only places of the pool, and no permit that callers need.

use super::connection_pool::{ConnectionPool, NewConnection, PoolSlot};
use super::quota::{Quota, QuotaExceeded, QuotaPermit};
use crate::daemon::model::{Limits, PeerIdentity, QuotaKey};
use crate::daemon::telemetry::RateLimitedLog;
use caproot_core::sync::Mutex;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Numbers of connections that one listener may have open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenerCapacity {
    /// Connections with an accepted call.
    pub accepted: usize,
    /// Connections without an accepted call.
    pub pending: usize,
    /// Connections of the operator beyond `pending`.
    pub operator: usize,
}

/// Limits of connections that all listeners share. Clones share their state.
#[derive(Debug, Clone)]
pub struct ConnectionQuota(Arc<ConnectionQuotaInner>);

#[derive(Debug)]
struct ConnectionQuotaInner {
    /// Connections with an accepted call, by caller.
    caller_quota: Quota,
    first_call_timeout: Duration,
    last_number: AtomicU64,
    rejected_calls: RateLimitedLog,
}

/// Permits of the connections of one listener.
#[derive(Debug)]
pub struct ListenerPermits {
    quota: ConnectionQuota,
    accepted: Arc<Semaphore>,
    max_accepted: usize,
    pending: ConnectionPool,
    operator: ConnectionPool,
}

/// Open connection as the limits count it; released on drop.
#[derive(Debug)]
pub struct ConnectionGuard(ConnectionAdmission);

/// State of a connection that its calls share. A call that outlives the connection holds no permit.
#[derive(Debug, Clone)]
pub struct ConnectionAdmission(Arc<AdmissionInner>);

#[derive(Debug)]
struct AdmissionInner {
    connection: NewConnection,
    listener: Arc<ListenerPermits>,
    is_operator: bool,
    opened_at: Instant,
    /// Cancelled once a call was accepted.
    first_call: CancellationToken,
    state: Mutex<AdmissionState>,
}

#[derive(Debug)]
enum AdmissionState {
    Pending {
        _slot: PoolSlot,
    },
    /// The permits are released on drop.
    Admitted {
        _listener: OwnedSemaphorePermit,
        _caller: QuotaPermit,
    },
    Closed,
}

impl ConnectionQuota {
    /// Creates an unused quota. A connection without an accepted call ends after
    /// `first_call_timeout`.
    #[must_use]
    pub fn new(limits: &Limits, first_call_timeout: Duration) -> Self {
        let each = (
            "max_connections_per_caller",
            limits.max_connections_per_caller,
        );
        Self(Arc::new(ConnectionQuotaInner {
            // Each listener limits its total.
            caller_quota: Quota::new(("max_connections", usize::MAX), each),
            first_call_timeout,
            last_number: AtomicU64::new(0),
            rejected_calls: RateLimitedLog::default(),
        }))
    }
}

impl ListenerPermits {
    /// Creates the unused permits of a listener.
    #[must_use]
    pub fn new(quota: ConnectionQuota, capacity: ListenerCapacity) -> Arc<Self> {
        Arc::new(Self {
            quota,
            accepted: Arc::new(Semaphore::new(capacity.accepted)),
            max_accepted: capacity.accepted,
            pending: ConnectionPool::new(capacity.pending),
            operator: ConnectionPool::new(capacity.operator),
        })
    }

    /// Number of connections without an accepted call that the listener may have.
    #[must_use]
    pub fn max_pending(&self) -> usize {
        self.pending.capacity()
    }

    /// Takes a new connection, and closes another one if the pool is full. Returns the caller
    /// whose connection was closed, too. If the pool is full, the operator has a pool of its own.
    pub async fn enter_pool(
        self: &Arc<Self>,
        caller: &QuotaKey,
        is_operator: bool,
    ) -> (ConnectionGuard, Option<QuotaKey>) {
        let connection = NewConnection {
            number: self.quota.0.last_number.fetch_add(1, Ordering::Relaxed),
            caller: caller.clone(),
            displaced: CancellationToken::new(),
        };
        let spare_slot = is_operator.then(|| self.pending.try_add(&connection));
        let (slot, displaced_caller) = match spare_slot {
            Some(Some(slot)) => (slot, None),
            Some(None) => self.operator.add(&connection).await,
            None => self.pending.add(&connection).await,
        };

        let admission = AdmissionInner {
            connection,
            listener: self.clone(),
            is_operator,
            opened_at: Instant::now(),
            first_call: CancellationToken::new(),
            state: Mutex::new(AdmissionState::Pending { _slot: slot }),
        };
        let guard = ConnectionGuard(ConnectionAdmission(Arc::new(admission)));
        (guard, displaced_caller)
    }

    fn acquire_permits(&self, caller: &QuotaKey) -> Result<AdmissionState, QuotaExceeded> {
        let caller_permit = self.quota.0.caller_quota.acquire(caller, 1)?;
        let listener_permit =
            self.accepted
                .clone()
                .try_acquire_owned()
                .map_err(|_| QuotaExceeded {
                    limit_name: "max_connections",
                    limit: self.max_accepted,
                })?;
        Ok(AdmissionState::Admitted {
            _listener: listener_permit,
            _caller: caller_permit,
        })
    }
}

impl ConnectionGuard {
    /// Returns the state for the calls of the connection.
    #[must_use]
    pub fn admission(&self) -> &ConnectionAdmission {
        &self.0
    }

    /// Waits until the connection must be closed for a newer one.
    pub async fn wait_until_displaced(&self) {
        self.0.0.connection.displaced.cancelled().await;
    }

    /// Waits until the connection had no accepted call within the time limit and `grace`.
    pub async fn wait_until_overdue(&self, grace: Duration) {
        let inner = &self.0.0;
        let deadline = inner.opened_at + inner.listener.quota.0.first_call_timeout + grace;
        tokio::select! {
            () = inner.first_call.cancelled() => pending().await,
            () = sleep_until(deadline) => {}
        }
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        *self.0.0.state.lock() = AdmissionState::Closed;
    }
}

impl ConnectionAdmission {
    /// Whether the connection has a permit of its own, so that the limits of its caller apply to
    /// its calls.
    #[must_use]
    pub fn is_admitted(&self) -> bool {
        matches!(*self.0.state.lock(), AdmissionState::Admitted { .. })
    }

    /// Whether root or the daemon's own user opened the connection, on a Unix socket.
    #[must_use]
    pub fn is_operator(&self) -> bool {
        self.0.is_operator
    }

    /// Returns the quota key of calls before the connection is admitted.
    #[must_use]
    pub fn quota_key(&self) -> QuotaKey {
        QuotaKey::Connection(self.0.connection.number)
    }

    /// Takes the connection out of the pool, because the rules accepted a call of `peer`. If no
    /// permit is free, the connection stays in the pool. A connection of the operator may stay
    /// there until it is displaced.
    pub fn admit(&self, peer: &PeerIdentity) -> Result<(), QuotaExceeded> {
        let mut state = self.0.state.lock();
        if !matches!(*state, AdmissionState::Pending { .. }) {
            return Ok(());
        }

        let caller = peer.quota_key();
        match self.0.listener.acquire_permits(&caller) {
            Ok(admitted) => {
                *state = admitted;
                self.0.first_call.cancel();
                Ok(())
            }
            Err(exceeded) => {
                let log = &self.0.listener.quota.0.rejected_calls;
                if self.0.is_operator {
                    self.0.first_call.cancel();
                } else if let Ok(suppressed) = log.record_event() {
                    let QuotaExceeded { limit_name, limit } = exceeded;
                    tracing::warn!(
                        %caller,
                        suppressed,
                        "a call on a new connection was rejected: {limit_name}, {limit}, is reached"
                    );
                }
                Err(exceeded)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ConnectionGuard, ConnectionQuota, ListenerCapacity, ListenerPermits};
    use crate::daemon::model::{Limits, PeerIdentity, QuotaKey};
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::time::{Instant, timeout};

    const FIRST_CALL_TIMEOUT: Duration = Duration::from_secs(30);
    const GRACE: Duration = Duration::from_secs(1);

    fn permits(accepted: usize, per_caller: usize) -> Arc<ListenerPermits> {
        let limits = Limits {
            max_connections_per_caller: per_caller,
            ..Limits::default()
        };
        let capacity = ListenerCapacity {
            accepted,
            pending: 2,
            operator: 1,
        };
        ListenerPermits::new(ConnectionQuota::new(&limits, FIRST_CALL_TIMEOUT), capacity)
    }

    fn peer(uid: u32) -> PeerIdentity {
        PeerIdentity::Local {
            pid: 1,
            uid,
            gids: Arc::default(),
        }
    }

    async fn open(permits: &Arc<ListenerPermits>, uid: u32) -> ConnectionGuard {
        let (guard, _) = permits.enter_pool(&QuotaKey::User(uid), uid == 0).await;
        guard
    }

    /// Returns the name of the limit that keeps the connection in the pool.
    fn admit(guard: &ConnectionGuard, uid: u32) -> Result<(), &'static str> {
        let admitted = guard.admission().admit(&peer(uid));
        admitted.map_err(|exceeded| exceeded.limit_name)
    }

    #[tokio::test]
    async fn an_accepted_call_takes_the_connection_out_of_the_pool() {
        let permits = permits(2, 1);
        let first = open(&permits, 1).await;
        let second = open(&permits, 1).await;
        let closing = async {
            first.wait_until_displaced().await;
            drop(first);
        };
        let (third, ()) = tokio::join!(open(&permits, 2), closing);
        assert_eq!(admit(&second, 1), Ok(()));
        assert!(second.admission().is_admitted());
        // A second call changes nothing.
        assert_eq!(admit(&second, 1), Ok(()));
        assert_eq!(admit(&third, 1), Err("max_connections_per_caller"));
        assert_eq!(admit(&third, 2), Ok(()));

        let fourth = open(&permits, 3).await;
        assert_eq!(admit(&fourth, 3), Err("max_connections"));
        assert!(!fourth.admission().is_admitted());
        // A call that outlives its connection holds no permit.
        let outliving = third.admission().clone();
        drop(third);
        assert_eq!(admit(&fourth, 3), Ok(()));
        assert!(outliving.admit(&peer(2)).is_ok() && !outliving.is_admitted());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_an_accepted_call_is_overdue_after_30_seconds() {
        let permits = permits(1, 1);
        let begun = Instant::now();
        let silent = open(&permits, 1).await;
        silent.wait_until_overdue(Duration::ZERO).await;
        assert_eq!(begun.elapsed(), FIRST_CALL_TIMEOUT);
        silent.wait_until_overdue(GRACE).await;
        assert_eq!(begun.elapsed(), FIRST_CALL_TIMEOUT + GRACE);

        let served = open(&permits, 2).await;
        let overdue = served.wait_until_overdue(Duration::ZERO);
        assert_eq!(admit(&served, 2), Ok(()));
        let waited = timeout(10 * FIRST_CALL_TIMEOUT, overdue).await;
        assert!(waited.is_err(), "the connection may stay idle");
    }

    #[tokio::test(start_paused = true)]
    async fn the_operator_is_served_without_a_free_permit() {
        let permits = permits(1, 1);
        let other = open(&permits, 7).await;
        assert_eq!(admit(&other, 7), Ok(()));
        let _pending = [open(&permits, 7).await, open(&permits, 7).await];

        let operator = open(&permits, 0).await;
        assert!(operator.admission().is_operator());
        assert_eq!(admit(&operator, 0), Err("max_connections"));
        let overdue = operator.wait_until_overdue(GRACE);
        assert!(timeout(10 * FIRST_CALL_TIMEOUT, overdue).await.is_err());

        // Only a newer connection of the operator displaces it.
        assert!(timeout(GRACE, open(&permits, 7)).await.is_err());
        assert!(!operator.0.0.connection.displaced.is_cancelled());
        assert!(timeout(GRACE, open(&permits, 0)).await.is_err());
        assert!(operator.0.0.connection.displaced.is_cancelled());
    }
}
