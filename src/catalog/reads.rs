//! Reads of resources: permitted by the published catalog, then done on the disk.

use super::ledger::Key;
use super::regime::Regime;
use super::{Consistency, Keeper, Late, Patience, RootState};
use crate::disk::{Page, Read, Unread, Wanted, read, read_cached};
use crate::domain::limits::MAX_READ_BYTES;
use crate::domain::{Catalog, Reason, RelPath, Selected, Version, main_file};
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// One page of one file.
#[derive(Debug)]
pub struct ReadRequest {
    /// The root that listed the package.
    pub root: Selected,
    /// The package below the root.
    pub package: RelPath,
    /// The file below the package; its SKILL.md where there is none.
    pub resource: Option<RelPath>,
    /// The version and offset of a page that goes on.
    pub from: Option<(Version, u64)>,
    /// The most bytes, at least 4.
    pub max_bytes: usize,
    /// A digest for which no content is wanted.
    pub unless: Option<String>,
    /// How recent the catalog must be.
    pub consistency: Consistency,
}

/// Why nothing was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadError {
    /// The root cannot be used.
    Root(Reason),
    /// The root's first search goes on.
    Pending,
    /// The package is not in the catalog.
    NoPackage,
    /// The file cannot be read.
    Unread(Unread),
    /// The catalog could not be made fresh in time.
    Late,
}

/// What a read of a package goes by.
pub(super) struct Found {
    pub(super) catalog: Arc<Catalog>,
    pub(super) key: Key,
}

impl Keeper {
    /// Reads one page: at once where the kernel has all of it in memory, else on a thread that may wait.
    pub async fn read(&self, request: ReadRequest, patience: Patience) -> Result<Read, ReadError> {
        match self.read_at_once(&request) {
            Some(read) => Ok(read),
            // Rare, and large.
            None => Box::pin(self.read_in_turn(request, patience)).await,
        }
    }

    /// What of a known root the kernel has in memory.
    fn read_at_once(&self, request: &ReadRequest) -> Option<Read> {
        let (key, state) = self.known(&request.root, request.consistency)?;
        let catalog = listing(&state, &request.package).ok()?;
        let (shared, regime, bound) = (&self.0, self.regime(), self.bound());
        let resource = request.resource.clone().unwrap_or_else(main_file);
        let page = request.page(&resource, &regime, &catalog);
        read_cached(&bound.allowed, &key.path, &page, &shared.versions)
    }

    async fn read_in_turn(
        &self,
        request: ReadRequest,
        patience: Patience,
    ) -> Result<Read, ReadError> {
        let ReadRequest { root, package, consistency, .. } = &request;
        let Found { catalog, key } = self.find(root, package, *consistency, patience).await?;
        let (shared, regime, bound) = (self.0.clone(), self.regime(), self.bound());
        let resource = request.resource.clone().unwrap_or_else(main_file);
        let permit = self.turn(&key).await?;
        // Gone with this call: what is read for a caller who is gone ends between two chunks.
        let (_waiting, wanted) = Wanted::new();
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let root = bound.allowed.resolve(&key.path).map_err(|b| ReadError::Root(b.into()))?;
            let page = request.page(&resource, &regime, &catalog);
            read(&root, &page, &shared.versions, &wanted).map_err(ReadError::Unread)
        });
        done.await.unwrap_or_else(|panic| {
            tracing::error!(%panic, "a read ended by a defect");
            Err(ReadError::Unread(Unread::Failed))
        })
    }

    /// Looks a package up in its root's catalog.
    pub(super) async fn find(
        &self,
        root: &Selected,
        package: &RelPath,
        consistency: Consistency,
        patience: Patience,
    ) -> Result<Found, ReadError> {
        if let Some((key, state)) = self.known(root, consistency) {
            return Ok(Found { catalog: listing(&state, package)?, key });
        }
        let view = self.view(std::slice::from_ref(root), consistency, patience).await;
        let state = view.map_err(|Late| ReadError::Late)?.roots.pop().map(|r| r.state);
        let catalog = listing(&state.ok_or(ReadError::Pending)?, package)?;
        let key = self.keys(std::slice::from_ref(root)).pop().ok_or(ReadError::Pending)?;
        let key = key.map_err(ReadError::Root)?;
        Ok(Found { catalog, key })
    }

    /// What is known of a root, where that will do: most reads are of one that was listed before.
    fn known(&self, root: &Selected, consistency: Consistency) -> Option<(Key, RootState)> {
        if consistency == Consistency::Fresh {
            return None;
        }
        let key = self.keys(std::slice::from_ref(root)).pop()?.ok()?;
        let mut ledger = self.ledger();
        let (held, work) = ledger.used_and_known(&key)?;
        work.last_use = Instant::now();
        let state = RootState::Held(held.clone());
        drop(ledger);
        Some((key, state))
    }

    /// Waits for a turn to read in a root.
    pub(super) async fn turn(&self, key: &Key) -> Result<OwnedSemaphorePermit, ReadError> {
        let reads = self.ledger().work(key).map(|work| work.reads.clone());
        let Some(reads) = reads else { return Err(ReadError::NoPackage) };
        // Closed never: the semaphore lives as long as this clone of it.
        reads.acquire_owned().await.map_err(|_| ReadError::Late)
    }
}

/// The root's catalog, which lists the package.
fn listing(state: &RootState, package: &RelPath) -> Result<Arc<Catalog>, ReadError> {
    if let Some(reason) = state.reason() {
        return Err(ReadError::Root(reason));
    }
    let catalog = state.catalog().ok_or(ReadError::Pending)?;
    if catalog.skill(package).is_none() && catalog.plugin(package).is_none() {
        return Err(ReadError::NoPackage);
    }
    Ok(catalog.clone())
}

impl ReadRequest {
    fn page<'a>(
        &'a self,
        resource: &'a RelPath,
        regime: &'a Regime,
        catalog: &'a Catalog,
    ) -> Page<'a> {
        Page {
            package: &self.package,
            resource,
            from: self.from,
            max_bytes: self.max_bytes.min(MAX_READ_BYTES),
            unless: self.unless.as_deref(),
            rule: regime.rule(catalog, &self.package),
            max_file_bytes: regime.rules.limits.max_file_bytes,
        }
    }
}
