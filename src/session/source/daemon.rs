//! A daemon as a source of skills: a mirror of what it lists, its pages, and how many calls it gets at
//! once. An executor's is of the kind `executor`; one that runs for this process alone may be of
//! another. Leaves what of the mirror is shown to `shown`.

mod shown;

pub use shown::ExecutorState;

use super::wire::text;
use super::{Listed, Listing, SkillSource, SourceKind, SourceWatch, TextPage, Wanted, unavailable};
use crate::client::{
    CallError, Catalog, Client, Fleet, FleetError, Mirror, MirrorState, ResumePoint, Selection,
    root_id,
};
use crate::proto::caproot::v1::{
    Authority, ReadResourceRequest, RootState, SelectedCapabilityRoot,
};
use crate::session::result::{Code, Refusal};
use crate::session::{Options, lock};
use backon::{ExponentialBuilder, Retryable as _};
use futures_util::future::BoxFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

/// The most calls that one daemon gets at once from a session; others wait.
const CALLS_AT_ONCE: usize = 16;
/// How long a call waits for its turn.
const TURN: Duration = Duration::from_secs(30);

/// A daemon's skills, for one selection of its roots.
#[derive(Debug)]
pub struct DaemonSource {
    kind: SourceKind,
    id: String,
    roots: Vec<SelectedCapabilityRoot>,
    /// Or why there is none.
    reached: Result<Arc<Reached>, String>,
    grace: Duration,
    /// Whether the mirror has more roots than these.
    is_part: bool,
    /// The list that was made last, and of what.
    listing: Mutex<(Arc<Catalog>, Arc<Listing>)>,
}

#[derive(Debug)]
struct Reached {
    client: Client,
    mirror: Mirror,
    turns: Semaphore,
}

/// Waits for changes of a mirror, and for the end of the grace.
#[derive(Debug)]
struct MirrorWatch {
    mirror: Mirror,
    grace: Duration,
    /// When it was lost, if it was told that its grace is over.
    told: Option<Instant>,
}

/// The client of an environment, as soon as the registry can say.
async fn found(fleet: &Fleet, environment_id: &str) -> Result<Client, FleetError> {
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
    pub(in crate::session) async fn of_executor(
        fleet: &Fleet,
        environment_id: String,
        selection: Selection,
        from: Option<ResumePoint>,
        options: &Options,
    ) -> Self {
        let roots = selection.roots.clone();
        let deadline = Instant::now() + options.patience;
        let reached = match timeout_at(deadline, found(fleet, &environment_id)).await {
            Err(_) => Err("its executor could not be looked up in time".to_owned()),
            Ok(Err(error)) => Err(error.to_string()),
            Ok(Ok(client)) => Ok(Reached::start(client, selection, from, deadline).await),
        };
        Self::new(SourceKind::Executor, environment_id, roots, reached, options.grace)
    }

    /// A daemon that is called by this client, as a source of this kind and name. Waits for its first
    /// list no longer than the patience of the options.
    pub async fn start(
        kind: SourceKind,
        id: &str,
        client: Client,
        roots: Vec<SelectedCapabilityRoot>,
        options: &Options,
    ) -> Self {
        let selection =
            Selection { product: options.product.clone(), ..Selection::new(roots.clone()) };
        let deadline = Instant::now() + options.patience;
        let reached = Reached::start(client, selection, None, deadline).await;
        Self::new(kind, id.to_owned(), roots, Ok(reached), options.grace)
    }

    fn new(
        kind: SourceKind,
        id: String,
        roots: Vec<SelectedCapabilityRoot>,
        reached: Result<Reached, String>,
        grace: Duration,
    ) -> Self {
        let reached = reached.map(Arc::new);
        Self { kind, id, roots, reached, grace, is_part: false, listing: Mutex::default() }
    }

    /// What may be shown of it, and why nothing may: a daemon that is lost shows nothing, once it is
    /// lost for longer than the grace.
    fn held(&self) -> (Arc<Catalog>, Option<String>) {
        let held = match &self.reached {
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

    fn unavailable(&self, why: &str) -> Refusal {
        unavailable(self.kind, &self.id, why)
    }

    /// Its client, as soon as there is a turn.
    async fn turn(&self) -> Result<(&Client, SemaphorePermit<'_>), Refusal> {
        let reached = self.reached.as_ref().map_err(|why| self.unavailable(why))?;
        let turn = tokio::time::timeout(TURN, reached.turns.acquire()).await;
        match turn {
            Ok(Ok(turn)) => Ok((&reached.client, turn)),
            Ok(Err(_)) | Err(_) => {
                Err(Refusal::said(Code::Overloaded, "too many calls wait for this executor"))
            }
        }
    }

    /// The root of a package that is listed now.
    fn root_of(&self, wanted: &Wanted) -> Result<&SelectedCapabilityRoot, Refusal> {
        let Wanted { authority: id, package, .. } = wanted;
        if root_id(package).as_deref() != Some(id) {
            return Err(Refusal::said(Code::WrongAuthority, "the package is not this authority's"));
        }
        let (catalog, why) = self.held();
        if let Some(why) = why {
            return Err(self.unavailable(&why));
        }
        if catalog.skill(package).is_none() {
            let status = catalog.roots().iter().find(|root| root.id == *id);
            if let Some(status) = status.filter(|status| status.state() != RootState::Ready) {
                let message = format!("the root {id:?} is not ready: {}", status.message);
                return Err(Refusal::said(Code::RootUnavailable, &message));
            }
            return Err(Refusal::said(Code::PackageNotFound, "there is no such skill now"));
        }
        let root = self.roots.iter().find(|root| root.id == *id);
        root.ok_or_else(|| self.unavailable("its roots are others"))
    }

    async fn page(&self, wanted: &Wanted) -> Result<TextPage, Refusal> {
        let root = self.root_of(wanted)?;
        wanted.check_inside()?;
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
        let (client, _turn) = self.turn().await?;
        let page = client.read_page(&request).await;
        text(&request, page.map_err(|error| self.refusal(&error))?)
    }

    /// What a failed call means to a model.
    fn refusal(&self, error: &CallError) -> Refusal {
        Refusal::of(error).unwrap_or_else(|| self.unavailable(&error.to_string()))
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

    fn listed(&self) -> Listed {
        let (catalog, unavailable) = self.held();
        if self.reached.is_err() {
            return Listed { listing: Arc::default(), unavailable };
        }
        let mut last = lock(&self.listing);
        if !Arc::ptr_eq(&last.0, &catalog) {
            *last = (catalog.clone(), Arc::new(self.listing(&catalog)));
        }
        Listed { listing: last.1.clone(), unavailable }
    }

    fn watch(&self) -> Option<Box<dyn SourceWatch>> {
        let mut mirror = self.reached.as_ref().ok()?.mirror.clone();
        mirror.mark_seen();
        Some(Box::new(MirrorWatch { mirror, grace: self.grace, told: None }))
    }

    fn read_time(&self) -> Duration {
        // Once more where a token is renewed.
        let call = self.reached.as_ref().map_or(Duration::ZERO, |reached| reached.client.timeout());
        TURN + 2 * call
    }

    fn read<'a>(&'a self, wanted: &'a Wanted) -> BoxFuture<'a, Result<TextPage, Refusal>> {
        Box::pin(self.page(wanted))
    }
}

impl Reached {
    async fn start(
        client: Client,
        selection: Selection,
        from: Option<ResumePoint>,
        deadline: Instant,
    ) -> Self {
        let mirror = match from {
            Some(from) => Mirror::resume(&client, selection, from),
            None => Mirror::start(&client, selection),
        };
        mirror.live_or_failed(deadline.saturating_duration_since(Instant::now())).await;
        Self { client, mirror, turns: Semaphore::new(CALLS_AT_ONCE) }
    }
}

impl SourceWatch for MirrorWatch {
    fn changed(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            match self.mirror.snapshot().state {
                MirrorState::Stale { since, .. } if self.told != Some(since) => {
                    if timeout_at(since + self.grace, self.mirror.changed()).await.is_err() {
                        self.told = Some(since);
                    }
                }
                _ => {
                    self.mirror.changed().await;
                }
            }
        })
    }
}
