//! Two links for one environment.

use rustix::process::Signal;

use super::{LinkedExecutor, call_executor, call_until_success};
use crate::config::metrics::scrape_address;
use crate::harness::process::{Process, caproot};

/// The newer link serves. If the newer link ends with a message or without one, the older link
/// serves again.
#[tokio::test]
async fn the_newest_link_serves() {
    let Some(executor) = LinkedExecutor::start().await else {
        return;
    };
    let mut older = executor.start_link("one", "").await;
    older.wait_for_log("environment claimed").await;
    let fleet = executor.open_fleet().await;
    // The client keeps its tunnel through the older link.
    let client = fleet.client("one").await.expect("a client");
    call_executor(&fleet, "one").await.expect("an answer");
    for signal in [Signal::TERM, Signal::KILL] {
        let newer = executor.start_link("one", "").await;
        older
            .wait_for_log("a newer link serves the environment")
            .await;
        call_until_success(&fleet, "one").await;
        newer.send_signal(signal);
        older.wait_for_log("environment claimed").await;
        call_until_success(&fleet, "one").await;
    }
    assert!(older.is_running());
    drop(client);
}

/// A link with the metrics counts its environments and tunnels.
#[tokio::test]
async fn metrics_count_environments_and_tunnels() {
    let Some(executor) = LinkedExecutor::start().await else {
        return;
    };
    let mut command = caproot(["link", "--config"]);
    let more = "metrics: {listen: 'tcp:127.0.0.1:0'}\n";
    command.arg(executor.write_link("one", more));
    let mut link = Process::start_until(command, |endpoints| !endpoints.is_empty());
    assert_eq!(link.line().await, "linked one");
    let fleet = executor.open_fleet().await;
    let client = fleet.client("one").await.expect("a client");
    call_executor(&fleet, "one").await.expect("an answer");
    let address = link.address().to_owned();
    let text = scrape_address(&address).await;
    for line in [
        "caproot_link_broker_connected 1",
        "caproot_link_served_environments 1",
        "caproot_link_open_tunnels 1",
        "caproot_link_dials_total 1",
        "caproot_link_refused_dials_total 0",
        "caproot_link_superseded_total 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    let newer = executor.start_link("one", "").await;
    link.wait_for_log("a newer link serves the environment")
        .await;
    let text = scrape_address(&address).await;
    assert!(text.contains("caproot_link_superseded_total 1"), "{text}");
    assert!(
        text.contains("caproot_link_served_environments 0"),
        "{text}"
    );
    drop((client, newer));
}
