//! The real daemon in this process on a free TCP port, a real client, and what both say in a form
//! that tests can compare.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use caproot::catalog::{FaultInjector, OpenMethod, WatchTiming};
use caproot::config::{Config, KeepaliveConfig, RootFlag, ServeFlags};
use caproot::domain::Limits;
use caproot::endpoint::ProcessEnv;
use caproot::proto::caproot::v1::{
    CapabilityRootLocation, ListSkillsRequest, ListSkillsResponse, ReadResourceRequest,
    ReadResourceResponse, SelectedCapabilityRoot,
    capability_service_client::CapabilityServiceClient, read_resource_response::Body,
};
use caproot::server;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};
use tonic_types::{ErrorDetail, StatusExt as _};

/// The size of a test: `long` if `CAPROOT_LONG_TESTS` is set, otherwise `short`. Both check the same
/// properties; the long form meets rarer interleavings.
pub(crate) fn short_or_long<T>(short: T, long: T) -> T {
    if std::env::var_os("CAPROOT_LONG_TESTS").is_some() { long } else { short }
}

/// A wait that only a hang can reach.
pub(crate) const HANG_TIMEOUT: Duration = Duration::from_secs(45);

/// The stock client.
pub(crate) type Client = CapabilityServiceClient<Channel>;

/// What a daemon is started with.
pub(crate) struct Setup {
    /// Published and allowed, like `--root`.
    pub roots: Vec<(Option<String>, PathBuf)>,
    /// Allowed, like `--allow`.
    pub allow: Vec<PathBuf>,
    /// None means the default.
    pub environment_ids: Vec<String>,
    /// Where the usual places are; empty by default, so that nobody's own skills are found.
    pub env: ProcessEnv,
    /// The bounds in force.
    pub limits: Limits,
    /// When roots are looked at.
    pub timing: WatchTiming,
    /// What the watcher is to do wrong.
    pub faults: FaultInjector,
    /// How files are opened; None asks the kernel.
    pub opener: Option<OpenMethod>,
    /// When a connection is found dead.
    pub keepalive: KeepaliveConfig,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            roots: Vec::new(),
            allow: Vec::new(),
            environment_ids: Vec::new(),
            env: isolated_env(Path::new("/nonexistent")),
            limits: Limits::default(),
            timing: WatchTiming::default(),
            faults: FaultInjector::default(),
            opener: None,
            keepalive: KeepaliveConfig::default(),
        }
    }
}

/// Surroundings in which everything that the daemon looks for lies below one directory.
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
    /// Allows directories and publishes none.
    pub(crate) fn allowing<P: AsRef<Path>>(dirs: impl IntoIterator<Item = P>) -> Self {
        let allow = dirs.into_iter().map(|d| d.as_ref().to_owned()).collect();
        Self { allow, ..Self::default() }
    }

    /// The same, with files opened in this way.
    pub(crate) fn with_opener(self, opener: OpenMethod) -> Self {
        Self { opener: Some(opener), ..self }
    }

    /// Publishes and allows one directory.
    pub(crate) fn publishing(id: &str, dir: PathBuf) -> Self {
        Self { roots: vec![(Some(id.into()), dir)], ..Self::default() }
    }
}

/// A running daemon. Dropping it asks it to stop; `stop` also waits for the end.
pub(crate) struct Daemon {
    /// Connected to it.
    pub client: Client,
    /// `127.0.0.1:PORT`.
    pub address: String,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Daemon {
    /// Starts the daemon on a free port and connects to it.
    pub(crate) async fn start(setup: Setup) -> Self {
        let flags = ServeFlags {
            roots: setup.roots.into_iter().map(|(id, dir)| RootFlag { id, dir }).collect(),
            allow: setup.allow,
            environment_ids: setup.environment_ids,
            listen: vec!["tcp:127.0.0.1:0".into()],
            ..ServeFlags::default()
        };
        let mut config = Config::from_flags(flags, &setup.env).expect("a good configuration");
        config.limits = setup.limits;
        config.timing = setup.timing;
        config.faults = setup.faults;
        config.opener = setup.opener;
        config.keepalive = setup.keepalive;
        Self::start_with(config).await
    }

    /// Starts a daemon of which the last listener is a TCP port, and connects to that.
    pub(crate) async fn start_with(config: Config) -> Self {
        let app = server::build_daemon(config).await.expect("the daemon starts");
        let listening = app.listen_addresses();
        let address = listening.last().and_then(|last| last.strip_prefix("tcp:"));
        let address = address.expect("a TCP listener").to_owned();
        let (stop, stopped) = oneshot::channel::<()>();
        // A dropped sender stops the daemon too.
        let task = tokio::spawn(async move {
            app.run(async move { drop(stopped.await) }).await.expect("the daemon ends well");
        });
        let client = connect(&address).await;
        Self { client, address, stop, task }
    }

    /// A daemon that runs elsewhere; it is not for this to stop.
    pub(crate) async fn connect_to(address: &str) -> Self {
        Self::from_client(connect(address).await, address)
    }

    /// The same through a connection of the caller's.
    pub(crate) fn from_client(client: Client, address: &str) -> Self {
        let (stop, _) = oneshot::channel::<()>();
        Self { client, address: address.to_owned(), stop, task: tokio::spawn(async {}) }
    }

    /// Stops the daemon and waits until it has ended.
    pub(crate) async fn stop(self) {
        drop(self.client);
        self.stop.send(()).expect("the daemon still runs");
        tokio::time::timeout(HANG_TIMEOUT, self.task).await.expect("the daemon ends").expect("no panic");
    }

    /// The first page of a list of skills.
    pub(crate) async fn list(&self, roots: &[SelectedCapabilityRoot]) -> ListSkillsResponse {
        self.try_list(list_request(roots)).await.expect("ListSkills")
    }

    /// One call of `ListSkills`.
    pub(crate) async fn try_list(
        &self,
        request: ListSkillsRequest,
    ) -> Result<ListSkillsResponse, Status> {
        let mut client = self.client.clone();
        in_time(client.list_skills(request)).await.map(Response::into_inner)
    }

    /// One call of `ReadResource`.
    pub(crate) async fn read(
        &self,
        request: ReadResourceRequest,
    ) -> Result<ReadResourceResponse, Status> {
        let mut client = self.client.clone();
        in_time(client.read_resource(request)).await.map(Response::into_inner)
    }

    /// All pages of one resource, joined, each checked against the bound and against the first.
    pub(crate) async fn read_all(&self, request: ReadResourceRequest) -> Result<Vec<u8>, Status> {
        let mut all = Vec::new();
        let mut cursor = String::new();
        let mut first: Option<ReadResourceResponse> = None;
        loop {
            let page = self.read(ReadResourceRequest { cursor, ..request.clone() }).await?;
            let bytes = bytes_of(&page);
            let bound = if request.max_bytes == 0 { 8_192 } else { request.max_bytes };
            assert!(i64::try_from(bytes.len()).expect("a page") <= bound, "a page over {bound}");
            assert_eq!(page.truncated, !page.next_cursor.is_empty(), "truncated means a cursor");
            let first = first.get_or_insert_with(|| page.clone());
            assert_eq!(
                (&page.digest, page.total_bytes, &page.resource, &page.media_type),
                (&first.digest, first.total_bytes, &first.resource, &first.media_type),
                "all pages are of one version"
            );
            assert!(!page.truncated || !bytes.is_empty(), "each page goes on");
            all.extend(bytes);
            cursor = page.next_cursor;
            if cursor.is_empty() {
                assert_eq!(first.total_bytes, all.len() as u64, "total_bytes is the whole file");
                return Ok(all);
            }
        }
    }
}

/// Whether files can be opened by openat2(2) here. Says it loudly where that leaves something
/// untested.
pub(crate) fn has_openat2() -> bool {
    let has = OpenMethod::probe() == OpenMethod::Openat2;
    if !has {
        println!("SKIPPED: openat2(2) is not to be had here; only opening step by step is tested");
    }
    has
}

/// The ways to open files that there are here.
pub(crate) fn openers() -> Vec<OpenMethod> {
    let both = [OpenMethod::Openat2, OpenMethod::Openat];
    both.into_iter().filter(|opener| *opener == OpenMethod::Openat || has_openat2()).collect()
}

/// Makes two tests of each function, `NAME::openat2` and `NAME::openat`: one for each way to open files.
macro_rules! by_both_openers {
    ($(async fn $name:ident;)*) => { $(
        mod $name {
            #[tokio::test]
            async fn openat2() {
                if crate::harness::has_openat2() {
                    super::$name(caproot::catalog::OpenMethod::Openat2).await;
                }
            }

            #[tokio::test]
            async fn openat() {
                super::$name(caproot::catalog::OpenMethod::Openat).await;
            }
        }
    )* };
    ($(fn $name:ident;)*) => { $(
        mod $name {
            #[test]
            fn openat2() {
                if crate::harness::has_openat2() {
                    super::$name(caproot::catalog::OpenMethod::Openat2);
                }
            }

            #[test]
            fn openat() {
                super::$name(caproot::catalog::OpenMethod::Openat);
            }
        }
    )* };
}
pub(crate) use by_both_openers;

/// Connects a client of its own.
pub(crate) async fn connect(address: &str) -> Client {
    in_time(CapabilityServiceClient::connect(format!("http://{address}"))).await.expect("connect")
}

/// Awaits what must not hang.
pub(crate) async fn in_time<T>(call: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANG_TIMEOUT, call).await.expect("no hang")
}

/// A root selected by its native path in the default environment.
pub(crate) fn selected(id: &str, path: impl AsRef<Path>) -> SelectedCapabilityRoot {
    located(id, path.as_ref().to_str().expect("a path in UTF-8"))
}

/// A root selected by any text as its path.
pub(crate) fn located(id: &str, path: &str) -> SelectedCapabilityRoot {
    let location = CapabilityRootLocation {
        r#type: "environment".into(),
        environment_id: "local".into(),
        path: path.into(),
    };
    SelectedCapabilityRoot { id: id.into(), location: Some(location) }
}

/// A request for the first page.
pub(crate) fn list_request(roots: &[SelectedCapabilityRoot]) -> ListSkillsRequest {
    ListSkillsRequest { selected_capability_roots: roots.to_vec(), ..Default::default() }
}

/// A request for the first page of a resource; an empty one is the main resource.
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

/// The bytes that a page carries, in whichever field.
pub(crate) fn bytes_of(page: &ReadResourceResponse) -> Vec<u8> {
    match &page.body {
        Some(Body::Contents(text)) => text.clone().into_bytes(),
        Some(Body::Data(bytes)) => bytes.clone(),
        None => panic!("a page without a body: {page:?}"),
    }
}

/// What an error says, apart from its text for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RpcError {
    /// The gRPC status.
    pub code: Code,
    /// `ErrorInfo.reason`.
    pub reason: String,
    /// `ErrorInfo.metadata`.
    pub metadata: BTreeMap<String, String>,
    /// `BadRequest`'s fields.
    pub fields: Vec<String>,
}

/// Reads the details of an error and checks what every caproot error has.
pub(crate) fn rpc_error(status: &Status) -> RpcError {
    let details = status.get_error_details();
    let info = details.error_info().unwrap_or_else(|| panic!("no ErrorInfo in {status:?}"));
    assert_eq!(info.domain, "caproot", "{status:?}");
    let message = status.message().strip_prefix(&format!("{}: ", info.reason));
    assert!(message.is_some_and(|text| !text.is_empty()), "reason, then message: {status:?}");
    let order = status.get_error_details_vec();
    assert!(matches!(order[0], ErrorDetail::ErrorInfo(_)), "ErrorInfo comes first: {status:?}");
    let fields: Vec<String> = details.bad_request().map_or_else(Vec::new, |bad| {
        bad.field_violations
            .iter()
            .inspect(|v| assert!(!v.description.is_empty(), "a field without a reason: {v:?}"))
            .map(|v| v.field.clone())
            .collect()
    });
    let invalid = status.code() == Code::InvalidArgument;
    assert_eq!(invalid, !fields.is_empty(), "BadRequest is for bad arguments: {status:?}");
    RpcError {
        code: status.code(),
        reason: info.reason.clone(),
        metadata: info.metadata.clone().into_iter().collect(),
        fields,
    }
}

/// Checks that a call was refused as it must be; gives the rest for closer looks.
#[track_caller]
pub(crate) fn assert_rpc_error<T: std::fmt::Debug>(
    answer: Result<T, Status>,
    code: Code,
    reason: &str,
    field: Option<&str>,
) -> RpcError {
    let refused = rpc_error(&answer.expect_err("a refusal"));
    assert_eq!((refused.code, refused.reason.as_str()), (code, reason), "{refused:?}");
    assert_eq!(refused.fields, field.map(str::to_owned).into_iter().collect::<Vec<_>>());
    refused
}
