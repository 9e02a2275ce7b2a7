//! Measures fleets of executors, and prints tables: executors with one plugin set, a storm of faults
//! over executors behind a NATS cluster (`--storm`), and a tunnel beside a direct connection
//! (`--link`). `cargo bench --bench fleet -- --help` lists the options.

#[path = "../../tests/it/tls/link/cuttable_route.rs"]
mod cuttable_route;
mod equal_catalogs;
mod executor_process;
mod link_rows;
#[path = "../../tests/it/tls/link/nats_cluster.rs"]
mod nats_cluster;
mod options;
#[path = "../common/process_memory.rs"]
mod process_memory;
#[path = "../../tests/it/harness/test_servers/slim_executor.rs"]
mod slim_executor;
#[path = "../../tests/it/soak/storm/mod.rs"]
mod storm;
mod storm_figures;
mod storm_rows;
#[path = "../common/trees.rs"]
mod trees;
#[path = "../../tests/it/harness/test_servers/unused_calls.rs"]
mod unused_calls;

use clap::Parser as _;
use options::Options;
use std::fmt;
use std::io::{self, Write as _};

/// Result of a measurement.
type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match (&options.address, options.phase) {
            (Some(address), Some(phase)) => {
                equal_catalogs::run_phase(&options, address, phase).await
            }
            _ if !options.servers.is_empty() => executor_process::serve_commands(&options).await,
            _ if options.storm => storm_rows::run(&options).await,
            _ if options.link => link_rows::run().await,
            _ => equal_catalogs::measure(&options).await,
        }
    })
}

/// Prints the current step on stderr.
fn print_progress(step: fmt::Arguments<'_>) {
    // A closed stderr is no error.
    let _ = writeln!(io::stderr(), "… {step}");
}
