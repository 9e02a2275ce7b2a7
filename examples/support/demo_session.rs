// Session with the daemon of `demo.rs` for the programs in the documentation of sessions, which include this file.

include!("demo.rs");

use caproot_client::{ExecutorConfig, Fleet, parse_selected_roots};
use caproot_session::{Session, SessionOptions};

/// Returns a fleet with the demo daemon as the executor of the environment `local`.
pub async fn start_demo_fleet() -> Fleet {
    let executor = ExecutorConfig::new(start_demo_daemon().await);
    Fleet::from_executors([("local".to_owned(), executor)])
}

/// Starts a session with the published root of the demo daemon.
pub async fn start_demo_session(options: &SessionOptions) -> Session {
    let fleet = start_demo_fleet().await;
    let selected = r#"[{"id": "demo", "location":
        {"type": "environment", "environmentId": "local", "path": "published:demo"}}]"#;
    let roots = parse_selected_roots(selected).expect("a selection");
    Session::start(&fleet, roots, options).await.expect("a valid selection")
}
