//! A daemon as a source of skills: a mirror of what it lists, its pages, and how many calls it gets at
//! once. An executor's is of the kind `executor`; one that runs for this process alone may be of
//! another. Leaves what of the mirror is shown to `shown`.

mod shown;

pub use shown::ExecutorState;

use super::wire::to_text_page;
use super::{
    SkillListing, SkillSource, SourceKind, SourceSnapshot, SourceWatch, TextPage, TextPageRequest,
    unavailable_error,
};
use crate::client::{
    CallError, Client, Fleet, FleetError, Mirror, MirrorCatalog, MirrorSelection, MirrorState,
    ResumePoint, root_id,
};
use crate::proto::caproot::v1::{
    Authority, ReadResourceRequest, RootState, SelectedCapabilityRoot,
};
use crate::session::result::{ToolError, ToolErrorCode};
use crate::session::{SessionOptions, lock};
use backon::{ExponentialBuilder, Retryable as _};
use futures_util::future::BoxFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

/// The most calls that one daemon gets at once from a session; others wait.
const MAX_CONCURRENT_CALLS: usize = 16;
/// How long a call waits for its turn.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(30);

/// A daemon's skills, for one selection of its roots.
#[derive(Debug)]
pub struct DaemonSource {
    kind: SourceKind,
    id: String,
    roots: Vec<SelectedCapabilityRoot>,
    /// Or why there is none.
    connection: Result<Arc<DaemonConnection>, String>,
    grace: Duration,
    /// Whether the mirror has more roots than these.
    is_partial: bool,
    /// The list that was made last, and of what.
    cached_listing: Mutex<(Arc<MirrorCatalog>, Arc<SkillListing>)>,
}

#[derive(Debug)]
struct DaemonConnection {
    client: Client,
    mirror: Mirror,
    permits: Semaphore,
}

/// Waits for changes of a mirror, and for the end of the grace.
#[derive(Debug)]
struct MirrorWatch {
    mirror: Mirror,
    grace: Duration,
    /// When it was lost, if it was told that its grace is over.
    reported_stale_since: Option<Instant>,
}

/// The client of an environment, as soon as the registry can say.
async fn find_client(fleet: &Fleet, environment_id: &str) -> Result<Client, FleetError> {
    let waits = ExponentialBuilder::new()
        .with_jitter()
        .with_min_delay(Duration::from_millis(100))
        .with_max_delay(Duration::from_secs(1))
        .without_max_times();
    let ask = || fleet.client(environment_id);
    ask.retry(waits).when(|error| matches!(error, FleetError::Registry { .. })).await
}

impl DaemonSource {
    /// The executor of an environment, which the fleet names. Waits for it no longer than the patience.
    pub(in crate::session) async fn start_executor(
        fleet: &Fleet,
        environment_id: String,
        selection: MirrorSelection,
        from: Option<ResumePoint>,
        options: &SessionOptions,
    ) -> Self {
        let roots = selection.roots.clone();
        let deadline = Instant::now() + options.start_timeout;
        let reached = match timeout_at(deadline, find_client(fleet, &environment_id)).await {
            Err(_) => Err("its executor could not be looked up in time".to_owned()),
            Ok(Err(error)) => Err(error.to_string()),
            Ok(Ok(client)) => Ok(DaemonConnection::start(client, selection, from, deadline).await),
        };
        Self::new(SourceKind::Executor, environment_id, roots, reached, options.grace_period)
    }

    /// A daemon that is called by this client, as a source of this kind and name. Waits for its first
    /// list no longer than the patience of the options.
    pub async fn start(
        kind: SourceKind,
        id: &str,
        client: Client,
        roots: Vec<SelectedCapabilityRoot>,
        options: &SessionOptions,
    ) -> Self {
        let selection = MirrorSelection {
            product: options.product.clone(),
            ..MirrorSelection::new(roots.clone())
        };
        let deadline = Instant::now() + options.start_timeout;
        let reached = DaemonConnection::start(client, selection, None, deadline).await;
        Self::new(kind, id.to_owned(), roots, Ok(reached), options.grace_period)
    }

    fn new(
        kind: SourceKind,
        id: String,
        roots: Vec<SelectedCapabilityRoot>,
        reached: Result<DaemonConnection, String>,
        grace: Duration,
    ) -> Self {
        let reached = reached.map(Arc::new);
        Self {
            kind,
            id,
            roots,
            connection: reached,
            grace,
            is_partial: false,
            cached_listing: Mutex::default(),
        }
    }

    /// What may be shown of it, and why nothing may: a daemon that is lost shows nothing, once it is
    /// lost for longer than the grace.
    fn usable_catalog(&self) -> (Arc<MirrorCatalog>, Option<String>) {
        let held = match &self.connection {
            Ok(reached) => reached.mirror.snapshot(),
            Err(why) => return (Arc::default(), Some(why.clone())),
        };
        let why = match held.state {
            MirrorState::Live => None,
            MirrorState::Stale { since, .. } if since.elapsed() < self.grace => None,
            MirrorState::Stale { why, .. }
            | MirrorState::Connecting(Some(why))
            | MirrorState::Failed(why) => Some(why.to_string()),
            MirrorState::Connecting(None) => Some("it does not answer yet".to_owned()),
        };
        (held.catalog, why)
    }

    fn unavailable_error(&self, why: &str) -> ToolError {
        unavailable_error(self.kind, &self.id, why)
    }

    /// Its client, as soon as there is a turn.
    async fn acquire_client(&self) -> Result<(&Client, SemaphorePermit<'_>), ToolError> {
        let reached = self.connection.as_ref().map_err(|why| self.unavailable_error(why))?;
        let turn = tokio::time::timeout(PERMIT_TIMEOUT, reached.permits.acquire()).await;
        match turn {
            Ok(Ok(turn)) => Ok((&reached.client, turn)),
            Ok(Err(_)) | Err(_) => Err(ToolError::from_code(
                ToolErrorCode::Overloaded,
                "too many calls wait for this executor",
            )),
        }
    }

    /// The root of a package that is listed now.
    fn find_root(&self, wanted: &TextPageRequest) -> Result<&SelectedCapabilityRoot, ToolError> {
        let TextPageRequest { authority: id, package, .. } = wanted;
        if root_id(package).as_deref() != Some(id) {
            return Err(ToolError::from_code(
                ToolErrorCode::WrongAuthority,
                "the package is not this authority's",
            ));
        }
        let (catalog, why) = self.usable_catalog();
        if let Some(why) = why {
            return Err(self.unavailable_error(&why));
        }
        if catalog.skill(package).is_none() {
            let status = catalog.roots().iter().find(|root| root.id == *id);
            if let Some(status) = status.filter(|status| status.state() != RootState::Ready) {
                let message = format!("the root {id:?} is not ready: {}", status.message);
                return Err(ToolError::from_code(ToolErrorCode::RootUnavailable, &message));
            }
            return Err(ToolError::from_code(
                ToolErrorCode::PackageNotFound,
                "there is no such skill now",
            ));
        }
        let root = self.roots.iter().find(|root| root.id == *id);
        root.ok_or_else(|| self.unavailable_error("its roots are others"))
    }

    async fn fetch_page(&self, wanted: &TextPageRequest) -> Result<TextPage, ToolError> {
        let root = self.find_root(wanted)?;
        wanted.check_resource_in_package()?;
        let request = ReadResourceRequest {
            root: Some(root.clone()),
            // To the daemon, whoever asks is an executor's caller.
            authority: Some(Authority { kind: "executor".to_owned(), id: root.id.clone() }),
            package: wanted.package.clone(),
            resource: wanted.resource.clone(),
            cursor: wanted.cursor.clone(),
            max_bytes: i64::try_from(wanted.max_bytes).unwrap_or(i64::MAX),
            ..ReadResourceRequest::default()
        };
        let (client, _turn) = self.acquire_client().await?;
        let page = client.read_page(&request).await;
        to_text_page(&request, page.map_err(|error| self.tool_error(&error))?)
    }

    /// What a failed call means to a model.
    fn tool_error(&self, error: &CallError) -> ToolError {
        ToolError::from_call_error(error)
            .unwrap_or_else(|| self.unavailable_error(&error.to_string()))
    }
}

impl SkillSource for DaemonSource {
    fn kind(&self) -> SourceKind {
        self.kind
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn authorities(&self) -> Vec<String> {
        self.roots.iter().map(|root| root.id.clone()).collect()
    }

    fn snapshot(&self) -> SourceSnapshot {
        let (catalog, unavailable) = self.usable_catalog();
        if self.connection.is_err() {
            return SourceSnapshot { listing: Arc::default(), unavailable_reason: unavailable };
        }
        let mut last = lock(&self.cached_listing);
        if !Arc::ptr_eq(&last.0, &catalog) {
            *last = (catalog.clone(), Arc::new(self.build_listing(&catalog)));
        }
        SourceSnapshot { listing: last.1.clone(), unavailable_reason: unavailable }
    }

    fn watch(&self) -> Option<Box<dyn SourceWatch>> {
        let mut mirror = self.connection.as_ref().ok()?.mirror.clone();
        mirror.mark_seen();
        Some(Box::new(MirrorWatch { mirror, grace: self.grace, reported_stale_since: None }))
    }

    fn read_timeout(&self) -> Duration {
        // Once more where a token is renewed.
        let call =
            self.connection.as_ref().map_or(Duration::ZERO, |reached| reached.client.timeout());
        PERMIT_TIMEOUT + 2 * call
    }

    fn read_page<'a>(
        &'a self,
        wanted: &'a TextPageRequest,
    ) -> BoxFuture<'a, Result<TextPage, ToolError>> {
        Box::pin(self.fetch_page(wanted))
    }
}

impl DaemonConnection {
    async fn start(
        client: Client,
        selection: MirrorSelection,
        from: Option<ResumePoint>,
        deadline: Instant,
    ) -> Self {
        let mirror = match from {
            Some(from) => Mirror::resume(&client, selection, from),
            None => Mirror::start(&client, selection),
        };
        mirror.wait_until_live_or_failed(deadline.saturating_duration_since(Instant::now())).await;
        Self { client, mirror, permits: Semaphore::new(MAX_CONCURRENT_CALLS) }
    }
}

impl SourceWatch for MirrorWatch {
    fn changed(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            match self.mirror.snapshot().state {
                MirrorState::Stale { since, .. } if self.reported_stale_since != Some(since) => {
                    if timeout_at(since + self.grace, self.mirror.changed()).await.is_err() {
                        self.reported_stale_since = Some(since);
                    }
                }
                _ => {
                    self.mirror.changed().await;
                }
            }
        })
    }
}
