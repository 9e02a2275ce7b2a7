//! A process of its own that checks the config file for a daemon whose sandbox may keep it from reading the
//! file's certificates and tokens. The daemon starts the process before the sandbox. The process can read
//! files, and nothing else; the daemon can only ask it for a check.

use super::config::{config_error_from_json, config_error_json};
use super::exit;
use super::failure::CommandFailure;
use super::output::write_stdout;
use crate::config::{Config, ConfigError};
use crate::domain::LandlockMode;
use crate::sandbox::{SandboxPolicy, restrict_process};
use crate::server::check_socket_directories;
use serde_json::Value;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// The most bytes of an answer: 100 mistakes, each with a bounded value.
const MAX_ANSWER_BYTES: u64 = 1 << 20;

/// The process that checks the file.
#[derive(Debug)]
pub(super) struct ConfigChecker(Mutex<Child>);

impl ConfigChecker {
    /// Starts this program again, with the same flags.
    pub(super) fn start() -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(std::env::args_os().skip(1)).arg("--check-config");
        // The manager talks to the daemon alone.
        for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(Self(Mutex::new(command.spawn()?)))
    }

    /// Returns every mistake that keeps a new process from starting under the file. Blocks.
    pub(super) fn check(&self) -> io::Result<Vec<ConfigError>> {
        let mut child = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Child { stdin, stdout, .. } = &mut *child;
        let (Some(stdin), Some(stdout)) = (stdin, stdout) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        stdin.write_all(b"\n")?;
        let mut line = String::new();
        BufReader::new(stdout.take(MAX_ANSWER_BYTES)).read_line(&mut line)?;
        let mistakes: Vec<Value> = serde_json::from_str(&line)?;
        Ok(mistakes.iter().map(config_error_from_json).collect())
    }
}

/// The process's part: answers each line with the mistakes that a new daemon would find, until the daemon
/// is gone.
pub(super) fn answer_check_requests(
    load: impl Fn() -> Result<Config, Vec<ConfigError>>,
) -> Result<u8, CommandFailure> {
    let reading = SandboxPolicy { allowed_dirs: vec!["/".into()], ..SandboxPolicy::default() };
    // Best effort: without Landlock there is no sandbox to lack.
    drop(restrict_process(&reading));
    for line in io::stdin().lines() {
        if line.is_err() {
            break;
        }
        let mistakes = load().map_or_else(|mistakes| mistakes, |config| start_errors(&config));
        let mistakes: Vec<_> = mistakes.iter().map(config_error_json).collect();
        write_stdout(|stdout| writeln!(stdout, "{}", Value::from(mistakes)))?;
    }
    Ok(exit::OK)
}

/// Reasons for which a process that loaded this configuration would not start.
fn start_errors(config: &Config) -> Vec<ConfigError> {
    let mistake = |key: &str, reason: String| ConfigError {
        file: None,
        position: None,
        key: key.to_owned(),
        value: None,
        reason,
    };
    let mut mistakes = Vec::new();
    if let Err(error) = check_socket_directories(config) {
        mistakes.push(mistake("listen", format!("cannot be served: {error}")));
    }
    if config.landlock == LandlockMode::Required {
        // Restricts one thread, which then ends.
        let tried = std::thread::scope(|scope| {
            let needs =
                SandboxPolicy { landlock: LandlockMode::Required, ..SandboxPolicy::default() };
            scope.spawn(move || restrict_process(&needs).map(drop)).join()
        });
        if let Ok(Err(error)) = tried {
            mistakes.push(mistake("sandbox.landlock", format!("cannot be: {error}")));
        }
    }
    mistakes
}
