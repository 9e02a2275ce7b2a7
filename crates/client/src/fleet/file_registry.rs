//! Registry of the executors in a fleet file, which is read again when it changes.

use super::executors::{ExecutorRegistry, RegistryFuture};
use super::file::{self, FleetTable};
use super::file_changes::FleetFileChanges;
use caproot_core::document::ConfigErrors;
use caproot_core::sync::Mutex;
use futures_util::future::BoxFuture;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// Executors of a fleet file. A clone shares the follower of the changes.
#[derive(Debug, Clone)]
pub struct FileRegistry {
    /// Current content of the file.
    pub table: watch::Receiver<FleetTable>,
    pub status: Arc<Mutex<FleetFileStatus>>,
    _follower: Arc<AbortOnDropHandle<()>>,
}

/// State of a fleet file.
#[derive(Debug, Clone, Default)]
pub struct FleetFileStatus {
    /// Number of changes that were applied.
    pub rereads: u64,
    /// Errors of the current file, if the file before it is still used.
    pub error: Option<String>,
}

impl FileRegistry {
    /// Reads the file, and starts to follow its changes. Returns all errors at once.
    pub async fn open(path: &Path) -> Result<Self, ConfigErrors> {
        let changes = FleetFileChanges::start(path).await;
        let (sender, table) = watch::channel(file::read(path).await?);
        let status = Arc::<Mutex<FleetFileStatus>>::default();

        let path = path.to_owned();
        let shown = status.clone();
        let follow = changes.follow(async move || match file::read(&path).await {
            Ok(table) => {
                // A table that equals the last one is no change.
                sender.send_if_modified(|current| {
                    let is_new = *current != table;
                    *current = table;
                    is_new
                });
                let mut status = shown.lock();
                status.rereads += 1;
                status.error = None;
            }
            Err(errors) => {
                let sentences: Vec<_> = errors.iter().map(ToString::to_string).collect();
                let error = sentences.join("; ");
                tracing::warn!(
                    error,
                    "fleet file rejected; correct the file, the executors of its last valid \
                     version stay in use"
                );
                shown.lock().error = Some(error);
            }
        });

        let follower = AbortOnDropHandle::new(tokio::spawn(follow));
        Ok(Self {
            table,
            status,
            _follower: Arc::new(follower),
        })
    }
}

impl ExecutorRegistry for FileRegistry {
    fn find_executor<'a>(&'a self, environment_id: &'a str) -> RegistryFuture<'a> {
        let found = self.table.borrow().find(environment_id);
        Box::pin(std::future::ready(found))
    }

    fn executor_changed(&self, environment_id: &str) -> BoxFuture<'static, ()> {
        let mut table = self.table.clone();
        let environment_id = environment_id.to_owned();
        let before = table.borrow_and_update().find(&environment_id);
        Box::pin(async move {
            let changed = table.wait_for(|table| table.find(&environment_id) != before);
            if changed.await.is_err() {
                // The fleet is gone, and its connections go with their clients.
                std::future::pending::<()>().await;
            }
        })
    }

    fn environment_ids(&self) -> Vec<String> {
        self.table.borrow().environment_ids()
    }
}
