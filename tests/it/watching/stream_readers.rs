//! Stream readers that stop, and a thousand stream readers.

use std::time::{Duration, Instant};

use caproot::daemon::catalog::WatchTiming;
use caproot::daemon::model::Limits;
use caproot_core::proto::caproot::v1::capability_service_client::CapabilityServiceClient;
use caproot_core::proto::caproot::v1::{ResetReason, SkillView, WatchSkillsRequest};
use tonic::Code;
use tonic::transport::Endpoint;

use crate::harness::fixture::Fixture;
use crate::harness::open_counter::OpenCounter;
use crate::harness::process::{Process, serve};
use crate::harness::process_usage::resident;
use crate::harness::replica::Replica;
use crate::harness::watch_harness::{WatchHarness, skill_text, watch_request, watch_status};
use crate::harness::{Daemon, Setup, assert_rpc_error, in_time, selected, short_or_long};

/// Connects to the daemon with flow-control windows of 64 KiB.
async fn connect_with_small_window(daemon: &Daemon) -> Daemon {
    let mut narrow = Daemon::connect_to(&daemon.address).await;
    let endpoint = Endpoint::new(format!("http://{}", daemon.address)).expect("an address");
    let endpoint = endpoint.initial_stream_window_size(65_535);
    let channel = in_time(endpoint.initial_connection_window_size(65_535).connect()).await;
    narrow.client = CapabilityServiceClient::new(channel.expect("a connection"));
    narrow
}

#[tokio::test]
async fn a_stalled_reader_is_reset() {
    let stalled_reader_timeout = Duration::from_millis(300);
    let mut live = WatchHarness::with_timing(
        "skill r/a",
        WatchTiming {
            stalled_reader_timeout,
            ..WatchTiming::default()
        },
    )
    .await;
    let root = selected("r", live.fixture.path("r"));
    let mut stuck = Replica::open(
        &connect_with_small_window(&live.daemon).await,
        watch_request(vec![root]),
    )
    .await;
    stuck.next_batch().await;
    // More data than fits between the daemon and a client that does not read.
    for n in 0..220 {
        let head = format!("---\nname: s{n}\ndescription: Fat.\nlicense: ");
        let fat = head + &"x".repeat(4_000) + "\n---\n";
        live.fixture.write(&format!("out/s{n:03}/SKILL.md"), fat);
    }
    std::fs::rename(live.fixture.path("out"), live.fixture.path("r/in")).expect("moved in whole");
    assert_eq!(
        live.next_change().await.upserted.len(),
        220,
        "in one revision"
    );
    let started = Instant::now();
    let mut round = 0;
    while started.elapsed() < stalled_reader_timeout * 4 {
        let says = format!("Round {round}.");
        live.fixture.write(
            &format!("r/in/s{:03}/SKILL.md", round % 50),
            skill_text("s", &says),
        );
        live.next_change().await;
        round += 1;
    }
    assert!(round > 4, "other readers are not delayed: {round}");
    let step = stuck.next_batch().await;
    assert_eq!(step.reset, Some(ResetReason::Resync));
    stuck.catch_up(&live.daemon).await;
    // The stream then continues as any other stream.
    live.fixture
        .write("r/a/SKILL.md", skill_text("a", "Read again."));
    assert_eq!(stuck.next_change().await.upserted, ["skill://r/a"]);
    live.finish().await;
}

#[tokio::test]
async fn readers_that_stop_use_no_memory() {
    let changes = short_or_long(300, 600);
    let fat = |says: &str| {
        let head = format!("---\nname: s\ndescription: {says}\nlicense: ");
        head + &"x".repeat(6_000) + "\n---\n"
    };
    let fixture = Fixture::new("dir r");
    for n in 0..100 {
        fixture.write(&format!("r/s{n:02}/SKILL.md"), fat("At first."));
    }
    fixture.write("config.yaml", "watch:\n  debounce: 0ms\n");
    let mut command = serve(["--config"]);
    command
        .arg(fixture.path("config.yaml"))
        .arg("--allow")
        .arg(fixture.top());
    let serving = Process::start(command);
    let daemon = serving.connect().await;
    let request = watch_request(vec![selected("r", fixture.path("r"))]);
    let mut reader = Replica::synced(&daemon, request.clone()).await;
    // Ten clients that have read the first state, and a client that never reads.
    let mut stopped = Vec::new();
    for n in 0..11 {
        let mut replica =
            Replica::open(&connect_with_small_window(&daemon).await, request.clone()).await;
        if n > 0 {
            replica.next_batch().await;
        }
        stopped.push(replica);
    }
    let mut memory = vec![resident(serving.pid())];
    for half in 0..2 {
        for change in 0..changes / 2 {
            let says = format!("Change {half}.{change}.");
            fixture.replace(&format!("r/s{:02}/SKILL.md", change % 100), fat(&says));
            let package = format!("skill://r/s{:02}", change % 100);
            reader
                .wait_while(|reader| reader.skills[&package].description != says)
                .await;
        }
        memory.push(resident(serving.pid()));
    }
    println!("{memory:?} KiB before, in the middle and at the end of {changes} changes of 6 KB");
    // All changes together would take 10 MiB or more for each client that does not read.
    assert!(memory[2] < memory[1] + (4 << 10), "{memory:?}");
    for (n, replica) in stopped.iter_mut().enumerate() {
        let before = replica.revision;
        let step = replica.next_batch().await;
        if n > 0 {
            assert!(
                matches!(step.reset, None | Some(ResetReason::Resync)),
                "{step:?}"
            );
            assert!(step.reset.is_some() || replica.revision > before);
        }
        replica.catch_up(&daemon).await;
        assert_eq!(replica.skills, reader.skills);
    }
    serving.stop().await;
}

/// Streams may share encoded events, but each stream gets the data of its own request.
#[tokio::test]
async fn streams_with_different_requests_get_their_own_data() {
    let mut live = WatchHarness::new("skill r/a\nskill s/a\ndir r/a/agents").await;
    let [r, s] = ["r", "s"].map(|id| selected(id, live.fixture.path(id)));
    let all = watch_request(vec![r.clone(), s.clone()]);
    let requests = [
        all.clone(),
        watch_request(vec![s.clone(), r.clone()]),
        watch_request(vec![selected("other", live.fixture.path("r"))]),
        WatchSkillsRequest {
            view: SkillView::Basic.into(),
            ..all.clone()
        },
        WatchSkillsRequest {
            product: "codex".into(),
            ..all.clone()
        },
    ];
    let mut replicas = Vec::new();
    for n in 0..3 * requests.len() {
        let request = requests[n % requests.len()].clone();
        replicas.push(Replica::open(&live.daemon, request).await);
    }
    for replica in &mut replicas {
        assert_eq!(replica.next_batch().await.reset, Some(ResetReason::Initial));
        replica.catch_up(&live.daemon).await;
    }
    // A client that resumes with a token before any event was sent to it.
    let mut resumed = replicas[0].fork();
    let sidecar = "policy:\n  products: [chatgpt]\n";
    live.fixture.write("out/openai.yaml", sidecar);
    let sidecar_path = live.fixture.path("r/a/agents/openai.yaml");
    std::fs::rename(live.fixture.path("out/openai.yaml"), sidecar_path).expect("moved in whole");
    live.next_change().await;
    live.fixture
        .replace("r/a/SKILL.md", skill_text("a", "Told to all."));
    live.next_change().await;
    resumed.resume(&live.daemon).await;
    for replica in replicas.iter_mut().chain([&mut resumed]) {
        replica.catch_up(&live.daemon).await;
    }
    for (n, replica) in replicas.iter().enumerate() {
        let package = ["skill://r/a", "skill://other/a"][usize::from(n % requests.len() == 2)];
        let is_listed = replica.skills.contains_key(package);
        assert_eq!(
            is_listed,
            n % requests.len() != 4,
            "{n}: a skill for another product"
        );
    }
    live.finish().await;
}

/// A fast reader overtakes a slow reader that stopped, and then the slow reader continues.
#[tokio::test]
async fn a_reader_that_overtakes_a_slow_one_misses_nothing() {
    let fixture = Fixture::new("dir r");
    for n in 0..400 {
        let head = format!("---\nname: s{n}\ndescription: Fat.\nlicense: ");
        let fat = head + &"x".repeat(4_000) + "\n---\n";
        fixture.write(&format!("r/s{n:03}/SKILL.md"), fat);
    }
    let daemon = Daemon::start(Setup::allowing([fixture.top().to_owned()])).await;
    let request = watch_request(vec![selected("r", fixture.path("r"))]);
    // The slow client takes the first events and leaves the rest unsent.
    let mut slow = Replica::open(&connect_with_small_window(&daemon).await, request.clone()).await;
    for _ in 0..3 {
        let mut fast = Replica::open(&daemon, request.clone()).await;
        let step = fast.next_batch().await;
        assert_eq!(
            (step.reset, step.upserted.len()),
            (Some(ResetReason::Initial), 400)
        );
        fast.catch_up(&daemon).await;
    }
    slow.next_batch().await;
    slow.catch_up(&daemon).await;
    assert_eq!(slow.skills.len(), 400);
    daemon.stop().await;
}

#[tokio::test]
async fn a_thousand_streams_get_one_change() {
    const STREAMS: usize = 1_000;
    let fixture = Fixture::new("skill r/a\nskill r/b");
    let timing = WatchTiming {
        // Longer than the first stream takes from the scan to the lease of the root.
        idle_timeout: Duration::from_secs(2),
        recheck_interval: Duration::from_millis(50),
        ..WatchTiming::default()
    };
    let limits = Limits {
        max_streams: STREAMS,
        ..Limits::default()
    };
    let setup = Setup {
        limits,
        timing,
        ..Setup::allowing([fixture.top().to_owned()])
    };
    let mut openings = OpenCounter::start(&fixture.path("r/a"));
    let daemon = Daemon::start(setup).await;
    let request = watch_request(vec![selected("r", fixture.path("r"))]);
    let mut connections = Vec::new();
    for _ in 0..10 {
        connections.push(Daemon::connect_to(&daemon.address).await);
    }
    let mut readers = Vec::new();
    for n in 0..STREAMS {
        let reader = Replica::synced(&connections[n % 10], request.clone()).await;
        readers.push(reader);
    }
    let one_more = daemon.watch(request.clone()).await;
    assert_rpc_error(one_more, Code::ResourceExhausted, "TOO_MANY_STREAMS", None);
    let alone = watch_status(&daemon).await.watches_used;
    assert_eq!(openings.count(), 1, "one scan served all streams");
    fixture.replace("r/a/SKILL.md", skill_text("a", "Told to all."));
    for reader in &mut readers {
        assert_eq!(reader.next_change().await.upserted, ["skill://r/a"]);
    }
    let (first, rest) = readers.split_first().expect("a thousand");
    assert!(
        rest.iter()
            .all(|r| (r.revision, &r.skills) == (first.revision, &first.skills))
    );
    assert_eq!(openings.count(), 1, "one rescan served all streams");
    let status_now = watch_status(&daemon).await;
    assert_eq!(
        (status_now.roots, status_now.watches_used),
        (1, alone),
        "one task watches the root"
    );
    drop(readers);
    // Without streams the root and its watches are released.
    let gone = async {
        loop {
            let status = watch_status(&daemon).await;
            if (status.roots, status.watches_used) == (0, 0) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    in_time(gone).await;
    let mut again = Replica::synced(&daemon, request).await;
    again.catch_up(&daemon).await;
    daemon.stop().await;
}
