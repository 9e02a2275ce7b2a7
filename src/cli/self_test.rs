//! The hidden `caproot serve --self-test FILE`: says what a restricted daemon could still do.

use super::exit;
use super::failure::Failure;
use super::output::print;
use crate::config::Config;
use crate::domain::{LandlockState, Sandbox};
use crate::sandbox::{Attempt, SelfTest};
use serde_json::json;
use std::path::Path;

/// Prints a JSON object a line for each try. The exit code is 0 only if all were refused.
pub(super) fn run(test: &SelfTest, config: &Config, sandbox: &Sandbox) -> Result<u8, Failure> {
    let below = config.allowed.iter().find(|dir| dir.is_dir());
    let below = below.map_or(Path::new("/"), |dir| dir.as_path());
    let abi = match sandbox.landlock {
        LandlockState::Enforced | LandlockState::Partial => Some(sandbox.abi),
        LandlockState::Off | LandlockState::Unavailable => None,
    };
    let attempts = test.run(below, abi).map_err(|error| Failure::new(exit::INTERNAL, error))?;
    print(|stdout| {
        attempts.iter().try_for_each(|attempt| {
            let errno = attempt.failed.as_ref().and_then(std::io::Error::raw_os_error);
            let refused = attempt.is_refused();
            let line = json!({ "tried": attempt.what, "refused": refused, "errno": errno });
            writeln!(stdout, "{line}")
        })
    })?;
    Ok(if attempts.iter().all(Attempt::is_refused) { exit::OK } else { exit::WRONG })
}
