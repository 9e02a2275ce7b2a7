//! The `caproot` binary: parses the command line, prepares the command in a single thread, and runs
//! the command in a tokio runtime.

use caproot::cli;
use caproot_core::net::endpoint::ProcessEnv;
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
        .and_then(|prepared| cli::run_command(prepared, &env, threads));
    cli::report_outcome(outcome)
}
