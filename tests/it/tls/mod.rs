//! TLS from outside: the real binary with certificates of authorities that are made here, and clients
//! that should and should not get in.

mod authority;
mod client;
mod config;
mod hostile;
mod lazily;
mod mutual;
mod names;
mod openssl;
mod reload;
mod token;

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use caproot::client::{Client, ClientCredentials, ConnectError, DaemonEndpoint};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::commands::{CommandOutput, caproot, run_command};
use crate::fixture::Fixture;
use crate::harness::in_time;
use authority::{Authority, Wanted};

/// Certificates of one authority in a fixture, with a root `root` that holds a skill `a`: `ca.pem`;
/// `server.pem` and `server.key` for localhost; `client.pem` and `client.key` for `CLIENT`.
struct Pki {
    fixture: Fixture,
    authority: Authority,
}

/// Who the client is.
const CLIENT: &str = "spiffe://example.org/orchestrator";

impl Pki {
    fn new() -> Self {
        let fixture = Fixture::new("skill root/a");
        let authority = Authority::new("ours");
        fixture.write("ca.pem", authority.pem());
        let pki = Self { fixture, authority };
        pki.issue("server", &Wanted::server());
        pki.issue("client", &Wanted::client(CLIENT));
        pki
    }

    /// Writes NAME.pem and NAME.key of our authority.
    fn issue(&self, name: &str, wanted: &Wanted) {
        self.write(name, &self.authority.issue(wanted));
    }

    fn write(&self, name: &str, (certificate, key): &(String, String)) {
        self.fixture.write(&format!("{name}.pem"), certificate);
        self.fixture.write(&format!("{name}.key"), key);
    }

    /// The path of a file, as an argument.
    fn arg(&self, file: &str) -> String {
        self.fixture.path(file).into_os_string().into_string().expect("a path in UTF-8")
    }

    /// A daemon with TLS.
    async fn serve(&self, more: &[&str]) -> Served {
        let (cert, key) = (self.arg("server.pem"), self.arg("server.key"));
        Served::start(&self.fixture, &[&["--tls-cert", &cert, "--tls-key", &key], more].concat())
            .await
    }

    /// A daemon with TLS that wants certificates of our authority.
    async fn serve_mutual(&self) -> Served {
        self.serve(&["--tls-client-ca", &self.arg("ca.pem")]).await
    }

    /// What a client trusts that trusts our authority.
    fn trusting(&self) -> ClientCredentials {
        ClientCredentials { ca: Some(self.fixture.path("ca.pem")), ..ClientCredentials::default() }
    }

    /// The same, and what it shows.
    fn showing(&self, name: &str) -> ClientCredentials {
        let file = |end| self.fixture.path(&format!("{name}.{end}"));
        ClientCredentials { identity: Some((file("pem"), file("key"))), ..self.trusting() }
    }
}

/// `caproot serve` with one TCP listener, its log line by line.
struct Served {
    child: Child,
    port: u16,
    log: UnboundedReceiver<String>,
}

impl Served {
    async fn start(fixture: &Fixture, flags: &[&str]) -> Self {
        let mut command = caproot(["serve", "--log", "caproot=debug", "--root"]);
        command.arg(fixture.path("root")).args(flags);
        if !flags.contains(&"--listen") {
            command.args(["--listen", "tcp:127.0.0.1:0"]);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let (tell, mut log) = unbounded_channel();
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        thread::spawn(move || {
            // Whoever listened may have gone.
            stderr.lines().try_for_each(|line| tell.send(line.expect("text")))
        });
        let mut stdout = BufReader::new(child.stdout.take().expect("piped")).lines();
        let line = in_time(tokio::task::spawn_blocking(move || stdout.next()));
        let Some(Ok(line)) = line.await.expect("no panic") else {
            panic!("it does not start: {:?}", log.recv().await)
        };
        let port = line.rsplit(':').next().and_then(|port| port.parse().ok());
        Self { child, port: port.expect("listening tcp:HOST:PORT"), log }
    }

    /// Its address over TLS, by a name that its certificate has.
    fn endpoint(&self) -> String {
        format!("tls:localhost:{}", self.port)
    }

    /// Waits for a line of its log that holds this.
    async fn says(&mut self, part: &str) -> String {
        loop {
            let line = in_time(self.log.recv()).await;
            let line = line.unwrap_or_else(|| panic!("it ends without saying {part:?}"));
            if line.contains(part) {
                return line;
            }
        }
    }

    async fn connect(&self, credentials: &ClientCredentials) -> Result<Client, ConnectError> {
        let endpoint: DaemonEndpoint = self.endpoint().parse().expect("an endpoint");
        in_time(Client::connect(&endpoint, credentials, Duration::from_secs(30))).await
    }

    /// A client that must get in, and an answer.
    async fn admitted(&self, credentials: &ClientCredentials) -> Client {
        let mut client = self.connect(credentials).await.expect("a connection");
        in_time(client.get_executor()).await.expect("an answer");
        client
    }

    /// Stops it, and gives the rest of its log.
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

impl Drop for Served {
    /// A test that failed leaves no daemon behind.
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Runs `caproot list` with these flags and variables.
async fn list<S: AsRef<OsStr>>(flags: impl IntoIterator<Item = S>, env: &[(&str, &str)]) -> CommandOutput {
    let mut command = caproot(["list"]);
    ended_with(command.args(flags).envs(env.iter().copied())).await
}

async fn ended_with(command: &mut std::process::Command) -> CommandOutput {
    run_command(std::mem::replace(command, caproot([""; 0]))).await
}
