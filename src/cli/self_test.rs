//! The hidden `caproot serve --self-test FILE`: says what a restricted daemon could still do.

use super::exit;
use super::failure::CommandFailure;
use super::output::write_stdout;
use crate::config::Config;
use crate::domain::{LandlockState, SandboxStatus};
use crate::sandbox::{AttemptResult, SelfTest};
use serde_json::json;
use std::path::Path;

/// Prints a JSON object a line for each try. The exit code is 0 only if all were refused.
pub(super) fn run(
    test: &SelfTest,
    config: &Config,
    sandbox: &SandboxStatus,
) -> Result<u8, CommandFailure> {
    let below = config.allowed_dirs.iter().find(|dir| dir.is_dir());
    let below = below.map_or(Path::new("/"), |dir| dir.as_path());
    let abi = match sandbox.landlock {
        LandlockState::Enforced | LandlockState::Partial => Some(sandbox.landlock_abi),
        LandlockState::Off | LandlockState::Unavailable => None,
    };
    let attempts =
        test.run(below, abi).map_err(|error| CommandFailure::new(exit::INTERNAL, error))?;
    write_stdout(|stdout| {
        attempts.iter().try_for_each(|attempt| {
            let errno = attempt.error.as_ref().and_then(std::io::Error::raw_os_error);
            let refused = attempt.is_denied();
            let line = json!({ "tried": attempt.action, "refused": refused, "errno": errno });
            writeln!(stdout, "{line}")
        })
    })?;
    Ok(if attempts.iter().all(AttemptResult::is_denied) { exit::OK } else { exit::PROBLEMS_FOUND })
}
