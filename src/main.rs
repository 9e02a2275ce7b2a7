//! The `caproot` binary: parses the command line, prepares the command in a single thread, and runs
//! the command in a tokio runtime.

use caproot::cli::{self, CommandFailure, exit};
use caproot::net::endpoint::ProcessEnv;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match cli::parse_command_line() {
        Ok(cli) => cli,
        Err(usage) => return cli::report_usage_error(&usage),
    };
    // Must come before the sandbox: the number of threads depends on files of cgroups.
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let env = ProcessEnv::from_process();
    let outcome = cli::prepare_command(cli, &env)
        .and_then(|begun| run_in_runtime(threads, cli::run(begun, &env)));
    cli::report_outcome(outcome)
}

/// Runs a future on a runtime with this number of threads.
fn run_in_runtime(
    threads: usize,
    run: impl Future<Output = Result<u8, CommandFailure>>,
) -> Result<u8, CommandFailure> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime
        .worker_threads(threads)
        .enable_all()
        .build()
        .map_err(|error| {
            CommandFailure::new(exit::INTERNAL, format!("cannot start the runtime: {error}"))
        })?;
    let outcome = runtime.block_on(run);
    // A thread that hangs on a dead mount must not block the end of the process.
    runtime.shutdown_background();
    outcome
}
