//! `docs/reference/exit-codes.md`, and the exit codes of each command.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::fs::File;
use std::io::pipe;
use std::net::TcpListener;
use std::pin::Pin;
use std::process::Command;
use std::task::{Context, Poll};

use caproot::cli::exit::EXIT_CODES;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::{Code, Status};
use tonic_health::ServingStatus;

use super::check_page;
use super::commands::{cell, command_names, leaf_commands};
use crate::binary::DaemonProcess;
use crate::commands::{caproot, run_command};
use crate::fixture::Fixture;
use crate::harness::{Daemon, Setup};

fn page() -> String {
    let mut page = String::from(
        "# Exit codes\n\n\
         The exit codes of all commands. Codes from 70 up are the codes of `sysexits.h`. A script that \
         repeats a command should do so after 3 and 6 only: the other codes need a change first.\n\n\
         | code | name | meaning | commands |\n| --- | --- | --- | --- |\n",
    );
    for entry in EXIT_CODES {
        let (code, name, commands) = (entry.code, entry.name, command_names(entry.commands));
        writeln!(page, "| {code} | `{name}` | {} | {commands} |", cell(entry.meaning))
            .expect("a String");
    }
    page.push_str("\n[Commands](cli.md) lists the exit codes of each command.\n");
    page
}

#[test]
fn the_page_of_the_exit_codes_is_current() {
    check_page("exit-codes", &page());
    assert!(EXIT_CODES.is_sorted_by_key(|entry| entry.code), "in ascending order");
}

/// Server that rejects each call of the daemon's service with one status.
#[derive(Clone, Copy)]
struct RejectingServer(Code);

impl NamedService for RejectingServer {
    const NAME: &'static str = "caproot.v1.CapabilityService";
}

impl tower::Service<http::Request<Body>> for RejectingServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Self::Future {
        let response = Status::new(self.0, "rejected by the test").into_http();
        Box::pin(async { Ok(response) })
    }
}

impl RejectingServer {
    /// Starts the server with a health service. Returns the endpoint.
    async fn start(self, health: ServingStatus) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (reporter, service) = tonic_health::server::health_reporter();
        reporter.set_service_status("", health).await;
        let server = tonic::transport::Server::builder().add_service(service).add_service(self);
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        format!("tcp:{address}")
    }
}

/// Returns the arguments of a command that succeeds.
fn valid_args(command: &str) -> &str {
    match command {
        "resources" => "resources skill://skills/pdf",
        "read" => "read skill://skills/pdf",
        "path" => "path skill://skills/pdf --root skills=$TMP/skills",
        "check" => "check $TMP/skills",
        "config check" => "config check $TMP/caproot.yaml",
        "completions" => "completions bash",
        "serve" => "serve --root $TMP/skills --listen tcp:127.0.0.1:0",
        other => other,
    }
}

/// The state of a machine on which commands run: a daemon with one skill, and files.
struct Machine {
    fixture: Fixture,
    daemon: Daemon,
}

impl Machine {
    async fn start() -> Self {
        let fixture = Fixture::new(
            "skill skills/pdf\nfile broken/a/SKILL.md\n| no frontmatter
            file caproot.yaml\n| roots: []",
        );
        let daemon = Daemon::start(Setup::publishing("skills", fixture.path("skills"))).await;
        Self { fixture, daemon }
    }

    /// Command for the daemon of this machine. `$TMP` in the words means the directory of the files.
    fn command(&self, words: &str) -> Command {
        self.command_for(&format!("tcp:{}", self.daemon.address), words)
    }

    fn command_for(&self, endpoint: &str, words: &str) -> Command {
        let top = self.fixture.top().to_str().expect("UTF-8");
        let mut command = caproot(words.replace("$TMP", top).split_whitespace());
        command.env("CAPROOT_ENDPOINT", endpoint);
        command
    }

    /// Runs a command so that it exits with the code. Returns the exit code and the error output, or
    /// `None` if this machine cannot produce the code.
    async fn produce(&self, code: u8, name: &str) -> Option<(Option<i32>, String)> {
        let valid = valid_args(name);
        let command = match (code, name) {
            (0, "serve") => {
                let daemon = DaemonProcess::spawn(&mut self.command(valid));
                return Some(daemon.terminate_async().await);
            }
            // A closed stdout ends the watch.
            (0, "watch") => {
                let mut command = self.command(valid);
                command.stdout(pipe().expect("a pipe").1);
                command
            }
            (0, _) => self.command(valid),
            (1, "status") => {
                let server = RejectingServer(Code::Unavailable);
                self.command_for(&server.start(ServingStatus::NotServing).await, valid)
            }
            (1, "check") => self.command("check $TMP/broken"),
            (1, "path") => {
                let mount = "mount -t tmpfs none \"$0\" && exec \"$@\"";
                let (skills, inner) = (self.fixture.path("skills"), self.command(valid));
                let mut command = Command::new("unshare");
                command.args(["--user", "--map-root-user", "--mount", "sh", "-c", mount]);
                command.arg(skills).arg(inner.get_program()).args(inner.get_args());
                command.env("CAPROOT_ENDPOINT", format!("tcp:{}", self.daemon.address));
                let mut probe = Command::new("unshare");
                probe.args(["--user", "--map-root-user", "--mount", "true"]);
                if !probe.status().is_ok_and(|status| status.success()) {
                    println!("SKIPPED: path: user namespaces are not available");
                    return None;
                }
                command
            }
            (1, "roots") => {
                let setup = Setup::publishing("missing", self.fixture.path("missing"));
                let daemon = Daemon::start(setup).await;
                let command = self.command_for(&format!("tcp:{}", daemon.address), valid);
                let output = run_command(command).await;
                daemon.stop().await;
                return Some((output.code, output.stderr));
            }
            (1, _) => self.command(&format!("{valid} --root $TMP/missing")),
            (2, _) => self.command(&format!("{valid} --unknown")),
            (3, _) => {
                self.command_for(&format!("unix:{}/none", self.fixture.top().display()), valid)
            }
            (73, _) => {
                let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
                let address = taken.local_addr().expect("an address");
                let flag = if name == "mcp" { "--http " } else { "--listen tcp:" };
                let output = run_command(self.command(&format!("{name} {flag}{address}"))).await;
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
            (78, "config check") => self.command("config check $TMP/none"),
            (78, "check") => self.command("check $TMP/none"),
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
                let endpoint = RejectingServer(status).start(ServingStatus::Serving).await;
                self.command_for(&endpoint, valid.split(" --root").next().unwrap_or(valid))
            }
        };
        let output = run_command(command).await;
        Some((output.code, output.stderr))
    }
}

fn is_client(name: &str) -> bool {
    caproot::cli::command_set::CLIENT_COMMANDS.contains(&name)
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
        for entry in
            command.exit_codes().filter(|entry| !is_out_of_reach(entry.code, &command.name))
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
