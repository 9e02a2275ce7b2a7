//! Approval of skills by a lock, in the real daemon.

mod commands;
mod config_errors;
mod hostile_author;
mod idle;
mod operator_views;
mod plugins;
mod reads;
mod reload;
mod session;
mod states;

use std::fs;
use std::path::Path;

use caproot_core::proto::caproot::v1::{
    Diagnostic, DiagnosticCode, ListSkillsResponse, Severity, TrustState,
};

use crate::harness::fixture::Fixture;
use crate::harness::process::{ConfiguredDaemon, caproot, run_command};
use crate::harness::{list_request, published};

/// Tree of one skill with supporting files, and of another skill.
const TREE: &str = "skill r/pdf\nfile r/pdf/scripts/fill.py\n| #!\nfile r/pdf/references/steps.md\n\
                    | One.\nskill r/mail";

/// Daemon with the root `r` and a lock of all skills that existed at its start.
struct LockedDaemon {
    fixture: Fixture,
    daemon: ConfiguredDaemon,
}

impl LockedDaemon {
    async fn start(tree: &str, mode: &str) -> Self {
        Self::start_with(Fixture::new(tree), mode).await
    }

    /// Approves the skills of a fixture, and starts the daemon.
    async fn start_with(fixture: Fixture, mode: &str) -> Self {
        lock_skills(&fixture, "--out caproot.lock").await;
        let daemon = ConfiguredDaemon::start(&fixture, &config(mode)).await;
        Self { fixture, daemon }
    }

    async fn list(&self) -> ListSkillsResponse {
        self.daemon.list(&[published("r")]).await
    }

    /// Lists again until a condition holds.
    async fn wait_for_list(
        &self,
        holds: impl Fn(&ListSkillsResponse) -> bool,
    ) -> ListSkillsResponse {
        loop {
            let request = list_request(&[published("r")]);
            let list = self.daemon.try_list(request).await.expect("a list");
            if holds(&list) {
                return list;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Number of diagnostics that are not notes.
fn warnings(list: &ListSkillsResponse) -> usize {
    let found = list.diagnostics.iter();
    found
        .filter(|found| found.severity() != Severity::Note)
        .count()
}

fn config(mode: &str) -> String {
    format!("roots: [{{id: r, path: r}}]\ntrust: {{lock: caproot.lock, mode: {mode}}}")
}

/// Runs `caproot lock r` in the directory of the fixture.
async fn lock_skills(fixture: &Fixture, flags: &str) {
    let mut command = caproot(["lock", "r"]);
    command.args(flags.split_whitespace());
    command.current_dir(fixture.top());
    run_command(command).await.succeeded();
}

/// Returns the name and the state of each listed skill.
fn states(list: &ListSkillsResponse) -> Vec<(&str, TrustState)> {
    list.skills
        .iter()
        .map(|skill| (skill.name.as_str(), skill.trust()))
        .collect()
}

fn diagnostic(list: &ListSkillsResponse, code: DiagnosticCode) -> Option<&Diagnostic> {
    list.diagnostics.iter().find(|found| found.code() == code)
}

/// Returns how many bytes a process has read.
fn bytes_read(pid: u32) -> u64 {
    let io = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("io"));
    let io = io.expect("the counters");
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.expect("rchar").parse().expect("a number")
}
