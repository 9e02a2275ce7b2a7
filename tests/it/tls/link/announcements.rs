//! Executors that come back announce themselves to orchestrators that wait for them.

use caproot_client::{ExecutorDialer, NatsDialer};
use caproot_link::BrokerConfig;

use super::{LinkedExecutor, call_executor};
use crate::harness::in_time;

/// Dials the executor `one`, which also connects the dialer to the broker.
async fn dial_one(dialer: &NatsDialer) -> std::io::Result<()> {
    let endpoint = "tls:one.executors.example:7420"
        .parse()
        .expect("an endpoint");
    in_time(dialer.dial_executor("one", &endpoint))
        .await
        .map(drop)
}

/// Waits until the running link of the executor `one` announces the executor to an orchestrator.
pub(super) async fn wait_for_announcement(config: BrokerConfig) {
    let dialer = NatsDialer::new(config);
    dial_one(&dialer).await.expect("a tunnel");
    in_time(dialer.executor_announced("one")).await;
}

/// An orchestrator that waits for one environment hears the link of this environment only.
#[tokio::test]
async fn a_link_announces_its_executor() {
    let Some(executor) = LinkedExecutor::start().await else {
        return;
    };
    let dialer = NatsDialer::new(BrokerConfig::new(vec![executor.broker.url()]));
    dial_one(&dialer).await.expect_err("no link");
    let [one, two] = ["one", "two"].map(|id| tokio::spawn(dialer.executor_announced(id)));
    let link = executor.start_link("one", "").await;
    in_time(one).await.expect("no panic");
    assert!(!two.is_finished(), "no link serves the environment `two`");
    two.abort();
    drop(link);
}

/// While the broker was away, an orchestrator heard no claim, so the next connection counts as one.
#[tokio::test]
async fn a_new_connection_to_the_broker_announces_executors() {
    let Some(mut executor) = LinkedExecutor::start().await else {
        return;
    };
    let dialer = NatsDialer::new(BrokerConfig::new(vec![executor.broker.url()]));
    dial_one(&dialer).await.expect_err("no link");
    let announced = tokio::spawn(dialer.executor_announced("one"));
    executor.broker.kill();
    executor.broker.restart().await;
    in_time(announced).await.expect("no panic");
}

/// A subscriber takes the dial and never answers, as a frozen server does.
#[tokio::test]
async fn a_dial_without_an_answer_fails() {
    let Some(executor) = LinkedExecutor::start().await else {
        return;
    };
    let silent = executor.broker.record_everything().await;
    let error = call_executor(&executor.open_fleet().await, "one")
        .await
        .expect_err("no answer");
    assert!(
        error.contains("the link did not answer within 4s"),
        "{error}"
    );
    drop(silent);
}
