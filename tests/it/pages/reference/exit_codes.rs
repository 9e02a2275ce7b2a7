//! `docs/reference/exit-codes.md`, and the exit codes of each command.

use std::fmt::Write as _;
use std::fs::File;
use std::io::pipe;
use std::process::Command;

use caproot::cli::exit::EXIT_CODES;
use caproot_core::proto::caproot::v1::capability_service_server::CapabilityServiceServer;
use rustix::process::Signal;
use tonic::service::Routes;
use tonic::service::interceptor::InterceptedService;
use tonic::{Code, Status};
use tonic_health::ServingStatus;

use super::check_page;
use super::commands::{cell, command_names, leaf_commands};
use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, caproot, run_command};
use crate::harness::test_servers::{HostileDaemon, free_port, silent_listener, start_grpc};
use crate::harness::{Daemon, Setup};

fn render_exit_codes() -> String {
    let mut page = String::from(
        "# Exit codes\n\n\
         The exit codes of all commands. Codes from 70 up are the codes of `sysexits.h`. A script that \
         repeats a command should do so after 3 and 6 only: the other codes need a change first.\n\n\
         | code | name | meaning | commands |\n| --- | --- | --- | --- |\n",
    );
    for entry in EXIT_CODES {
        let (code, name, commands) = (entry.code, entry.name, command_names(entry.commands));
        writeln!(
            page,
            "| {code} | `{name}` | {} | {commands} |",
            cell(entry.meaning)
        )
        .expect("a String");
    }
    page.push_str("\n[Commands](cli.md) lists the exit codes of each command.\n");
    page
}

#[test]
fn the_page_of_the_exit_codes_is_current() {
    check_page("exit-codes", &render_exit_codes());
    assert!(
        EXIT_CODES.is_sorted_by_key(|entry| entry.code),
        "in ascending order"
    );
}

/// Starts a server that rejects each call of the daemon's service with one status. Returns the
/// endpoint.
async fn start_rejecting_server(code: Code, health: ServingStatus) -> String {
    let (reporter, health_service) = tonic_health::server::health_reporter();
    reporter.set_service_status("", health).await;
    let reject = move |_| Err(Status::new(code, "rejected by the test"));
    let daemon = CapabilityServiceServer::new(HostileDaemon::default());
    let services = Routes::new(health_service);
    let services = services.add_service(InterceptedService::new(daemon, reject));
    format!("tcp:{}", start_grpc(&free_port(), services).await)
}

/// Returns the arguments of a command that succeeds. `$CODE` stands for the exit code.
fn valid_args(command: &str) -> &str {
    match command {
        "resources" => "resources skill://skills/pdf",
        "read" => "read skill://skills/pdf",
        "search" => "search pdf",
        "pull" => "pull skill://skills/pdf --force --into $TMP/pulled",
        "lock" => "lock --out $TMP/lock-$CODE",
        "exec" => "exec skill://skills/pdf/run.sh --copies $TMP/copies",
        "check" => "check $TMP/skills",
        "new" => "new skill-$CODE --into $TMP/new",
        "config check" => "config check $TMP/caproot.yaml",
        "completions" => "completions bash",
        "fleet check" => "fleet check $TMP/fleet.yaml",
        "fleet list" => "fleet list $TMP/fleet.yaml",
        "link" => "link --config $TMP/link.yaml",
        "link check" => "link check $TMP/link.yaml",
        "serve" => "serve --root $TMP/skills --listen tcp:127.0.0.1:0",
        other => other,
    }
}

/// Returns the endpoint of the daemon's Unix socket.
fn socket_of(fixture: &Fixture) -> String {
    format!("unix:{}", fixture.path("run/c.sock").display())
}

/// The state of a machine on which commands run: a daemon with one skill, and files.
struct Machine {
    fixture: Fixture,
    daemon: Daemon,
}

impl Machine {
    async fn start() -> Self {
        let fixture = Fixture::new(
            "dir run\nmode 0700 run\nskill skills/pdf\nfile skills/pdf/run.sh\n| exit 0\nfile broken/a/SKILL.md\n| no frontmatter
            file caproot.yaml\n| roots: []
            file link.yaml\n| {environment_ids: [a], daemon: 'tls:127.0.0.1:1', nats: {servers: ['nats://127.0.0.1:1']}, metrics: {listen: 'tcp:127.0.0.1:0'}}
            file empty.lock\n| {\"version\":1,\"skills\":[]}
            file dead.yaml\n| executors: {local: {endpoint: 'unix:/nonexistent'}}",
        );
        let daemon = Daemon::start(Setup {
            listen: vec![socket_of(&fixture)],
            ..Setup::publishing("skills", fixture.path("skills"))
        })
        .await;
        let executor = format!(
            "executors: {{local: {{endpoint: 'tcp:{}'}}}}",
            daemon.address
        );
        fixture.write("fleet.yaml", executor);
        Self { fixture, daemon }
    }

    /// Command for the daemon of this machine. `$TMP` in the words means the directory of the files.
    fn command(&self, words: &str) -> Command {
        // `exec` trusts no TCP port.
        if words.starts_with("exec ") {
            return self.command_for(&socket_of(&self.fixture), words);
        }
        self.command_for(&format!("tcp:{}", self.daemon.address), words)
    }

    fn command_for(&self, endpoint: &str, words: &str) -> Command {
        let top = self.fixture.top().to_str().expect("UTF-8");
        let mut command = caproot(words.replace("$TMP", top).split_whitespace());
        command.env("CAPROOT_ENDPOINT", endpoint);
        command
    }

    /// Command that listens on an address.
    fn listening_command(&self, name: &str, address: &str) -> Command {
        if name == "link" {
            let text = format!(
                "environment_ids: [a]\ndaemon: tls:127.0.0.1:1\nnats: {{servers: \
                 [nats://127.0.0.1:1]}}\nmetrics: {{listen: 'tcp:{address}'}}\n"
            );
            self.fixture.write("taken.yaml", text);
            return self.command("link --config $TMP/taken.yaml");
        }
        let flag = match name {
            "mcp" => "--http ",
            _ => "--listen tcp:",
        };
        self.command(&format!("{name} {flag}{address}"))
    }

    /// Runs a command so that it exits with the code. Returns the exit code and the error output, or
    /// `None` if this machine cannot produce the code.
    async fn produce(&self, code: u8, name: &str) -> Option<(Option<i32>, String)> {
        let valid = valid_args(name).replace("$CODE", &code.to_string());
        let valid = valid.as_str();
        let command = match (code, name) {
            (0, "serve" | "link") => {
                let daemon = Process::start(&mut self.command(valid));
                let output = daemon.exit_on(Signal::TERM).await;
                return Some((output.code, output.stderr));
            }
            // A closed stdout ends the watch.
            (0, "watch") => {
                let mut command = self.command(valid);
                command.stdout(pipe().expect("a pipe").1);
                command
            }
            (0, _) => self.command(valid),
            (125, "exec") => self.command("exec skill://skills/pdf/run.sh --unknown"),
            (126, "exec") => {
                let digest = "0".repeat(64);
                self.command(&format!("{valid} --digest sha256:{digest}"))
            }
            (127, "exec") => self.command("exec skill://skills/pdf/none.sh --copies $TMP/copies"),
            (1, "status") => {
                let health = ServingStatus::NotServing;
                self.command_for(
                    &start_rejecting_server(Code::Unavailable, health).await,
                    valid,
                )
            }
            (1, "pull") => self.command("pull skill://skills/pdf --into $TMP/broken"),
            (1, "lock") => self.command("lock --check $TMP/empty.lock"),
            (1, "check") => self.command("check $TMP/broken"),
            (1, "fleet list") => self.command(&format!("{name} $TMP/dead.yaml")),
            (1, _) => self.command(&format!("{valid} --root $TMP/missing")),
            (2, _) => self.command(&format!("{valid} --unknown")),
            (3, _) => self.command_for(
                &format!("unix:{}/none", self.fixture.top().display()),
                valid,
            ),
            (73, _) => {
                let (_taken, address) = silent_listener();
                let output = run_command(self.listening_command(name, &address)).await;
                return Some((output.code, output.stderr));
            }
            (74, _) => {
                let words = match name {
                    "mcp" => "mcp --http 127.0.0.1:0",
                    _ => valid,
                };
                let mut command = self.command(words);
                command.stdout(File::create("/dev/full").expect("the device"));
                if name == "call" {
                    let (reader, mut writer) = pipe().expect("a pipe");
                    std::io::Write::write_all(&mut writer, b"{\"id\":1,\"method\":\"state\"}\n")
                        .expect("a request");
                    command.stdin(reader);
                }
                command
            }
            (78, "serve") => self.command("serve --config $TMP/none"),
            (78, "new") => self.command("new pdf --into $TMP/skills"),
            (78, "link") => self.command("link --config $TMP/none"),
            (78, "check" | "config check" | "link check") => {
                self.command(&format!("{name} $TMP/none"))
            }
            (78, name) if name.starts_with("fleet ") => self.command(&format!("{name} $TMP/none")),
            (78, _) => self.command(&format!("{valid} --token-file $TMP/none")),
            _ => {
                let status = match code {
                    4 => Code::InvalidArgument,
                    5 => Code::PermissionDenied,
                    6 => Code::ResourceExhausted,
                    70 => Code::Internal,
                    76 => Code::Unimplemented,
                    other => panic!("no case for exit code {other} of `{name}`"),
                };
                let endpoint = start_rejecting_server(status, ServingStatus::Serving).await;
                self.command_for(&endpoint, valid.split(" --root").next().unwrap_or(valid))
            }
        };
        let output = run_command(command).await;
        Some((output.code, output.stderr))
    }
}

fn is_client(name: &str) -> bool {
    caproot::cli::definitions::command_set::CLIENT_COMMANDS.contains(&name)
}

/// Codes that need a fault which this test cannot cause from outside. `reload/service_manager.rs` shows
/// code 75.
fn is_out_of_reach(code: u8, name: &str) -> bool {
    code == 75 || code == 70 && !is_client(name)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_exits_with_each_of_its_codes() {
    let machine = Machine::start().await;
    let (mut wrong, mut produced) = (Vec::new(), 0);
    for command in leaf_commands() {
        for entry in command
            .exit_codes()
            .filter(|entry| !is_out_of_reach(entry.code, &command.name))
        {
            let Some((code, log)) = machine.produce(entry.code, &command.name).await else {
                continue;
            };
            produced += 1;
            if code != Some(entry.code.into()) {
                wrong.push(format!("{} {}: {code:?}: {log}", command.name, entry.code));
            }
        }
    }
    machine.daemon.stop().await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(produced > 100, "only {produced} exit codes");
}
