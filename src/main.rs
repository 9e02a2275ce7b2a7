//! The `caproot` binary: parses the command line, prepares the command in a single thread, and runs
//! the command in a tokio runtime.

use caproot::cli::{self, CommandFailure, exit};
use caproot_core::net::endpoint::ProcessEnv;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::process::ExitCode;
use tokio::runtime::{Builder, Runtime};

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

/// Builds a runtime. The error is a message to the user. tokio panics if the system refuses a thread,
/// so the panic hook is off meanwhile. The process has no other thread yet.
fn build_quietly(builder: &mut Builder) -> Result<Runtime, String> {
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let built = catch_unwind(AssertUnwindSafe(|| builder.build()));
    set_hook(hook);

    match built {
        Ok(built) => built.map_err(|error| format!("cannot start the runtime: {error}")),
        Err(_) => Err(
            "cannot start the runtime: the system refuses a thread; raise the limit of threads \
             (TasksMax= of a systemd unit, pids.max of a container, RLIMIT_NPROC of a user)"
                .to_owned(),
        ),
    }
}

/// Runs a future on a runtime with this number of threads.
fn run_in_runtime(
    threads: usize,
    run: impl Future<Output = Result<u8, CommandFailure>>,
) -> Result<u8, CommandFailure> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(threads).enable_all();
    let runtime = build_quietly(&mut builder)
        .map_err(|reason| CommandFailure::new(exit::INTERNAL, reason))?;

    let outcome = runtime.block_on(run);
    // A thread that hangs on a dead mount must not block the end of the process.
    runtime.shutdown_background();
    outcome
}
