//! Commands of one executor that run until a signal comes, while the fleet file names another daemon.

use rustix::process::Signal;
use serde_json::json;

use super::TestFleet;
use crate::harness::process::{Process, caproot};
use crate::mcp::host::Host;
use crate::orchestrator::start_daemon;

/// Fleet whose executor `one` moves to another daemon, with other skills, on another port.
struct MovingExecutor(TestFleet);

impl MovingExecutor {
    async fn start() -> Self {
        let fleet = TestFleet::start().await;
        fleet.fixture.write(
            "new/a/SKILL.md",
            "---\ndescription: Moved.\n---\nAnother body.\n",
        );
        fleet
            .fixture
            .write("new/moved/SKILL.md", "---\ndescription: Moved.\n---\n");
        fleet.write(&[("one", fleet.one.address.clone())]);
        Self(fleet)
    }

    fn command(&self, words: &str) -> std::process::Command {
        let mut command = caproot(words.split_whitespace());
        command
            .args(["--environment-id", "one", "--fleet"])
            .arg(&self.0.file);
        command
    }

    /// Stops the daemon, and names another one in the fleet file.
    async fn move_away(&mut self) {
        let next = start_daemon("one", self.0.fixture.path("new"), None).await;
        assert_ne!(next.address, self.0.one.address);
        std::mem::replace(&mut self.0.one, next).stop().await;
        self.0.write(&[("one", self.0.one.address.clone())]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_shows_the_skills_of_an_executor_that_moved() {
    let mut executor = MovingExecutor::start().await;
    let mut watch = Process::spawn(executor.command("watch"));
    while !watch.line().await.ends_with("+ b  skill://one/b  Does b.") {}
    executor.move_away().await;
    while !watch
        .line()
        .await
        .ends_with("+ moved  skill://one/moved  Moved.")
    {}
    assert_eq!(watch.exit_on(Signal::TERM).await.code, Some(0));
    executor.0.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_mcp_server_serves_the_skills_of_an_executor_that_moved() {
    let mut executor = MovingExecutor::start().await;
    let mut host = Host::start_command(executor.command("mcp"));
    let (before, _) = host
        .list_all("resources/list", "resources", json!({}))
        .await;
    assert_eq!(before[1]["uri"], "skill://one/b/SKILL.md", "{before:?}");
    let listen = json!({"notifications": {"resourcesListChanged": true}});
    host.send_request("subscriptions/listen", listen);
    host.next_notification().await;
    executor.move_away().await;
    let changed = host.next_notification().await;
    assert_eq!(changed["method"], "notifications/resources/list_changed");
    let (after, _) = host
        .list_all("resources/list", "resources", json!({}))
        .await;
    let uris: Vec<_> = after
        .iter()
        .map(|resource| resource["uri"].clone())
        .collect();
    assert_eq!(
        uris,
        ["skill://one/a/SKILL.md", "skill://one/moved/SKILL.md"]
    );
    let read = host
        .call("resources/read", json!({"uri": "skill://one/a/SKILL.md"}))
        .await;
    let text = read.expect("a file")["contents"][0]["text"].clone();
    assert!(
        text.as_str()
            .is_some_and(|text| text.contains("Another body.")),
        "{text}"
    );
    host.stop().await.succeeded();
    executor.0.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watched_directory_follows_an_executor_that_moved() {
    let mut executor = MovingExecutor::start().await;
    let mut command = executor.command("pull skill://one/a --watch");
    command.arg("--into").arg(executor.0.fixture.path("pulled"));
    let mut pull = Process::spawn(command);
    while !pull.line().await.starts_with("pulled: 1 file") {}
    executor.move_away().await;
    while !pull.line().await.starts_with("pulled: 1 file") {}
    let text = std::fs::read_to_string(executor.0.fixture.path("pulled/SKILL.md")).expect("a file");
    assert!(text.contains("Another body."), "{text}");
    assert_eq!(pull.exit_on(Signal::TERM).await.code, Some(0));
    executor.0.stop().await;
}
