//! The orchestrator's side against real daemons: clients, mirrors, fleets, sessions.

mod apart;
mod call;
mod dispatch;
mod durable;
#[allow(dead_code, unreachable_pub)]
#[path = "../../examples/dispatch.rs"]
pub(crate) mod example_dispatch;
#[cfg(all(feature = "handlers", feature = "mcp"))]
#[allow(dead_code, unreachable_pub)]
#[path = "../../examples/orchestrator.rs"]
pub(crate) mod example_orchestrator;
mod fleet;
mod hostile;
mod inject;
mod invoked;
mod mirror;
mod readme;
mod session;
mod since;
#[cfg(feature = "mcp")]
mod sources;
#[allow(unreachable_pub)]
mod thirty_lines;
#[cfg(feature = "handlers")]
mod tools;
#[cfg(all(feature = "handlers", feature = "mcp"))]
mod whole;

use std::path::PathBuf;

use caproot::client::{Client, ClientCredentials, DaemonEndpoint, ExecutorConfig};
use caproot::config::{Config, RootFlag, ServeFlags};
use caproot::proto::caproot::v1::{CapabilityRootLocation, SelectedCapabilityRoot};

use crate::harness::{Daemon, HANG_TIMEOUT, isolated_env};

/// A daemon of one environment that publishes one directory, at an address or any.
pub(crate) async fn serving(environment: &str, dir: PathBuf, address: Option<&str>) -> Daemon {
    let flags = ServeFlags {
        roots: vec![RootFlag { id: Some(environment.to_owned()), dir }],
        environment_ids: vec![environment.to_owned()],
        listen: vec![format!("tcp:{}", address.unwrap_or("127.0.0.1:0"))],
        ..ServeFlags::default()
    };
    let env = isolated_env(std::path::Path::new("/nonexistent"));
    Daemon::start_with(Config::from_flags(flags, &env).expect("a good configuration")).await
}

/// The root that such a daemon publishes.
pub(crate) fn published(environment: &str) -> SelectedCapabilityRoot {
    SelectedCapabilityRoot {
        id: environment.to_owned(),
        location: Some(CapabilityRootLocation {
            r#type: "environment".to_owned(),
            environment_id: environment.to_owned(),
            path: format!("published:{environment}"),
        }),
    }
}

/// How a daemon at an address is reached.
pub(crate) fn executor(address: &str) -> ExecutorConfig {
    let endpoint: DaemonEndpoint = format!("tcp:{address}").parse().expect("an endpoint");
    ExecutorConfig { timeout: HANG_TIMEOUT, ..ExecutorConfig::new(endpoint) }
}

/// A client of it, which connects when it is first called.
pub(crate) async fn client(address: &str) -> Client {
    let ExecutorConfig { endpoint, timeout, .. } = executor(address);
    Client::connect_lazily(&endpoint, &ClientCredentials::default(), timeout)
        .await
        .expect("nothing to read")
}

/// An address of this machine where nobody listens.
pub(crate) fn nobody() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").to_string()
}
