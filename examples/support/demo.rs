// Daemon for the programs in the documentation of the libraries, which include this file.

use caproot::daemon::config::{Config, RootFlag, ServeFlags};
use caproot_client::DaemonEndpoint;
use caproot_core::net::endpoint::ProcessEnv;

/// Starts a daemon that publishes a directory as the root `demo` of the environment `local`.
pub async fn start_daemon(dir: &std::path::Path) -> DaemonEndpoint {
    let flags = ServeFlags {
        roots: vec![RootFlag { id: Some("demo".to_owned()), dir: dir.to_owned() }],
        listen: vec!["tcp:127.0.0.1:0".to_owned()],
        ..ServeFlags::default()
    };
    let config = Config::from_flags(flags, &ProcessEnv::from_process()).expect("a valid config");
    let daemon = caproot::daemon::server::build_daemon(config).await.expect("a free port");
    let endpoint = daemon.listen_addresses()[0].parse().expect("an address");
    tokio::spawn(daemon.run(std::future::pending()));
    endpoint
}

/// Starts a daemon that publishes the three demo skills.
pub async fn start_demo_daemon() -> DaemonEndpoint {
    let package = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut dirs = package.ancestors().map(|dir| dir.join("tests/trees/demo"));
    start_daemon(&dirs.find(|dir| dir.is_dir()).expect("a checkout")).await
}
