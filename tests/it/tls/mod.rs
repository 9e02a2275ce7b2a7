//! TLS end to end: the real binary, certificates of test authorities, and accepted and rejected
//! clients.

mod authority;
mod client;
mod config;
mod first_call;
mod hostile;
mod mutual;
mod openssl;
mod reload;
mod subject_names;
mod token;

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use caproot::client::{Client, ClientCredentials, ConnectError, DaemonEndpoint};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::commands::{self, CommandOutput, caproot};
use crate::fixture::Fixture;
use crate::harness::in_time;
use authority::{Authority, CertificateSpec};

/// Certificates of one authority in a fixture with a root `root` and a skill `a`: `ca.pem`;
/// `server.pem` and `server.key` for localhost; `client.pem` and `client.key` for `CLIENT`.
struct Pki {
    fixture: Fixture,
    authority: Authority,
}

/// URI in the client certificate.
const CLIENT: &str = "spiffe://example.org/orchestrator";

impl Pki {
    fn new() -> Self {
        let fixture = Fixture::new("skill root/a");
        let authority = Authority::new("ours");
        fixture.write("ca.pem", authority.pem());
        let pki = Self { fixture, authority };
        pki.issue("server", &CertificateSpec::server());
        pki.issue("client", &CertificateSpec::client(CLIENT));
        pki
    }

    /// Writes NAME.pem and NAME.key, issued by the test authority.
    fn issue(&self, name: &str, spec: &CertificateSpec) {
        self.write(name, &self.authority.issue(spec));
    }

    fn write(&self, name: &str, (certificate, key): &(String, String)) {
        self.fixture.write(&format!("{name}.pem"), certificate);
        self.fixture.write(&format!("{name}.key"), key);
    }

    /// Returns the path of a file as a command-line argument.
    fn path_arg(&self, file: &str) -> String {
        self.fixture.path(file).into_os_string().into_string().expect("a path in UTF-8")
    }

    /// Starts a daemon with TLS.
    async fn serve(&self, more: &[&str]) -> TlsDaemon {
        let (cert, key) = (self.path_arg("server.pem"), self.path_arg("server.key"));
        TlsDaemon::start(&self.fixture, &[&["--tls-cert", &cert, "--tls-key", &key], more].concat())
            .await
    }

    /// Starts a daemon with TLS that requires client certificates of the test authority.
    async fn serve_mutual(&self) -> TlsDaemon {
        self.serve(&["--tls-client-ca", &self.path_arg("ca.pem")]).await
    }

    /// Returns credentials that trust the test authority, without a client certificate.
    fn ca_credentials(&self) -> ClientCredentials {
        ClientCredentials { ca: Some(self.fixture.path("ca.pem")), ..ClientCredentials::default() }
    }

    /// Returns credentials that trust the test authority and have the client certificate NAME.pem.
    fn client_credentials(&self, name: &str) -> ClientCredentials {
        let file = |end| self.fixture.path(&format!("{name}.{end}"));
        ClientCredentials { identity: Some((file("pem"), file("key"))), ..self.ca_credentials() }
    }
}

/// `caproot serve` with one TCP listener, its port and its log lines.
struct TlsDaemon {
    child: Child,
    port: u16,
    log: UnboundedReceiver<String>,
}

impl TlsDaemon {
    async fn start(fixture: &Fixture, flags: &[&str]) -> Self {
        let mut command = caproot(["serve", "--log", "caproot=debug", "--root"]);
        command.arg(fixture.path("root")).args(flags);
        if !flags.contains(&"--listen") {
            command.args(["--listen", "tcp:127.0.0.1:0"]);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let (log_sender, mut log) = unbounded_channel();
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        thread::spawn(move || {
            // The receiver may be gone.
            stderr.lines().try_for_each(|line| log_sender.send(line.expect("text")))
        });
        let mut stdout = BufReader::new(child.stdout.take().expect("piped")).lines();
        let line = in_time(tokio::task::spawn_blocking(move || stdout.next()));
        let Some(Ok(line)) = line.await.expect("no panic") else {
            panic!("the daemon does not start: {:?}", log.recv().await)
        };
        let port = line.rsplit(':').next().and_then(|port| port.parse().ok());
        Self { child, port: port.expect("listening tcp:HOST:PORT"), log }
    }

    /// Returns the TLS endpoint under a name that the certificate contains.
    fn endpoint(&self) -> String {
        format!("tls:localhost:{}", self.port)
    }

    /// Waits for a log line that contains this text.
    async fn wait_for_log(&mut self, part: &str) -> String {
        loop {
            let line = in_time(self.log.recv()).await;
            let line = line.unwrap_or_else(|| panic!("the daemon ended without logging {part:?}"));
            if line.contains(part) {
                return line;
            }
        }
    }

    async fn connect(&self, credentials: &ClientCredentials) -> Result<Client, ConnectError> {
        let endpoint: DaemonEndpoint = self.endpoint().parse().expect("an endpoint");
        in_time(Client::connect(&endpoint, credentials, Duration::from_secs(30))).await
    }

    /// Connects, and calls the daemon once successfully.
    async fn connect_and_call(&self, credentials: &ClientCredentials) -> Client {
        let mut client = self.connect(credentials).await.expect("a connection");
        in_time(client.get_executor()).await.expect("an answer");
        client
    }

    /// Stops the daemon and returns the remaining log.
    async fn stop(mut self) -> String {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, Signal::TERM).expect("a signal");
        let mut rest = String::new();
        while let Some(line) = in_time(self.log.recv()).await {
            rest += &line;
            rest.push('\n');
        }
        assert_eq!(self.child.wait().expect("wait").code(), Some(0), "{rest}");
        rest
    }
}

impl Drop for TlsDaemon {
    /// Kills the daemon if a test failed before stopping it.
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Runs `caproot list` with these flags and variables.
async fn list<S: AsRef<OsStr>>(
    flags: impl IntoIterator<Item = S>,
    env: &[(&str, &str)],
) -> CommandOutput {
    let mut command = caproot(["list"]);
    run_command(command.args(flags).envs(env.iter().copied())).await
}

async fn run_command(command: &mut std::process::Command) -> CommandOutput {
    commands::run_command(std::mem::replace(command, caproot([""; 0]))).await
}
