//! Runtime of a command. It is built here and not in the binary, because a crate that awaits a future
//! compiles the body of each `async fn` in the future again.

use super::exit;
use super::failure::{CommandFailure, CommandResult as _};
use caproot_core::text::SentenceResult as _;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use tokio::runtime::{Builder, Runtime};

/// Runs a future on a runtime.
pub fn run_in_runtime(
    mut builder: Builder,
    run: impl Future<Output = Result<u8, CommandFailure>>,
) -> Result<u8, CommandFailure> {
    #[cfg(target_os = "linux")]
    crate::daemon::server::set_mmap_threshold();
    builder.enable_all();
    let runtime = build_quietly(&mut builder).or_exit(exit::INTERNAL)?;

    let outcome = runtime.block_on(run);
    // A thread that hangs on a dead mount must not block the end of the process.
    runtime.shutdown_background();
    outcome
}

/// Builds a runtime. The error is a message to the user. tokio panics if the system refuses a thread,
/// so the panic hook is off meanwhile. The process has no other thread yet.
fn build_quietly(builder: &mut Builder) -> Result<Runtime, String> {
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let built = catch_unwind(AssertUnwindSafe(|| builder.build()));
    set_hook(hook);

    match built {
        Ok(built) => built.context("cannot start the runtime"),
        Err(_) => Err(
            "cannot start the runtime: the system refuses a thread; raise the limit of threads \
             (TasksMax= of a systemd unit, pids.max of a container, RLIMIT_NPROC of a user)"
                .to_owned(),
        ),
    }
}
