//! Flag of the log of commands that run a session.

use super::failure::CommandFailure;
#[cfg(target_os = "linux")]
use super::{exit, failure::CommandResult as _};
#[cfg(target_os = "linux")]
use crate::daemon::telemetry::logs::{LogHandle, init_logging};
use crate::log_config::{self, LogConfig, TraceConfig};
use clap::Args;

/// Default filter: errors, and the problems that a session finds, such as an MCP server that does not answer. The
/// commands themselves report the errors of the MCP library.
const DEFAULT_FILTER: &str = "error,caproot_client=warn,caproot_session=warn,rmcp=off";

/// Flag of the log.
#[derive(Debug, Args)]
pub struct LogArgs {
    /// Filter of the log on stderr: off, error, warn, info, debug, trace, or a filter such as
    /// caproot=debug,h2=warn [default: problems only, such as an internal error of a tool]
    #[arg(long, value_name = "LEVEL-FILTER", env = "CAPROOT_LOG", value_parser = log_config::parse_filter)]
    log: Option<String>,
}

impl LogArgs {
    /// Starts the log of the process, as lines of text on stderr.
    pub fn start(&self) -> Result<(), CommandFailure> {
        let filter = self.log.as_deref().unwrap_or(DEFAULT_FILTER);
        let config = LogConfig {
            filter: filter.to_owned(),
            ..LogConfig::default()
        };
        start_log(&config, None).map(drop)
    }
}

/// Starts the log of the process.
#[cfg(target_os = "linux")]
pub fn start_log(
    log: &LogConfig,
    traces: Option<&TraceConfig>,
) -> Result<LogHandle, CommandFailure> {
    init_logging(log, traces).or_exit(exit::BAD_CONFIG)
}

/// Writes the log to stderr as the subscriber formats it.
#[cfg(not(target_os = "linux"))]
fn start_log(log: &LogConfig, _traces: Option<&TraceConfig>) -> Result<(), CommandFailure> {
    let lines = tracing_subscriber::fmt().with_writer(std::io::stderr);
    // A second call keeps the first subscriber.
    let _ = lines.with_env_filter(&log.filter).try_init();
    Ok(())
}
