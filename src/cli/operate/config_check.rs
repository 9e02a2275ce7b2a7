//! Separate process that checks the config file for a reload. The daemon's sandbox may deny reading
//! the certificates and tokens of the new file. The daemon starts the process before the sandbox is
//! applied. The process can only read files and bind TCP ports, and the daemon can only request a
//! check.

use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::cli::file_check::{config_error_from_json, config_error_json};
use crate::cli::output::write_stdout;
use crate::daemon::config::{Config, ConfigError, ConfigErrors};
use crate::daemon::model::LandlockMode;
use crate::daemon::sandbox::{SandboxPolicy, restrict_process};
use crate::daemon::server::check_listeners;
use caproot_core::sync::Mutex;
use serde_json::Value;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::thread::{Builder, JoinHandle};

/// Maximum size of a response: 100 errors, each with a bounded value.
const MAX_ANSWER_BYTES: u64 = 1 << 20;

/// Process that checks the config file.
#[derive(Debug)]
pub struct ConfigChecker(Mutex<Child>);

impl ConfigChecker {
    /// Starts this program again with the same flags.
    pub fn start() -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(std::env::args_os().skip(1))
            .arg("--check-config");
        // Only the daemon talks to the service manager.
        for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(Self(Mutex::new(command.spawn()?)))
    }

    /// Returns every error that would keep a new process from starting with the file. Blocks.
    pub fn check(&self) -> io::Result<ConfigErrors> {
        let Some(mut child) = self.0.try_lock() else {
            return Err(io::Error::other("an earlier check still waits for a file"));
        };
        let Child { stdin, stdout, .. } = &mut *child;
        let (Some(stdin), Some(stdout)) = (stdin, stdout) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        stdin.write_all(b"\n")?;

        // The process sends one line for each request, so that the reader buffers nothing else.
        let mut line = String::new();
        BufReader::new(stdout.take(MAX_ANSWER_BYTES)).read_line(&mut line)?;
        let errors: Vec<Value> = serde_json::from_str(&line)?;
        Ok(errors.iter().map(config_error_from_json).collect())
    }
}

/// Runs the checking process: answers each input line with the errors of the file, until stdin
/// ends.
pub fn answer_check_requests(
    load: impl Fn() -> Result<Config, ConfigErrors>,
) -> Result<u8, CommandFailure> {
    let reading = SandboxPolicy {
        allowed_dirs: vec!["/".into()],
        may_bind_tcp: true,
        ..SandboxPolicy::default()
    };
    // Best effort: without Landlock, the daemon has no sandbox either.
    drop(restrict_process(&reading));

    for line in io::stdin().lines() {
        if line.is_err() {
            break;
        }

        let errors = load().map_or_else(|errors| errors, |config| start_errors(&config));
        let errors: Vec<_> = errors.iter().map(config_error_json).collect();
        write_stdout(|stdout| writeln!(stdout, "{}", Value::from(errors)))?;
    }
    Ok(exit::OK)
}

/// Returns the reasons why a process with this configuration would not start.
fn start_errors(config: &Config) -> ConfigErrors {
    let mut errors = ConfigErrors::default();
    if let Err((key, error)) = check_listeners(config) {
        errors.add(ConfigError::key(key, error.to_string()));
    }

    if config.landlock == LandlockMode::Required {
        // The sandbox applies only to this thread, which then ends.
        let needs = SandboxPolicy {
            landlock: LandlockMode::Required,
            ..SandboxPolicy::default()
        };

        let tried = Builder::new().spawn(move || restrict_process(&needs).map(drop));
        let error = match tried.map(JoinHandle::join) {
            Ok(Ok(Err(error))) => error.to_string(),
            Err(error) => format!("no thread to check it: {error}"),
            Ok(_) => return errors,
        };

        let reason = format!("cannot be applied: {error}");
        errors.add(ConfigError::key("sandbox.landlock", reason));
    }
    errors
}
