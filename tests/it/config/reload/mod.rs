//! SIGHUP: the real binary reloads a changed config file while clients stay connected.

mod applied;
mod callers;
mod rejected;
mod service_manager;
mod unreadable;
mod watch_config;

use std::borrow::BorrowMut;
use std::process::Command;

use caproot_core::proto::caproot::v1::ConfigStatus;
use rustix::process::Signal;

use crate::harness::Daemon;
use crate::harness::fixture::Fixture;
use crate::harness::process::{ConfiguredDaemon, Process, serve_config, with_listener};

/// Log messages of an applied and of a rejected reload.
const APPLIED: &str = "the configuration was reloaded";
const REJECTED: &str = "keeping the previous configuration";

/// `caproot serve` with a config file that the test changes.
struct ReloadingDaemon {
    fixture: Fixture,
    process: Process,
    daemon: Daemon,
}

impl ReloadingDaemon {
    async fn start(tree: &str, config: &str) -> Self {
        let fixture = Fixture::new(tree);
        let command = serve_config(&fixture, config);
        Self::start_command(fixture, command).await
    }

    async fn start_command(fixture: Fixture, command: impl BorrowMut<Command>) -> Self {
        let ConfiguredDaemon { process, daemon } = ConfiguredDaemon::start_command(command).await;
        Self {
            fixture,
            process,
            daemon,
        }
    }

    /// Writes another config and waits until it is applied.
    async fn reload(&mut self, config: &str) {
        let before = self.config().await;
        let line = self.try_reload(config).await;
        assert!(line.contains(APPLIED), "{line}");
        // The status is updated just after the log line.
        while self.config().await == before {
            tokio::task::yield_now().await;
        }
    }

    /// Writes another config, sends SIGHUP, and returns the log line with the outcome.
    async fn try_reload(&mut self, config: &str) -> String {
        self.fixture.replace("caproot.yaml", with_listener(config));
        self.process.send_signal(Signal::HUP);
        loop {
            let line = self.process.log_line().await;
            if line.contains(APPLIED) || line.contains(REJECTED) {
                return line;
            }
        }
    }

    async fn config(&self) -> ConfigStatus {
        self.daemon
            .executor()
            .await
            .config
            .expect("a config status")
    }

    /// Stops the daemon and returns the remaining log.
    async fn stop(self) -> String {
        drop(self.daemon);
        self.process.stop().await
    }
}
