//! `--fleet` on the client commands, and `caproot fleet`: the real binary against real daemons.

mod check;
mod flags;
mod moving;
mod probes;
mod watch;

use std::path::PathBuf;

use crate::harness::Daemon;
use crate::harness::fixture::Fixture;
use crate::harness::process::{Output, caproot, run_command};
use crate::harness::test_servers::unused_address;
use crate::orchestrator::start_daemon;

/// Two daemons, and a fleet file that also has a dead executor and a key of another environment.
pub(crate) struct TestFleet {
    pub(crate) fixture: Fixture,
    pub(crate) one: Daemon,
    pub(crate) two: Daemon,
    pub(crate) file: PathBuf,
}

impl TestFleet {
    pub(crate) async fn start() -> Self {
        let fixture = Fixture::new("skill one/a\nskill one/b\nskill two/c");
        let one = start_daemon("one", fixture.path("one"), None).await;
        let two = start_daemon("two", fixture.path("two"), None).await;
        let file = fixture.path("fleet.yaml");
        let fleet = Self {
            fixture,
            one,
            two,
            file,
        };
        let executors = [
            ("dead", unused_address()),
            ("one", fleet.one.address.clone()),
            ("two", fleet.two.address.clone()),
            ("wrong", fleet.two.address.clone()),
        ];
        fleet.write(&executors);
        fleet
    }

    /// Writes the fleet file. The executor `silent` has a short timeout.
    pub(crate) fn write(&self, executors: &[(&str, String)]) {
        let line = |(id, address): &(&str, String)| {
            let timeout = if *id == "silent" { "1s" } else { "30s" };
            format!("  {id}: {{endpoint: 'tcp:{address}', timeout: {timeout}}}\n")
        };
        let lines: String = executors.iter().map(line).collect();
        self.fixture
            .write("fleet.yaml", format!("executors:\n{lines}"));
    }

    /// Runs a command. The word `FLEET` stands for the fleet file.
    pub(crate) async fn run(&self, words: &str) -> Output {
        let file = self.file.to_str().expect("UTF-8");
        run_command(caproot(
            words
                .split_whitespace()
                .map(|word| word.replace("FLEET", file)),
        ))
        .await
    }

    pub(crate) async fn stop(self) {
        self.one.stop().await;
        self.two.stop().await;
    }
}
