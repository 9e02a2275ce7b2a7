//! Catalogs that the mirrors of a fleet share, so that executors with equal files transfer and store
//! them once. A catalog is known by its content: its digest was computed from received messages.

use super::root_contents::RootContents;
use caproot_core::proto::caproot::v1::SkillView;
use caproot_core::sync::{Mutex, WeightedLru};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// Default limit of the catalogs that no mirror holds.
pub const DEFAULT_MAX_BYTES: usize = 64 << 20;
/// How long a transfer may make no progress before the next mirror starts its own.
const STALL_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a transfer may take before the next mirror starts its own. The other mirrors wait for the
/// new transfer, so that a slow network is not filled with copies of one catalog.
const MAX_TRANSFER_TIME: Duration = Duration::from_secs(5);
/// How long a mirror waits for the transfers of other mirrors in total, so that executors that send
/// slowly delay the others by no more.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// Number of catalogs from which ended catalogs are removed.
const MIN_SWEEP_LEN: usize = 64;

/// Key of a catalog.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SharedCatalogKey {
    pub root_id: String,
    pub catalog_digest: String,
    pub product: String,
    pub view: SkillView,
}

/// Catalogs of the mirrors of one fleet. Catalogs that a mirror holds cost no further memory here.
/// The catalogs of ended mirrors are retained up to a limit of bytes, the least recently used first
/// to go. A clone shares the catalogs.
#[derive(Debug, Clone)]
pub struct SharedCatalogs(Arc<Mutex<SharedState>>);

#[derive(Debug)]
struct SharedState {
    /// Catalogs that a mirror or `retained` holds.
    known: HashMap<SharedCatalogKey, Weak<RootContents>>,
    /// Number of catalogs at which the next sweep removes ended catalogs.
    next_sweep_len: usize,
    /// Catalogs of ended mirrors.
    retained: WeightedLru<SharedCatalogKey, Arc<RootContents>>,
    /// Transfers in progress.
    transfers: HashMap<SharedCatalogKey, TransferInProgress>,
    last_transfer_id: u64,
    hits: u64,
    rejected: u64,
}

/// Transfer of one mirror, for the mirrors that wait for it.
#[derive(Debug, Clone)]
struct TransferInProgress {
    id: u64,
    /// Time at which the next mirror starts its own transfer.
    end_of_wait: Instant,
    /// Changes with each event, and is closed at the end.
    progress: watch::Receiver<()>,
}

/// Transfer of this mirror. Dropping it ends the wait of the other mirrors.
#[derive(Debug)]
pub struct CatalogTransfer {
    shared: SharedCatalogs,
    key: SharedCatalogKey,
    id: u64,
    progress: watch::Sender<()>,
}

/// Catalogs that a mirror asked for.
#[derive(Debug)]
pub struct ObtainedCatalogs {
    /// Shared contents by root id.
    pub stored: HashMap<String, Arc<RootContents>>,
    /// Catalogs that the mirror has to transfer.
    pub transfers: Vec<CatalogTransfer>,
}

/// Numbers of the shared catalogs of a fleet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SharedCatalogCounts {
    pub catalogs: usize,
    pub retained_bytes: usize,
    pub hits: u64,
    pub rejected: u64,
}

impl SharedCatalogs {
    /// Creates an empty store that retains at most `max_bytes` of catalogs that no mirror holds.
    pub fn new(max_bytes: usize) -> Self {
        Self(Arc::new(Mutex::new(SharedState {
            known: HashMap::new(),
            next_sweep_len: MIN_SWEEP_LEN,
            retained: WeightedLru::new(max_bytes, usize::MAX),
            transfers: HashMap::new(),
            last_transfer_id: 0,
            hits: 0,
            rejected: 0,
        })))
    }

    /// Returns the numbers of now.
    pub fn counts(&self) -> SharedCatalogCounts {
        let state = self.0.lock();
        SharedCatalogCounts {
            catalogs: state
                .known
                .values()
                .filter(|known| known.strong_count() > 0)
                .count(),
            retained_bytes: state.retained.weight(),
            hits: state.hits,
            rejected: state.rejected,
        }
    }

    /// Counts a catalog whose digest was wrong.
    pub fn record_rejected(&self) {
        self.0.lock().rejected += 1;
    }

    /// Returns the shared contents of these catalogs, and a transfer for each other. Waits while
    /// another mirror transfers one of them, unless that transfer stalls.
    pub async fn obtain(&self, keys: &[SharedCatalogKey]) -> ObtainedCatalogs {
        let deadline = Instant::now() + MAX_WAIT;
        let mut stalled = HashSet::new();
        loop {
            let claimed = self.claim(keys, &|other| {
                Instant::now() >= deadline.min(other.end_of_wait) || stalled.contains(&other.id)
            });
            let mut other = match claimed {
                Ok(obtained) => return obtained,
                Err(other) => other,
            };

            // The clone has seen no event yet, and an old event is no progress.
            other.progress.mark_unchanged();
            let stall_time = Instant::now() + STALL_TIMEOUT;
            let until = deadline.min(other.end_of_wait).min(stall_time);
            // After an event, an earlier transfer may have ended with the catalog.
            let changed = timeout_at(until, other.progress.changed()).await;
            if changed.is_err() && until == stall_time {
                stalled.insert(other.id);
            }
        }
    }

    /// Returns the catalogs, or a transfer of another mirror to wait for. Claims nothing then, so
    /// that no two mirrors wait for each other.
    fn claim(
        &self,
        keys: &[SharedCatalogKey],
        is_stalled: &dyn Fn(&TransferInProgress) -> bool,
    ) -> Result<ObtainedCatalogs, TransferInProgress> {
        let mut state = self.0.lock();
        let mut stored = HashMap::new();
        for key in keys {
            if let Some(contents) = state.find(key) {
                stored.insert(key.root_id.clone(), contents);
            } else if let Some(other) = state.transfers.get(key)
                && !is_stalled(other)
            {
                return Err(other.clone());
            }
        }

        let missing = keys.iter().filter(|key| !stored.contains_key(&key.root_id));
        let transfers = missing.map(|key| state.start_transfer(self, key)).collect();
        state.hits += stored.len() as u64;
        Ok(ObtainedCatalogs { stored, transfers })
    }

    /// Returns the shared contents of a catalog: `contents` if there are none yet.
    pub fn share(&self, key: &SharedCatalogKey, contents: &Arc<RootContents>) -> Arc<RootContents> {
        let mut state = self.0.lock();
        if let Some(shared) = state.find(key) {
            return shared;
        }
        state.add(key, contents);
        contents.clone()
    }

    /// Retains a catalog whose mirror ended.
    pub fn retain(&self, key: &SharedCatalogKey, contents: &Arc<RootContents>) {
        let mut state = self.0.lock();
        state.add(key, contents);
        let weight = contents.bytes();
        let evicted = state.retained.put(key.clone(), contents.clone(), weight);
        // A large catalog takes a while to drop.
        drop(state);
        drop(evicted);
    }
}

impl SharedState {
    fn find(&mut self, key: &SharedCatalogKey) -> Option<Arc<RootContents>> {
        // The look-up marks the catalog as used, so that other catalogs are removed first.
        self.retained.get(key);
        self.known.get(key)?.upgrade()
    }

    fn add(&mut self, key: &SharedCatalogKey, contents: &Arc<RootContents>) {
        if self.known.len() >= self.next_sweep_len {
            self.known.retain(|_, known| known.strong_count() > 0);
            // Doubling the length between two sweeps keeps the cost of a catalog constant.
            self.next_sweep_len = MIN_SWEEP_LEN.max(2 * self.known.len());
        }
        self.known.insert(key.clone(), Arc::downgrade(contents));
    }

    fn start_transfer(
        &mut self,
        shared: &SharedCatalogs,
        key: &SharedCatalogKey,
    ) -> CatalogTransfer {
        self.last_transfer_id += 1;
        let id = self.last_transfer_id;
        let (progress, receiver) = watch::channel(());
        let transfer = TransferInProgress {
            id,
            end_of_wait: Instant::now() + MAX_TRANSFER_TIME,
            progress: receiver,
        };
        self.transfers.insert(key.clone(), transfer);

        CatalogTransfer {
            shared: shared.clone(),
            key: key.clone(),
            id,
            progress,
        }
    }
}

impl CatalogTransfer {
    /// Reports an event of the daemon.
    pub fn record_progress(&self) {
        self.progress.send_replace(());
    }
}

impl Drop for CatalogTransfer {
    fn drop(&mut self) {
        let transfers = &mut self.shared.0.lock().transfers;
        // Another mirror may have replaced a stalled transfer.
        if transfers
            .get(&self.key)
            .is_some_and(|registered| registered.id == self.id)
        {
            transfers.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests;
