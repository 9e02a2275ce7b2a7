//! Clients of a fleet by environment, each until 10 minutes after its last use.

use crate::call::Client;
use caproot_core::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

/// How long an unused client is kept with its connection.
const IDLE_TIME: Duration = Duration::from_mins(10);
/// Interval at which unused clients are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);

/// Clients by environment. A client is in use while a clone of it exists outside of the pool.
#[derive(Debug, Default)]
pub struct ClientPool(Mutex<PoolState>);

#[derive(Debug, Default)]
struct PoolState {
    clients: BTreeMap<String, PooledClient>,
    /// Task that removes unused clients, while there are clients.
    sweeper: Option<AbortOnDropHandle<()>>,
}

#[derive(Debug)]
struct PooledClient {
    client: Client,
    /// Time of the last sweep at which the client was in use.
    last_use: Instant,
}

impl ClientPool {
    /// Returns the client of an environment.
    pub fn find(&self, environment_id: &str) -> Option<Client> {
        let mut state = self.0.lock();
        let pooled = state.clients.get_mut(environment_id)?;
        pooled.last_use = Instant::now();
        Some(pooled.client.clone())
    }

    /// Returns the client of an environment, which `create` returns if there is none. Needs a tokio
    /// runtime.
    pub fn find_or_insert(
        self: &Arc<Self>,
        environment_id: &str,
        create: impl FnOnce() -> Client,
    ) -> Client {
        if let Some(client) = self.find(environment_id) {
            return client;
        }

        // Another caller may insert a client before this lock. `or_insert` keeps that client.
        let mut state = self.0.lock();
        let pooled = PooledClient {
            client: create(),
            last_use: Instant::now(),
        };
        let pooled = state
            .clients
            .entry(environment_id.to_owned())
            .or_insert(pooled);
        let client = pooled.client.clone();

        // A sweeper also ends with its runtime.
        if state
            .sweeper
            .as_ref()
            .is_none_or(AbortOnDropHandle::is_finished)
        {
            let sweeper = tokio::spawn(sweep_until_empty(Arc::downgrade(self)));
            state.sweeper = Some(AbortOnDropHandle::new(sweeper));
        }
        client
    }

    /// Returns the number of clients.
    pub fn len(&self) -> usize {
        self.0.lock().clients.len()
    }

    /// Removes the clients that were unused for long enough. Returns whether clients are left.
    fn sweep(&self) -> bool {
        let now = Instant::now();
        let mut state = self.0.lock();
        state.clients.retain(|_, pooled| {
            if pooled.client.is_shared() {
                pooled.last_use = now;
            }
            now.duration_since(pooled.last_use) < IDLE_TIME
        });
        let is_empty = state.clients.is_empty();
        if is_empty {
            // The handle of the calling task: the next client needs another sweeper.
            state.sweeper.take().map(AbortOnDropHandle::detach);
        }
        !is_empty
    }
}

async fn sweep_until_empty(pool: Weak<ClientPool>) {
    loop {
        sleep(SWEEP_INTERVAL).await;
        let Some(pool) = pool.upgrade() else { return };
        if !pool.sweep() {
            return;
        }
    }
}
