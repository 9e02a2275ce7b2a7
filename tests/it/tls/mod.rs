//! TLS end to end: the real binary, certificates of test authorities, and accepted and rejected
//! clients.

mod authority;
mod client;
mod config;
mod first_call;
mod fleet;
mod hostile;
pub(crate) mod link;
mod mutual;
mod openssl;
mod reload;
mod subject_names;
mod token;

use std::ffi::OsStr;
use std::time::Duration;

use caproot_client::{Client, ClientCredentials, ConnectError, DaemonEndpoint, Fleet, RetryPolicy};

use crate::harness::fixture::Fixture;
use crate::harness::in_time;
use crate::harness::process::{Output, Process, caproot, run_command};
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
        self.fixture
            .path(file)
            .into_os_string()
            .into_string()
            .expect("a path in UTF-8")
    }

    /// Starts a daemon with TLS.
    fn serve(&self, more: &[&str]) -> TlsDaemon {
        let (cert, key) = (self.path_arg("server.pem"), self.path_arg("server.key"));
        TlsDaemon::start(
            &self.fixture,
            &[&["--tls-cert", &cert, "--tls-key", &key], more].concat(),
        )
    }

    /// Starts a daemon with TLS that requires client certificates of the test authority.
    fn serve_mutual(&self) -> TlsDaemon {
        self.serve(&["--tls-client-ca", &self.path_arg("ca.pem")])
    }

    /// Returns credentials that trust the test authority, without a client certificate.
    fn ca_credentials(&self) -> ClientCredentials {
        ClientCredentials {
            ca: Some(self.fixture.path("ca.pem")),
            ..ClientCredentials::default()
        }
    }

    /// Returns credentials that trust the test authority and have the client certificate NAME.pem.
    fn client_credentials(&self, name: &str) -> ClientCredentials {
        let file = |end| self.fixture.path(&format!("{name}.{end}"));
        ClientCredentials {
            identity: Some((file("pem"), file("key"))),
            ..self.ca_credentials()
        }
    }
}

/// `caproot serve` with one TCP listener, and its port.
struct TlsDaemon {
    process: Process,
    port: u16,
}

impl TlsDaemon {
    fn start(fixture: &Fixture, flags: &[&str]) -> Self {
        let mut command = caproot(["serve", "--log", "caproot=debug", "--root"]);
        command.arg(fixture.path("root")).args(flags);
        if !flags.contains(&"--listen") {
            command.args(["--listen", "tcp:127.0.0.1:0"]);
        }
        let process = Process::start(command);
        let port = process
            .endpoint()
            .rsplit(':')
            .next()
            .and_then(|port| port.parse().ok());
        Self {
            process,
            port: port.expect("listening tcp:HOST:PORT"),
        }
    }

    /// Returns the TLS endpoint under a name that the certificate contains.
    fn endpoint(&self) -> String {
        format!("tls:localhost:{}", self.port)
    }

    async fn connect(&self, credentials: &ClientCredentials) -> Result<Client, ConnectError> {
        let endpoint: DaemonEndpoint = self.endpoint().parse().expect("an endpoint");
        in_time(Client::connect(
            &endpoint,
            credentials,
            Duration::from_secs(30),
        ))
        .await
    }

    /// Connects, and calls the daemon once successfully.
    async fn connect_and_call(&self, credentials: &ClientCredentials) -> Client {
        let mut client = self.connect(credentials).await.expect("a connection");
        in_time(client.get_executor()).await.expect("an answer");
        client
    }

    /// Stops the daemon and returns the remaining log.
    async fn stop(self) -> String {
        self.process.stop().await
    }
}

/// Runs `caproot list` with these flags and variables.
async fn list<S: AsRef<OsStr>>(flags: impl IntoIterator<Item = S>, env: &[(&str, &str)]) -> Output {
    run_command(caproot(["list"]).args(flags).envs(env.iter().copied())).await
}

/// Returns the error of a call to the executor of an environment.
async fn call_executor(fleet: &Fleet, environment_id: &str) -> Result<(), String> {
    let client = fleet
        .client(environment_id)
        .await
        .map_err(|error| error.to_string())?;
    let mut client = client.with_retry_policy(RetryPolicy::NONE);
    in_time(client.get_executor())
        .await
        .map(drop)
        .map_err(|error| error.to_string())
}
