//! A daemon that is killed during a scan leaves no state that affects the next start.

use std::time::Duration;

use caproot_client::{DaemonEndpoint, open_channel};
use caproot_core::proto::caproot::v1::capability_service_client::CapabilityServiceClient;
use caproot_core::proto::caproot::v1::{GetExecutorRequest, ListSkillsResponse};
use rustix::process::Signal;

use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, caproot};
use crate::harness::{Client, HANG_TIMEOUT, in_time, list_request, selected};

const SKILLS: usize = 500;

async fn start_and_connect(fixture: &Fixture) -> (Process, Client) {
    let listen = format!("unix:{}", fixture.path("run/c.sock").display());
    let mut command = caproot(["serve", "--listen", &listen, "--allow"]);
    let serving = Process::start(command.arg(fixture.path("r")));
    assert_eq!(serving.endpoint(), listen);
    let endpoint: DaemonEndpoint = listen.parse().expect("an endpoint");
    let channel = open_channel(&endpoint, Duration::from_secs(10))
        .await
        .expect("a connection");
    (serving, CapabilityServiceClient::new(channel))
}

/// List without the fields that each start of a daemon sets: epoch, revision and token.
fn without_start_fields(list: ListSkillsResponse) -> ListSkillsResponse {
    assert!(list.next_page_token.is_empty(), "one page");
    ListSkillsResponse {
        epoch: String::new(),
        revision: 0,
        resume_token: String::new(),
        ..list
    }
}

#[tokio::test]
async fn the_list_is_the_same_after_a_kill_during_a_scan() {
    let fixture = Fixture::new(&format!(
        "dir run\nmode 0700 run\nrepeat {SKILLS} skill r/s{{}}\nfile r/bad/SKILL.md\n| ---\n| bad"
    ));
    let mut request = list_request(&[selected("r", fixture.path("r"))]);
    request.page_size = 1_000;
    let (clean, mut client) = start_and_connect(&fixture).await;
    let first = in_time(client.list_skills(request.clone()))
        .await
        .expect("a list");
    let first = without_start_fields(first.into_inner());
    assert_eq!(
        (first.skills.len(), first.diagnostics.is_empty()),
        (SKILLS, false)
    );
    clean.stop().await;
    let mut cut = 0;
    for round in 0..20 {
        let (serving, mut client) = start_and_connect(&fixture).await;
        let mut other = client.clone();
        let call = other.list_skills(request.clone());
        // The number of watches shows the progress of the scan.
        let kill_at_goal = async {
            let goal = round * SKILLS as u64 / 40;
            loop {
                let executor = client
                    .get_executor(GetExecutorRequest {})
                    .await
                    .expect("answers");
                let used = executor.into_inner().watch.expect("a status").watches_used;
                if used > goal {
                    return serving.send_signal(Signal::KILL);
                }
            }
        };
        let (answer, ()) =
            tokio::time::timeout(HANG_TIMEOUT, async { tokio::join!(call, kill_at_goal) })
                .await
                .expect("no hang");
        drop(serving);
        match answer {
            Ok(list) => assert_eq!(
                without_start_fields(list.into_inner()),
                first,
                "the scan ended before the kill"
            ),
            Err(_) => cut += 1,
        }
        assert!(fixture.path("run/c.sock").exists(), "the socket remains");
        let (serving, mut client) = start_and_connect(&fixture).await;
        let list = in_time(client.list_skills(request.clone()))
            .await
            .expect("a list");
        assert_eq!(without_start_fields(list.into_inner()), first);
        serving.send_signal(Signal::KILL);
    }
    println!("{cut} of 20 scans were interrupted");
    assert!(cut > 0, "no scan was interrupted");
}
