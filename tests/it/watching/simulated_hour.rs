//! Bookmarks during an hour without changes, on simulated time. Sockets do not support simulated
//! time, so the test calls the service without a socket, behind the load limit layer.

use std::time::SystemTime;

use caproot::daemon::catalog::{CatalogStore, CatalogStoreConfig, PolicyConfig};
use caproot::daemon::config::{Config, ServeFlags};
use caproot::daemon::grpc::auth::Caller;
use caproot::daemon::grpc::{
    AuditLog, AuthLayer, AuthRules, DaemonInfo, GrpcService, LoadLimit, LoadLimitLayer, Quota,
    RpcDispatcher,
};
use caproot::daemon::model::{PeerIdentity, ReadinessConfig, SandboxStatus};
use caproot::daemon::readiness::ReadinessChecker;
use caproot_core::proto::caproot::v1::capability_service_client::CapabilityServiceClient;
use caproot_core::proto::caproot::v1::watch_skills_response::Event;
use caproot_core::proto::caproot::v1::{WatchSkillsRequest, WatchSkillsResponse};
use tokio::sync::watch;
use tokio::time::{Duration, Instant};
use tokio_stream::{Stream, StreamExt as _};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status};
use tower::Layer as _;

use crate::harness::fixture::Fixture;
use crate::harness::watch_harness::{skill_text, watch_request};
use crate::harness::{isolated_env, selected};

const HOUR: Duration = Duration::from_hours(1);

/// Client of a service that is set up as in a daemon, in this process.
type Client = CapabilityServiceClient<LoadLimit<RpcDispatcher>>;

fn build_client(fixture: &Fixture, stopping: &CancellationToken) -> Client {
    let flags = ServeFlags {
        allow: vec![fixture.top().to_owned()],
        ..ServeFlags::default()
    };
    let config = Config::from_flags(flags, &isolated_env(fixture.top())).expect("valid flags");
    let rules = config.search_rules();
    let Config {
        environment_ids: environments,
        allowed_dirs: allowed,
        published_roots: published,
        timing,
        faults,
        ..
    } = config;
    let opener = None;
    let policy = PolicyConfig {
        environments,
        allowed_dirs: allowed,
        published_roots: published,
        rules,
        timing,
    };
    let streams = Quota::for_streams(&policy.rules.limits);
    let limit_layer = LoadLimitLayer::new(&policy.rules.limits, open_auth_layer());
    let store = CatalogStore::new(
        CatalogStoreConfig {
            policy,
            fault_injector: faults,
            opener,
        },
        1,
    );
    let info = DaemonInfo {
        start_time: SystemTime::now(),
        build: "",
        sandbox: SandboxStatus::default(),
        config_state: watch::Sender::default().subscribe(),
    };
    let service = GrpcService::new(
        store,
        ReadinessChecker::new(&ReadinessConfig::default()),
        info,
        streams,
        stopping.clone(),
    );
    let dispatcher = RpcDispatcher::new(service, AuditLog::new(false));
    CapabilityServiceClient::new(limit_layer.layer(dispatcher))
}

/// Authentication without rules.
fn open_auth_layer() -> AuthLayer {
    let rules = AuthRules {
        callers: None,
        public_health: true,
        public_reflection: true,
    };
    AuthLayer::new(rules, AuditLog::new(false))
}

/// Request of a local caller with valid credentials.
fn local_request<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let peer = PeerIdentity::Local {
        pid: 0,
        uid: 0,
        gids: [].into(),
    };
    let auth_layer = open_auth_layer();
    let credentials = auth_layer.request_credentials(Some(&peer), &http::HeaderMap::new());
    request.extensions_mut().insert(credentials);
    request.extensions_mut().insert(peer);
    request.extensions_mut().insert(Caller::default());
    request
}

/// Returns the next event and its time.
async fn next_event<S>(stream: &mut S) -> (Instant, WatchSkillsResponse)
where
    S: Stream<Item = Result<WatchSkillsResponse, Status>> + Unpin,
{
    let event = stream
        .next()
        .await
        .expect("an open stream")
        .expect("without an error");
    (Instant::now(), event)
}

async fn next_synced<S>(stream: &mut S) -> (Instant, u64)
where
    S: Stream<Item = Result<WatchSkillsResponse, Status>> + Unpin,
{
    loop {
        let (at, response) = next_event(stream).await;
        if matches!(response.event, Some(Event::Synced(_))) {
            return (at, response.revision);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_hour_without_a_change_gives_only_bookmarks() {
    let fixture = Fixture::new("repeat 20 skill r/s{}\nlink r/l -> ../v\nskill v/a");
    let stopping = CancellationToken::new();
    let mut client = build_client(&fixture, &stopping);
    // Requested intervals and the intervals that the daemon uses.
    let intervals = [
        (None, Duration::from_secs(30)),
        (Some(Duration::from_millis(1)), Duration::from_secs(1)),
        (
            Some(Duration::from_millis(44_500)),
            Duration::from_millis(44_500),
        ),
        (Some(HOUR), Duration::from_mins(5)),
    ];
    let mut streams = Vec::new();
    for (requested, interval) in intervals {
        let request = WatchSkillsRequest {
            bookmark_interval: requested.map(|d| d.try_into().expect("a duration")),
            ..watch_request(vec![selected("r", fixture.path("r"))])
        };
        let opened = client
            .watch_skills(local_request(request))
            .await
            .expect("a stream");
        let mut stream = opened.into_inner();
        let (at, revision) = next_synced(&mut stream).await;
        streams.push((stream, interval, at, revision));
    }
    let bookmarks = streams
        .into_iter()
        .map(async |(mut stream, interval, started, revision)| {
            let (mut last, mut count) = (started, 0);
            while last + interval <= started + HOUR {
                let (at, response) = next_event(&mut stream).await;
                assert!(
                    matches!(response.event, Some(Event::Bookmark(_))),
                    "{response:?}"
                );
                assert_eq!(response.revision, revision, "no revision without a change");
                // The runtime's clock has a resolution of one millisecond.
                let waited = (at - last).abs_diff(interval);
                assert!(
                    waited <= Duration::from_millis(1),
                    "{:?}, not {interval:?}",
                    at - last
                );
                (last, count) = (at, count + 1);
            }
            println!("{count} bookmarks in an hour, every {interval:?}");
            (stream, interval)
        });
    let streams = futures_util::future::join_all(bookmarks).await;
    // The streams are still open: a change is sent and delays the next bookmark.
    fixture.replace("r/s07/SKILL.md", skill_text("s07", "Changed."));
    let changes = streams.into_iter().map(async |(mut stream, interval)| {
        let (changed, _) = next_synced(&mut stream).await;
        let (at, response) = next_event(&mut stream).await;
        assert!(
            matches!(response.event, Some(Event::Bookmark(_))),
            "{response:?}"
        );
        assert!((at - changed).abs_diff(interval) <= Duration::from_millis(1));
    });
    futures_util::future::join_all(changes).await;
}
