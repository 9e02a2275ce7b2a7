//! Fleets over TLS: the proof that an executor is the one of its environment, and streams of a
//! dialer.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use caproot_client::fleet::DialFuture;
use caproot_client::{
    ByteStream, DaemonEndpoint, ExecutorConfig, ExecutorDialer, Fleet, MirrorSelection,
    RetryPolicy, SpiffeId,
};
use futures_util::future::BoxFuture;
use tokio::io::{DuplexStream, copy_bidirectional};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::authority::{Authority, CertificateSpec, dns, uri};
use super::{Pki, TlsDaemon, call_executor};
use crate::harness::published;

/// Writes a fleet file whose executors `one` and `two` are one daemon, and opens the fleet.
async fn open_fleet(pki: &Pki, daemon: &TlsDaemon, proof: &str) -> Fleet {
    let line = |id: &str| {
        format!(
            "  {id}: {{endpoint: '{}', ca: ca.pem, {proof}}}\n",
            daemon.endpoint()
        )
    };
    pki.fixture.write(
        "fleet.yaml",
        format!("executors:\n{}{}", line("one"), line("two")),
    );
    Fleet::from_file(&pki.fixture.path("fleet.yaml"))
        .await
        .expect("a valid file")
}

#[tokio::test]
async fn the_certificate_must_name_the_environment() {
    let pki = Pki::new();
    let spec = CertificateSpec::server()
        .with_name(dns("one.executors.example"))
        .with_name(uri("spiffe://example.org/executor/one"));
    pki.issue("server", &spec);
    let daemon = pki.serve(&[]);
    for (proof, wrong) in [
        (
            "server_name: '{id}.executors.example'",
            "is not for two.executors.example, but for",
        ),
        (
            "spiffe_id: 'spiffe://example.org/executor/{id}'",
            "is not for spiffe://example.org/executor/two, but for \
             spiffe://example.org/executor/one",
        ),
    ] {
        let fleet = open_fleet(&pki, &daemon, proof).await;
        call_executor(&fleet, "one").await.expect(proof);
        let error = call_executor(&fleet, "two").await.expect_err(proof);
        assert!(error.contains(wrong), "{error}");
    }
    daemon.stop().await;
}

/// A SPIFFE ID must be the only URI of a certificate from a trusted authority.
#[tokio::test]
async fn certificates_without_one_spiffe_id_are_rejected() {
    let id = "spiffe://example.org/executor/one";
    let proof = "spiffe_id: 'spiffe://example.org/executor/{id}'";
    let several = CertificateSpec::client(id).with_name(uri("spiffe://example.org/executor/two"));
    let authority = CertificateSpec {
        is_authority: true,
        ..CertificateSpec::client(id)
    };
    for (spec, wrong) in [
        (CertificateSpec::server(), "but for no URI"),
        (several, "but for several URIs"),
        (authority, "the certificate of an authority"),
        (
            CertificateSpec::client(id).valid_years(2000, 2001),
            "has expired",
        ),
    ] {
        let pki = Pki::new();
        pki.issue("server", &spec);
        let daemon = pki.serve(&[]);
        let error = call_executor(&open_fleet(&pki, &daemon, proof).await, "one")
            .await
            .expect_err(wrong);
        assert!(error.contains(wrong), "{error}");
        daemon.stop().await;
    }
    let pki = Pki::new();
    pki.write(
        "server",
        &Authority::new("other").issue(&CertificateSpec::client(id)),
    );
    let daemon = pki.serve(&[]);
    let error = call_executor(&open_fleet(&pki, &daemon, proof).await, "one")
        .await
        .expect_err("untrusted");
    assert!(
        error.contains("from an authority that is not trusted"),
        "{error}"
    );
    daemon.stop().await;
}

/// Dialer that leads to a port of this machine through a pipe in memory.
#[derive(Clone)]
struct PipeDialer {
    port: u16,
    dials: Arc<Mutex<Vec<String>>>,
    /// Tasks that move the bytes. Without its task, a pipe stays open and carries nothing.
    pipes: Arc<Mutex<Vec<JoinHandle<()>>>>,
    /// Ends of pipes that nothing reads.
    frozen: Arc<Mutex<Vec<DuplexStream>>>,
}

impl PipeDialer {
    fn new(port: u16) -> Self {
        let (dials, pipes, frozen) = (Arc::default(), Arc::default(), Arc::default());
        Self {
            port,
            dials,
            pipes,
            frozen,
        }
    }

    /// Stops all pipes without closing them, as if the machine of the executor vanished.
    fn freeze(&self) {
        for pipe in self.pipes.lock().expect("no panic").drain(..) {
            pipe.abort();
        }
    }
}

impl ExecutorDialer for PipeDialer {
    fn dial_executor<'a>(
        &'a self,
        environment_id: &'a str,
        endpoint: &'a DaemonEndpoint,
    ) -> DialFuture<'a> {
        self.dials
            .lock()
            .expect("no panic")
            .push(format!("{environment_id} {endpoint}"));
        Box::pin(async {
            let mut connection = TcpStream::connect(("127.0.0.1", self.port)).await?;
            let (near, far) = tokio::io::duplex(1 << 16);
            let mut far = FrozenAtDrop(Some(far), self.frozen.clone());
            let pipe = tokio::spawn(async move {
                let far = far.0.as_mut().expect("a pipe");
                // Both sides may close at any time.
                drop(copy_bidirectional(far, &mut connection).await);
            });
            self.pipes.lock().expect("no panic").push(pipe);
            Ok(Box::new(near) as Box<dyn ByteStream>)
        })
    }
}

/// End of a pipe that stays open when its task is aborted.
struct FrozenAtDrop(Option<DuplexStream>, Arc<Mutex<Vec<DuplexStream>>>);

impl Drop for FrozenAtDrop {
    fn drop(&mut self) {
        self.1.lock().expect("no panic").extend(self.0.take());
    }
}

/// TLS runs inside the stream of a dialer, from the client to the daemon.
#[tokio::test]
async fn a_dialer_carries_the_connection() {
    let pki = Pki::new();
    let id = "spiffe://example.org/executor/one";
    pki.issue("server", &CertificateSpec::client(id));
    let daemon = pki.serve_mutual();
    let dialer = PipeDialer::new(daemon.port);
    let endpoint = "tls:unresolvable.invalid:7420";
    let config = |spiffe_id: &str| {
        let mut executor = ExecutorConfig::new(endpoint.parse().expect("an endpoint"));
        executor.credentials = pki.client_credentials("client");
        executor.credentials.spiffe_id = Some(spiffe_id.parse::<SpiffeId>().expect("an id"));
        executor
    };
    let plain = ExecutorConfig::new("tcp:localhost:1".parse().expect("an endpoint"));
    let executors = [
        ("one".to_owned(), config(id)),
        (
            "two".to_owned(),
            config("spiffe://example.org/executor/two"),
        ),
        ("plain".to_owned(), plain),
    ];
    let fleet = Fleet::from_executors(executors).with_dialer(dialer.clone());
    call_executor(&fleet, "one").await.expect("an answer");
    assert_eq!(
        *dialer.dials.lock().expect("no panic"),
        [format!("one {endpoint}")]
    );
    // The dialer leads to the executor of another environment.
    let error = call_executor(&fleet, "two")
        .await
        .expect_err("another executor");
    assert!(
        error.contains("but for spiffe://example.org/executor/one"),
        "{error}"
    );
    let error = call_executor(&fleet, "plain").await.expect_err("no TLS");
    assert!(
        error.contains("the stream of a dialer is not trusted"),
        "{error}"
    );
    assert_eq!(
        dialer.dials.lock().expect("no panic").len(),
        2,
        "a refused endpoint is not dialled"
    );
    daemon.stop().await;
}

/// Pings find the end of a connection whose machine vanished, and the next call connects again.
#[tokio::test]
async fn a_connection_to_a_vanished_machine_is_closed() {
    let pki = Pki::new();
    let daemon = pki.serve(&[]);
    let dialer = PipeDialer::new(daemon.port);
    let mut executor = ExecutorConfig::new("tls:localhost:7420".parse().expect("an endpoint"));
    executor.credentials = pki.ca_credentials();
    let fleet = Fleet::from_executors([("one".to_owned(), executor)]).with_dialer(dialer.clone());
    // A client in use, without a call.
    let client = fleet.client("one").await.expect("a client");
    call_executor(&fleet, "one").await.expect("an answer");
    assert_eq!(fleet.stats().connections, 1);
    dialer.freeze();
    tokio::time::pause();
    // Less than the 40 s of a connection without a dialer.
    for _ in 0..30 {
        tokio::time::advance(Duration::from_secs(1)).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
    while fleet.stats().connections > 0 {
        tokio::task::yield_now().await;
    }
    tokio::time::resume();
    call_executor(&fleet, "one")
        .await
        .expect("an answer on a new connection");
    assert_eq!((fleet.stats().connections, fleet.stats().dials), (1, 2));
    drop(client);
    daemon.stop().await;
}

/// Dialer that records the time of each dial, and ends it after a delay.
#[derive(Clone)]
struct SlowDialer {
    delay: Duration,
    starts: Arc<Mutex<Vec<Instant>>>,
}

impl ExecutorDialer for SlowDialer {
    fn dial_executor<'a>(&'a self, _: &'a str, _: &'a DaemonEndpoint) -> DialFuture<'a> {
        self.starts.lock().expect("no panic").push(Instant::now());
        Box::pin(async {
            tokio::time::sleep(self.delay).await;
            Err(io::ErrorKind::ConnectionRefused.into())
        })
    }
}

/// Dialer whose dials fail. The executor announces itself 1 s after each question.
struct AnnouncingDialer(mpsc::UnboundedSender<Instant>);

impl ExecutorDialer for AnnouncingDialer {
    fn dial_executor<'a>(&'a self, _: &'a str, _: &'a DaemonEndpoint) -> DialFuture<'a> {
        // The test may have seen enough.
        let _ = self.0.send(Instant::now());
        Box::pin(std::future::ready(Err(
            io::ErrorKind::ConnectionRefused.into()
        )))
    }

    fn executor_announced(&self, _: &str) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(Duration::from_secs(1)))
    }
}

/// Without announcements, the delays of a mirror are random parts of 10 s.
#[tokio::test(start_paused = true)]
async fn a_mirror_connects_within_a_second_of_an_announcement() {
    let pki = Pki::new();
    let mut executor = ExecutorConfig::new("tls:unresolvable.invalid:1".parse().expect("valid"));
    executor.credentials = pki.ca_credentials();
    let (sender, mut dials) = mpsc::unbounded_channel();
    let fleet = Fleet::from_executors([("one".to_owned(), executor)]);
    let fleet = fleet.with_dialer(AnnouncingDialer(sender));
    let mirror = fleet.mirror("one", MirrorSelection::new(vec![published("root")]));
    let mut last = dials.recv().await.expect("a dial");
    // The TLS files are read before a dial.
    let limit = Duration::from_millis(2_050);
    for number in 0..60 {
        let next = dials.recv().await.expect("a dial");
        assert!(
            next.duration_since(last) <= limit,
            "{number}: {:?}",
            next - last
        );
        last = next;
    }
    drop(mirror);
}

/// Dials all of many environments at once, and returns the time of each dial since the first one.
async fn dial_at_once(count: usize, delay: Duration) -> Vec<Duration> {
    let pki = Pki::new();
    let mut executor = ExecutorConfig::new("tls:unresolvable.invalid:1".parse().expect("valid"));
    executor.credentials = pki.ca_credentials();
    executor.timeout = Duration::from_hours(1);
    let ids: Vec<_> = (0..count).map(|number| format!("e{number}")).collect();
    let dialer = SlowDialer {
        delay,
        starts: Arc::default(),
    };
    let fleet = Fleet::from_executors(ids.iter().map(|id| (id.clone(), executor.clone())));
    let fleet = fleet.with_dialer(dialer.clone());
    let calls = ids.iter().map(|id| async {
        let client = fleet.client(id).await.expect("a client");
        let mut client = client.with_retry_policy(RetryPolicy::NONE);
        client.get_executor().await.expect_err("no stream");
    });
    futures_util::future::join_all(calls).await;
    let stats = fleet.stats();
    assert_eq!(
        (stats.dials, stats.failed_dials),
        (count as u64, count as u64)
    );
    assert_eq!((stats.dials_in_progress, stats.waiting_dials), (0, 0));
    let dials = dialer.starts.lock().expect("no panic").clone();
    dials
        .iter()
        .map(|start| start.duration_since(dials[0]))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn at_most_100_dials_start_in_a_second() {
    let starts = dial_at_once(350, Duration::ZERO).await;
    // Timers have a resolution of 1 ms, and the TLS files are read before a dial.
    let tolerance = Duration::from_millis(50);
    for (number, start) in starts.iter().enumerate() {
        let second = Duration::from_secs((number / 100) as u64);
        assert!(
            *start + tolerance >= second && *start <= second + tolerance,
            "{number}: {start:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn at_most_64_dials_are_in_progress() {
    let delay = Duration::from_secs(5);
    let starts = dial_at_once(200, delay).await;
    for (number, start) in starts.iter().enumerate().skip(64) {
        assert!(*start >= starts[number - 64] + delay, "{number}: {start:?}");
    }
}
