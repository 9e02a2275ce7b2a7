//! Runs the real daemon in this process on a free TCP port, with a real client, and converts
//! responses and errors to comparable values.

pub(crate) mod diff;
pub(crate) mod fixture;
pub(crate) mod fuse;
pub(crate) mod golden;
pub(crate) mod listing;
pub(crate) mod namespaces;
pub(crate) mod open_counter;
pub(crate) mod process;
pub(crate) mod process_usage;
pub(crate) mod replica;
pub(crate) mod rng;
pub(crate) mod shared_mapping;
pub(crate) mod strace;
pub(crate) mod test_servers;
pub(crate) mod watch_harness;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use caproot::daemon::catalog::{FaultInjector, OpenMethod, WatchTiming};
use caproot::daemon::config::{Config, ConnectionTiming, RootFlag, ServeFlags};
use caproot::daemon::model::Limits;
use caproot::daemon::server::{self, BoundDaemon};
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::capability_service_client::CapabilityServiceClient;
use caproot_core::proto::caproot::v1::read_resource_response::Body;
use caproot_core::proto::caproot::v1::{
    CapabilityRootLocation, ErrorReason, GetExecutorRequest, GetExecutorResponse,
    ListResourcesRequest, ListResourcesResponse, ListRootsRequest, ListSkillsRequest,
    ListSkillsResponse, PublishedRoot, ReadResourceRequest, ReadResourceResponse,
    ResolveRootsRequest, ResolveRootsResponse, SelectedCapabilityRoot, WatchSkillsRequest,
    WatchSkillsResponse,
};
use sha2::{Digest as _, Sha256};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::Channel;
use tonic::{Code, IntoRequest, Response, Status, Streaming};
use tonic_types::{ErrorDetail, StatusExt as _};

use crate::harness::fixture::Fixture;
use crate::harness::test_servers::free_port;

/// Returns `long` if `CAPROOT_LONG_TESTS` is set, otherwise `short`. Both forms of a test check the
/// same properties. The long form covers rarer interleavings.
pub(crate) fn short_or_long<T>(short: T, long: T) -> T {
    if std::env::var_os("CAPROOT_LONG_TESTS").is_some() {
        long
    } else {
        short
    }
}

/// Time limit that only a hang exceeds.
pub(crate) const HANG_TIMEOUT: Duration = Duration::from_secs(45);

/// Generated client over a plain channel.
pub(crate) type Client = CapabilityServiceClient<Channel>;

/// Configuration of a daemon.
pub(crate) struct Setup {
    /// Directories that are published and allowed, like `--root`.
    pub roots: Vec<(Option<String>, PathBuf)>,
    /// Directories that are allowed, like `--allow`.
    pub allow: Vec<PathBuf>,
    /// Addresses of listeners in addition to the TCP port.
    pub listen: Vec<String>,
    /// Environment ids. Empty means the default.
    pub environment_ids: Vec<String>,
    /// Default locations. They are empty by default, so that no skills of this user are found.
    pub env: ProcessEnv,
    /// Limits of the daemon.
    pub limits: Limits,
    /// Timing of scans and rechecks.
    pub timing: WatchTiming,
    /// Faults of the watcher.
    pub faults: FaultInjector,
    /// Method to open files. `None` probes the kernel.
    pub opener: Option<OpenMethod>,
    /// Time limits of connections.
    pub connection_timing: ConnectionTiming,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            roots: Vec::new(),
            allow: Vec::new(),
            listen: Vec::new(),
            environment_ids: Vec::new(),
            env: isolated_env(Path::new("/nonexistent")),
            limits: Limits::default(),
            timing: WatchTiming::default(),
            faults: FaultInjector::default(),
            opener: None,
            connection_timing: ConnectionTiming::default(),
        }
    }
}

/// Process environment in which all default locations lie below one directory.
pub(crate) fn isolated_env(top: &Path) -> ProcessEnv {
    ProcessEnv {
        home: Some(top.join("home")),
        codex_home: None,
        etc: top.join("etc"),
        unit_runtime_dir: None,
        xdg_runtime_dir: None,
        temp_dir: top.join("tmp"),
        current_dir: Some(top.join("work")),
        ..ProcessEnv::from_process()
    }
}

impl Setup {
    /// Allows directories and publishes no root.
    pub(crate) fn allowing<P: AsRef<Path>>(dirs: impl IntoIterator<Item = P>) -> Self {
        let allow = dirs.into_iter().map(|d| d.as_ref().to_owned()).collect();
        Self {
            allow,
            ..Self::default()
        }
    }

    /// Sets the method to open files.
    pub(crate) fn with_opener(self, opener: OpenMethod) -> Self {
        Self {
            opener: Some(opener),
            ..self
        }
    }

    /// Publishes and allows one directory.
    pub(crate) fn publishing(id: &str, dir: PathBuf) -> Self {
        Self {
            roots: vec![(Some(id.into()), dir)],
            ..Self::default()
        }
    }

    /// Builds a tree, allows its directory `root`, and starts the daemon. Returns the directory as
    /// the root `r`.
    pub(crate) async fn serve(mut self, tree: &str) -> (Fixture, Daemon, SelectedCapabilityRoot) {
        let fixture = Fixture::new(tree);
        let dir = fixture.path("root");
        self.allow.push(dir.clone());
        let daemon = Daemon::start(self).await;
        (fixture, daemon, selected("r", dir))
    }
}

/// Binds the sockets of a daemon. A process that another test starts has the sockets of a stopped
/// daemon until its program runs, so a used address is tried again.
async fn build_daemon(config: Config) -> BoundDaemon {
    let begun = Instant::now();
    loop {
        match server::build_daemon(config.clone()).await {
            Err(error)
                if error.to_string().contains("Address already in use")
                    && begun.elapsed() < HANG_TIMEOUT =>
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            bound => return bound.expect("the daemon starts"),
        }
    }
}

/// Running daemon. Drop asks the daemon to stop. `stop` also waits for its end.
pub(crate) struct Daemon {
    /// Client that is connected to the daemon.
    pub client: Client,
    /// Address with its port.
    pub address: String,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Daemon {
    /// Starts the daemon on a free port and connects to it.
    pub(crate) async fn start(setup: Setup) -> Self {
        let flags = ServeFlags {
            roots: setup
                .roots
                .into_iter()
                .map(|(id, dir)| RootFlag { id, dir })
                .collect(),
            allow: setup.allow,
            environment_ids: setup.environment_ids,
            listen: [setup.listen, vec![format!("tcp:{}", free_port())]].concat(),
            ..ServeFlags::default()
        };
        let mut config = Config::from_flags(flags, &setup.env).expect("a valid configuration");
        config.limits = setup.limits;
        config.timing = setup.timing;
        config.faults = setup.faults;
        config.opener = setup.opener;
        config.connection_timing = setup.connection_timing;
        Self::start_with(config).await
    }

    /// Builds a tree and starts a daemon that publishes one directory of the tree under its name.
    pub(crate) async fn publishing(dir: &str, tree: &str) -> (Fixture, Self) {
        let fixture = Fixture::new(tree);
        let daemon = Self::start(Setup::publishing(dir, fixture.path(dir))).await;
        (fixture, daemon)
    }

    /// Starts a daemon whose last listener is a TCP port, and connects to that listener.
    pub(crate) async fn start_with(config: Config) -> Self {
        let app = build_daemon(config).await;
        let listening = app.listen_addresses();
        let address = listening.last().and_then(|last| last.strip_prefix("tcp:"));
        let address = address.expect("a TCP listener").to_owned();
        let (stop, stopped) = oneshot::channel::<()>();
        // A dropped sender stops the daemon as well.
        let task = tokio::spawn(async move {
            app.run(async move { drop(stopped.await) })
                .await
                .expect("the daemon stops without an error");
        });
        let client = connect(&address).await;
        Self {
            client,
            address,
            stop,
            task,
        }
    }

    /// Connects to a daemon that runs elsewhere. `stop` does not stop that daemon.
    pub(crate) async fn connect_to(address: &str) -> Self {
        Self::from_client(connect(address).await, address)
    }

    /// Wraps an existing connection to a daemon that runs elsewhere.
    pub(crate) fn from_client(client: Client, address: &str) -> Self {
        let (stop, _) = oneshot::channel::<()>();
        Self {
            client,
            address: address.to_owned(),
            stop,
            task: tokio::spawn(async {}),
        }
    }

    /// Stops the daemon and waits until it has stopped.
    pub(crate) async fn stop(self) {
        drop(self.client);
        self.stop.send(()).expect("the daemon still runs");
        tokio::time::timeout(HANG_TIMEOUT, self.task)
            .await
            .expect("the daemon stops")
            .expect("no panic");
    }

    /// Returns the first page of a list of skills.
    pub(crate) async fn list(&self, roots: &[SelectedCapabilityRoot]) -> ListSkillsResponse {
        self.try_list(list_request(roots))
            .await
            .expect("ListSkills")
    }

    /// Returns the packages on the first page of a list.
    pub(crate) async fn packages(&self, roots: &[SelectedCapabilityRoot]) -> Vec<String> {
        packages(&self.list(roots).await)
            .into_iter()
            .map(str::to_owned)
            .collect()
    }

    /// Returns the first page of the states and plugins of roots.
    pub(crate) async fn resolve(&self, roots: &[SelectedCapabilityRoot]) -> ResolveRootsResponse {
        self.try_resolve(resolve_request(roots))
            .await
            .expect("ResolveRoots")
    }

    /// Returns the published roots.
    pub(crate) async fn published_roots(&self) -> Vec<PublishedRoot> {
        let mut client = self.client.clone();
        let answer = in_time(client.list_roots(ListRootsRequest {})).await;
        answer.expect("ListRoots").into_inner().roots
    }

    /// Calls `GetExecutor` once.
    pub(crate) async fn executor(&self) -> GetExecutorResponse {
        let mut client = self.client.clone();
        in_time(client.get_executor(GetExecutorRequest {}))
            .await
            .expect("GetExecutor")
            .into_inner()
    }

    /// Reads all pages of a resource and joins them. Checks each page against the size limit and
    /// against the first page.
    pub(crate) async fn read_all(&self, request: ReadResourceRequest) -> Result<Vec<u8>, Status> {
        let mut all = Vec::new();
        let mut cursor = String::new();
        let mut first: Option<ReadResourceResponse> = None;
        loop {
            let page = self
                .read(ReadResourceRequest {
                    cursor,
                    ..request.clone()
                })
                .await?;
            let bytes = bytes_of(&page);
            let bound = if request.max_bytes == 0 {
                8_192
            } else {
                request.max_bytes
            };
            assert!(
                i64::try_from(bytes.len()).expect("a page") <= bound,
                "a page over {bound}"
            );
            assert_eq!(
                page.truncated,
                !page.next_cursor.is_empty(),
                "truncated means a cursor"
            );
            let first = first.get_or_insert_with(|| page.clone());
            assert_eq!(
                (
                    &page.digest,
                    page.total_bytes,
                    &page.resource,
                    &page.media_type
                ),
                (
                    &first.digest,
                    first.total_bytes,
                    &first.resource,
                    &first.media_type
                ),
                "all pages are of one version"
            );
            assert!(!page.truncated || !bytes.is_empty(), "each page has data");
            all.extend(bytes);
            cursor = page.next_cursor;
            if cursor.is_empty() {
                assert_eq!(
                    first.total_bytes,
                    all.len() as u64,
                    "total_bytes is the whole file"
                );
                return Ok(all);
            }
        }
    }
}

/// Defines methods of [`Daemon`] that make one call each.
macro_rules! call_methods {
    ($($(#[$doc:meta])* $name:ident: $method:ident($request:ty) -> $response:ty;)*) => {
        impl Daemon { $(
            $(#[$doc])*
            pub(crate) async fn $name(
                &self,
                request: impl IntoRequest<$request>,
            ) -> Result<$response, Status> {
                let mut client = self.client.clone();
                in_time(client.$method(request)).await.map(Response::into_inner)
            }
        )* }
    };
}

call_methods! {
    /// Calls `ListSkills` once. A request may have metadata, such as a token.
    try_list: list_skills(ListSkillsRequest) -> ListSkillsResponse;
    /// Calls `ResolveRoots` once.
    try_resolve: resolve_roots(ResolveRootsRequest) -> ResolveRootsResponse;
    /// Calls `ListResources` once.
    list_resources: list_resources(ListResourcesRequest) -> ListResourcesResponse;
    /// Opens a stream.
    watch: watch_skills(WatchSkillsRequest) -> Streaming<WatchSkillsResponse>;
    /// Calls `ReadResource` once.
    read: read_resource(ReadResourceRequest) -> ReadResourceResponse;
}

/// Whether openat2(2) is available. If not, prints that tests are skipped.
pub(crate) fn has_openat2() -> bool {
    let has = OpenMethod::probe() == OpenMethod::Openat2;
    if !has {
        println!("SKIPPED: openat2(2) is not available; only openat(2) is tested");
    }
    has
}

/// Methods to open files that are available here.
pub(crate) fn openers() -> Vec<OpenMethod> {
    let both = [OpenMethod::Openat2, OpenMethod::Openat];
    both.into_iter()
        .filter(|opener| *opener == OpenMethod::Openat || has_openat2())
        .collect()
}

/// Makes two tests of each function, `NAME::openat2` and `NAME::openat`, one for each method to
/// open files.
macro_rules! by_both_openers {
    ($(async fn $name:ident;)*) => { $(
        mod $name {
            #[tokio::test]
            async fn openat2() {
                if crate::harness::has_openat2() {
                    super::$name(caproot::daemon::catalog::OpenMethod::Openat2).await;
                }
            }

            #[tokio::test]
            async fn openat() {
                super::$name(caproot::daemon::catalog::OpenMethod::Openat).await;
            }
        }
    )* };
    ($(fn $name:ident;)*) => { $(
        mod $name {
            #[test]
            fn openat2() {
                if crate::harness::has_openat2() {
                    super::$name(caproot::daemon::catalog::OpenMethod::Openat2);
                }
            }

            #[test]
            fn openat() {
                super::$name(caproot::daemon::catalog::OpenMethod::Openat);
            }
        }
    )* };
}
pub(crate) use by_both_openers;

/// Connects a new client.
pub(crate) async fn connect(address: &str) -> Client {
    in_time(CapabilityServiceClient::connect(format!(
        "http://{address}"
    )))
    .await
    .expect("connect")
}

/// Awaits a call and panics after [`HANG_TIMEOUT`].
pub(crate) async fn in_time<T>(call: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANG_TIMEOUT, call)
        .await
        .expect("no hang")
}

/// Selects a root by its native path in the default environment.
pub(crate) fn selected(id: &str, path: impl AsRef<Path>) -> SelectedCapabilityRoot {
    located(id, path.as_ref().to_str().expect("a path in UTF-8"))
}

/// Selects a published root.
pub(crate) fn published(id: &str) -> SelectedCapabilityRoot {
    located(id, &format!("published:{id}"))
}

/// Selects a root with any text as its path.
pub(crate) fn located(id: &str, path: &str) -> SelectedCapabilityRoot {
    let location = CapabilityRootLocation {
        r#type: "environment".into(),
        environment_id: "local".into(),
        path: path.into(),
    };
    SelectedCapabilityRoot {
        id: id.into(),
        location: Some(location),
    }
}

/// Request for the first page of a list.
pub(crate) fn list_request(roots: &[SelectedCapabilityRoot]) -> ListSkillsRequest {
    ListSkillsRequest {
        selected_capability_roots: roots.to_vec(),
        ..Default::default()
    }
}

/// Request for the first page of the states and plugins of roots.
pub(crate) fn resolve_request(roots: &[SelectedCapabilityRoot]) -> ResolveRootsRequest {
    ResolveRootsRequest {
        selected_capability_roots: roots.to_vec(),
        ..Default::default()
    }
}

/// Request for the first page of the files of a package.
pub(crate) fn files_request(root: &SelectedCapabilityRoot, package: &str) -> ListResourcesRequest {
    ListResourcesRequest {
        root: Some(root.clone()),
        package: package.into(),
        ..Default::default()
    }
}

/// Packages of a list.
pub(crate) fn packages(list: &ListSkillsResponse) -> Vec<&str> {
    list.skills
        .iter()
        .map(|skill| skill.package.as_str())
        .collect()
}

/// Request for the first page of a resource. An empty resource is the main resource.
pub(crate) fn read_request(
    root: &SelectedCapabilityRoot,
    package: &str,
    resource: &str,
) -> ReadResourceRequest {
    ReadResourceRequest {
        root: Some(root.clone()),
        package: package.into(),
        resource: resource.into(),
        ..Default::default()
    }
}

/// Bytes of a page, from the field that is set.
pub(crate) fn bytes_of(page: &ReadResourceResponse) -> Vec<u8> {
    match &page.body {
        Some(Body::Contents(text)) => text.clone().into_bytes(),
        Some(Body::Data(bytes)) => bytes.clone(),
        None => panic!("a page without a body: {page:?}"),
    }
}

/// Digest of bytes as the daemon prints it.
pub(crate) fn content_digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    hash.iter().fold("sha256:".to_owned(), |text, byte| {
        format!("{text}{byte:02x}")
    })
}

/// Polls until a condition holds, and fails after [`HANG_TIMEOUT`].
pub(crate) async fn poll_until(condition: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(
            begun.elapsed() < HANG_TIMEOUT,
            "timed out before {condition}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Contents of an error, except its text for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RpcError {
    /// gRPC status code.
    pub code: Code,
    /// `ErrorInfo.reason`.
    pub reason: String,
    /// `ErrorInfo.metadata`.
    pub metadata: BTreeMap<String, String>,
    /// Names of the fields in `BadRequest`.
    pub fields: Vec<String>,
}

/// Reads the details of an error and checks the properties of every caproot error.
pub(crate) fn rpc_error(status: &Status) -> RpcError {
    let details = status.get_error_details();
    let info = details
        .error_info()
        .unwrap_or_else(|| panic!("no ErrorInfo in {status:?}"));
    assert_eq!(info.domain, "caproot", "{status:?}");
    assert!(
        ErrorReason::from_wire_name(&info.reason).is_some(),
        "unknown reason: {status:?}"
    );
    let message = status.message().strip_prefix(&format!("{}: ", info.reason));
    assert!(
        message.is_some_and(|text| !text.is_empty()),
        "reason, then message: {status:?}"
    );
    let order = status.get_error_details_vec();
    assert!(
        matches!(order[0], ErrorDetail::ErrorInfo(_)),
        "ErrorInfo comes first: {status:?}"
    );
    let fields: Vec<String> = details.bad_request().map_or_else(Vec::new, |bad| {
        bad.field_violations
            .iter()
            .inspect(|v| assert!(!v.description.is_empty(), "a field without a reason: {v:?}"))
            .map(|v| v.field.clone())
            .collect()
    });
    let invalid = status.code() == Code::InvalidArgument;
    assert_eq!(
        invalid,
        !fields.is_empty(),
        "BadRequest is for bad arguments: {status:?}"
    );
    RpcError {
        code: status.code(),
        reason: info.reason.clone(),
        metadata: info.metadata.clone().into_iter().collect(),
        fields,
    }
}

/// Asserts that a call failed with this code, reason and field. Returns the error for further
/// checks.
#[track_caller]
pub(crate) fn assert_rpc_error<T: std::fmt::Debug>(
    answer: Result<T, Status>,
    code: Code,
    reason: &str,
    field: Option<&str>,
) -> RpcError {
    let refused = rpc_error(&answer.expect_err("an error"));
    assert_eq!(
        (refused.code, refused.reason.as_str()),
        (code, reason),
        "{refused:?}"
    );
    assert_eq!(
        refused.fields,
        field.map(str::to_owned).into_iter().collect::<Vec<_>>()
    );
    refused
}
