//! The `caproot` binary: read the command line, run it, say how it went.

use caproot::cli::{self, Cli, Failure, exit};
use caproot::endpoint::Env;
use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(usage) => return cli::explain(&usage),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let sentence = format!("the runtime cannot be started: {error}");
            return cli::report(Err(Failure::new(exit::INTERNAL, sentence)));
        }
    };
    let outcome = runtime.block_on(cli::run(cli, &Env::of_process()));
    // A thread that hangs on a dead mount must not keep the process from ending.
    runtime.shutdown_background();
    cli::report(outcome)
}
