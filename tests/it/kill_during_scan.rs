//! A daemon that is killed in the middle of a search leaves nothing behind that matters.

use std::ffi::OsStr;
use std::time::Duration;

use caproot::client::{DaemonEndpoint, open_channel};
use caproot::proto::caproot::v1::capability_service_client::CapabilityServiceClient;
use caproot::proto::caproot::v1::{GetExecutorRequest, ListSkillsResponse};
use rustix::process::Signal;

use crate::binary::DaemonProcess;
use crate::fixture::Fixture;
use crate::harness::{Client, HANG_TIMEOUT, in_time, list_request, selected};

const SKILLS: usize = 500;

async fn start(fixture: &Fixture) -> (DaemonProcess, Client) {
    let listen = format!("unix:{}", fixture.path("run/c.sock").display());
    let flags = ["--listen", &listen, "--allow"].map(OsStr::new);
    let serving = DaemonProcess::start(&[&flags[..], &[fixture.path("r").as_os_str()]].concat());
    assert_eq!(serving.endpoint(), listen);
    let endpoint: DaemonEndpoint = listen.parse().expect("an endpoint");
    let channel = open_channel(&endpoint, Duration::from_secs(10)).await.expect("a connection");
    (serving, CapabilityServiceClient::new(channel))
}

/// What a list says, apart from what every start of a daemon makes anew.
fn lasting(list: ListSkillsResponse) -> ListSkillsResponse {
    assert!(list.next_page_token.is_empty(), "one page");
    ListSkillsResponse { epoch: String::new(), revision: 0, resume_token: String::new(), ..list }
}

#[tokio::test]
async fn killed_in_a_search_and_started_again_it_says_the_same() {
    let fixture = Fixture::new(&format!(
        "dir run\nmode 0700 run\nrepeat {SKILLS} skill r/s{{}}\nfile r/bad/SKILL.md\n| ---\n| bad"
    ));
    let mut request = list_request(&[selected("r", fixture.path("r"))]);
    request.page_size = 1_000;
    let (clean, mut client) = start(&fixture).await;
    let first = in_time(client.list_skills(request.clone())).await.expect("a list");
    let first = lasting(first.into_inner());
    assert_eq!((first.skills.len(), first.diagnostics.is_empty()), (SKILLS, false));
    assert_eq!(clean.terminate_async().await.0, Some(0));
    let mut cut = 0;
    for round in 0..20 {
        let (serving, mut client) = start(&fixture).await;
        let mut other = client.clone();
        let call = other.list_skills(request.clone());
        // Watches tell how far the search is.
        let far = async {
            let goal = round * SKILLS as u64 / 40;
            loop {
                let executor = client.get_executor(GetExecutorRequest {}).await.expect("answers");
                let used = executor.into_inner().watch.expect("a status").watches_used;
                if used > goal {
                    return serving.send_signal(Signal::KILL);
                }
            }
        };
        let (answer, ()) =
            tokio::time::timeout(HANG_TIMEOUT, async { tokio::join!(call, far) }).await.expect("no hang");
        drop(serving);
        match answer {
            Ok(list) => assert_eq!(lasting(list.into_inner()), first, "ended before the kill"),
            Err(_) => cut += 1,
        }
        assert!(fixture.path("run/c.sock").exists(), "nobody took the socket away");
        let (serving, mut client) = start(&fixture).await;
        let list = in_time(client.list_skills(request.clone())).await.expect("a list");
        assert_eq!(lasting(list.into_inner()), first);
        serving.send_signal(Signal::KILL);
    }
    println!("{cut} of 20 searches were cut off");
    assert!(cut > 0, "no search was cut off");
}
