//! The `caproot` binary: read the command line, do what must come before there are threads, run the
//! rest, say how it went.

use caproot::cli::{self, CommandFailure, CommandLine, exit};
use caproot::endpoint::ProcessEnv;
use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match CommandLine::try_parse() {
        Ok(cli) => cli,
        Err(usage) => return cli::report_usage_error(&usage),
    };
    // Asked now: it reads files of cgroups, which a daemon that restricted itself may not.
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let env = ProcessEnv::from_process();
    let outcome = cli::prepare_command(cli, &env)
        .and_then(|begun| run_in_runtime(threads, cli::run(begun, &env)));
    cli::report_outcome(outcome)
}

/// Runs a future to its end on so many threads.
fn run_in_runtime(
    threads: usize,
    run: impl Future<Output = Result<u8, CommandFailure>>,
) -> Result<u8, CommandFailure> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(threads).enable_all().build().map_err(|error| {
        CommandFailure::new(exit::INTERNAL, format!("the runtime cannot be started: {error}"))
    })?;
    let outcome = runtime.block_on(run);
    // A thread that hangs on a dead mount must not keep the process from ending.
    runtime.shutdown_background();
    outcome
}
