//! Catalogs of all roots: resolves selections, scans roots, publishes snapshots, and reads the
//! files of published packages. Independent of gRPC.

mod debounce_timer;
mod event_trust;
mod policy;
mod reads;
mod root_task;
mod root_task_handle;
mod stats;
mod store;
mod view;

pub use policy::{PolicyConfig, WatchTiming};
pub use reads::{FilesRequest, PackageReadError, ReadRequest};
pub use root_task_handle::WaitBudget;
pub use stats::{CatalogStats, RootStateCounts, ScopeStats, WatchStats};
pub use store::{CatalogStore, CatalogStoreConfig, RootLease};
pub use view::{
    CatalogView, ConsistencyLevel, DeadlineExceeded, PollReason, RootSnapshot, RootState, RootView,
    ScopedSelection, WatchMode,
};

#[doc(hidden)]
pub use crate::daemon::fs::OpenMethod;
#[doc(hidden)]
pub use crate::daemon::watch::FaultInjector;
