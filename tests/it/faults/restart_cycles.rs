//! Starts and stops a daemon many times, cleanly or killed at any moment. The next daemon takes its
//! socket and gives the same list.

use std::time::{Duration, Instant};

use caproot_client::{DaemonEndpoint, open_channel};
use caproot_core::proto::caproot::v1::capability_service_client::CapabilityServiceClient;
use caproot_core::proto::caproot::v1::{ListSkillsRequest, ListSkillsResponse};
use prost::Message as _;
use rustix::process::Signal;
use sha2::{Digest as _, Sha256};

use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, caproot};
use crate::harness::{in_time, list_request, selected, short_or_long};

/// Ways in which a daemon ends, in turn.
#[derive(Clone, Copy, Debug)]
enum Shutdown {
    /// SIGTERM, once the daemon has answered.
    Terminated,
    /// SIGKILL, once the daemon has answered.
    Killed,
    /// SIGKILL as soon as the daemon prints its listener.
    KilledWhenListening,
    /// SIGKILL at some moment before the daemon listens.
    KilledDuringStart,
}

const SHUTDOWNS: [Shutdown; 4] = [
    Shutdown::Terminated,
    Shutdown::KilledDuringStart,
    Shutdown::Killed,
    Shutdown::KilledWhenListening,
];

/// Digest of a list without the fields that each start of a daemon sets: epoch, revision and token.
fn digest_lasting_fields(list: ListSkillsResponse) -> [u8; 32] {
    assert!(list.next_page_token.is_empty(), "one page");
    let none = String::new;
    let lasting = ListSkillsResponse {
        epoch: none(),
        revision: 0,
        resume_token: none(),
        ..list
    };
    Sha256::digest(lasting.encode_to_vec()).into()
}

async fn list_digest(endpoint: &str, request: &ListSkillsRequest) -> [u8; 32] {
    let endpoint: DaemonEndpoint = endpoint.parse().expect("an endpoint");
    let channel = in_time(open_channel(&endpoint, Duration::from_secs(10)))
        .await
        .expect("a connection");
    let mut client = CapabilityServiceClient::new(channel);
    digest_lasting_fields(
        in_time(client.list_skills(request.clone()))
            .await
            .expect("a list")
            .into_inner(),
    )
}

#[tokio::test]
async fn the_list_is_the_same_after_each_restart() {
    let fixture = Fixture::new(
        "dir run\nmode 0700 run\nrepeat 20 skill r/s{}\nfile r/bad/SKILL.md\n| ---\n| bad",
    );
    let listen = format!("unix:{}", fixture.path("run/c.sock").display());
    let command = || {
        let mut command = caproot(["serve", "--listen", &listen, "--allow"]);
        command.arg(fixture.path("r"));
        command
    };
    let request = list_request(&[selected("r", fixture.path("r"))]);
    let (rounds, mut first) = (short_or_long(100, 1_000), None);
    let started = Instant::now();
    for (round, end) in (0..rounds).zip(SHUTDOWNS.iter().cycle()) {
        if matches!(end, Shutdown::KilledDuringStart) {
            let process = Process::spawn(command());
            // Waits another time in each round, from before exec to after the daemon listens.
            std::thread::sleep(Duration::from_micros(round * 7_919 % 20_000));
            drop(process);
            continue;
        }
        let serving = Process::start(command());
        if !matches!(end, Shutdown::KilledWhenListening) {
            let digest = list_digest(&listen, &request).await;
            assert_eq!(
                *first.get_or_insert(digest),
                digest,
                "round {round}: another catalog"
            );
        }
        if matches!(end, Shutdown::Terminated) {
            serving.stop().await;
            assert!(
                !fixture.path("run/c.sock").exists(),
                "round {round}: the socket stays"
            );
        } else {
            serving.send_signal(Signal::KILL);
        }
    }
    println!("{rounds} starts in {:.1?}", started.elapsed());
}
