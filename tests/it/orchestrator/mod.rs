//! The orchestrator side against real daemons: clients, mirrors, fleets and sessions.

mod accepted_calls;
mod authorization;
pub(crate) mod call_command;
mod call_lines;
mod call_session;
mod complete_example;
mod conversations;
mod dispatch;
mod durable;
#[allow(dead_code, unreachable_pub)]
#[path = "../../../examples/dispatch.rs"]
pub(crate) mod example_dispatch;
#[allow(dead_code, unreachable_pub)]
#[path = "../../../examples/orchestrator.rs"]
pub(crate) mod example_orchestrator;
mod file_access;
mod fleet;
mod fleet_file;
mod fleet_names;
mod fleet_simulation;
mod hostile;
mod http_manager;
mod inject;
mod invocation;
mod invocations;
mod large_files;
mod mirror;
mod moving_executors;
mod pages;
mod plugin_files;
mod plugin_servers;
mod read_tool;
mod response_memory;
mod restarts;
mod resumed_mirrors;
#[allow(unreachable_pub)]
mod rust_page_program;
mod search;
mod server_memory;
pub(crate) mod session;
mod session_plugins;
mod shared_catalogs;
mod shared_mirrors;
mod short_names;
mod sources;
mod text_choice;
mod tools;
mod usage;

use std::path::PathBuf;
use std::time::Duration;

use caproot::daemon::config::{Config, RootFlag, ServeFlags};
use caproot_client::{Client, ClientCredentials, DaemonEndpoint, ExecutorConfig};
use caproot_core::proto::caproot::v1::{CapabilityRootLocation, SelectedCapabilityRoot};
use caproot_session::SessionOptions;
use serde_json::{Value, json};

use crate::harness::fixture::Fixture;
use crate::harness::test_servers::free_port;
use crate::harness::{Daemon, HANG_TIMEOUT, isolated_env};

/// Starts a daemon of one environment that publishes one directory.
pub(crate) async fn start_daemon(environment: &str, dir: PathBuf, address: Option<&str>) -> Daemon {
    let flags = ServeFlags {
        roots: vec![RootFlag {
            id: Some(environment.to_owned()),
            dir,
        }],
        environment_ids: vec![environment.to_owned()],
        listen: vec![format!(
            "tcp:{}",
            address.map_or_else(free_port, str::to_owned)
        )],
        ..ServeFlags::default()
    };
    let env = isolated_env(std::path::Path::new("/nonexistent"));
    Daemon::start_with(Config::from_flags(flags, &env).expect("a valid configuration")).await
}

/// Builds a tree and starts a daemon of one environment that publishes the directory `r` of the tree.
pub(crate) async fn serve_tree(environment: &str, tree: &str) -> (Fixture, Daemon) {
    let fixture = Fixture::new(tree);
    let daemon = start_daemon(environment, fixture.path("r"), None).await;
    (fixture, daemon)
}

/// Returns the published root of this environment.
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

/// Returns the configuration of an executor at an address.
pub(crate) fn executor(address: &str) -> ExecutorConfig {
    let endpoint: DaemonEndpoint = format!("tcp:{address}").parse().expect("an endpoint");
    ExecutorConfig {
        timeout: HANG_TIMEOUT,
        ..ExecutorConfig::new(endpoint)
    }
}

/// Returns a client that connects with its first call.
pub(crate) async fn client(address: &str) -> Client {
    let ExecutorConfig {
        endpoint, timeout, ..
    } = executor(address);
    Client::connect_lazily(&endpoint, &ClientCredentials::default(), timeout)
        .await
        .expect("no credential files")
}

/// Returns options with a long start timeout and no grace period for lost executors.
fn impatient_options() -> SessionOptions {
    SessionOptions {
        grace_period: Duration::ZERO,
        start_timeout: HANG_TIMEOUT,
        ..SessionOptions::default()
    }
}

/// Arguments of `skills.read` for a resource of an executor. An empty resource is the main file.
fn read_arguments(root: &str, package: &str, resource: &str) -> Value {
    json!({
        "authority": {"kind": "executor", "id": root},
        "package": package,
        "resource": resource
    })
}
