//! `caproot serve`: turns flags into a configuration, starts the daemon, says where it listens, and
//! stops it when asked to.

use super::args::root_arg;
use super::exit;
use super::failure::Failure;
use super::output::print;
use super::root_arg::RootArg;
use crate::app::{self, StartError};
use crate::config::{Config, Flags, RootFlag};
use crate::endpoint::Env;
use clap::Args;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Run the daemon in the foreground
///
/// Prints one line a listener on stdout when it is ready: `listening unix:/…` or
/// `listening tcp:…`. Logs go to stderr. SIGTERM and SIGINT stop it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot serve --root ./skills                           publish ./skills as `skills`
  caproot serve --root team=/srv/skills --allow /opt      also let callers select below /opt
  caproot serve --root ./skills --listen tcp:127.0.0.1:0  a free port; stdout says which")]
pub(super) struct ServeArgs {
    /// Publish a directory and allow it; its id defaults to the directory's name; repeat for more
    #[arg(long, value_name = "[ID=]DIR", value_parser = root_arg())]
    root: Vec<RootArg>,
    /// Let callers select roots below this directory; repeat for more
    #[arg(long, value_name = "DIR")]
    allow: Vec<PathBuf>,
    /// Answer for this environment id; repeat for more [default: local]
    #[arg(long, value_name = "ID")]
    environment_id: Vec<String>,
    /// Listen at unix:PATH or tcp:HOST:PORT; repeat for more [default: a socket that clients find
    /// by themselves]
    #[arg(long, value_name = "ENDPOINT")]
    listen: Vec<String>,
    /// What to log: off, error, warn, info, debug, trace, or a filter such as
    /// caproot=debug,h2=warn
    #[arg(long, value_name = "LEVEL-FILTER", env = "CAPROOT_LOG", default_value = "info")]
    #[arg(value_parser = log_filter)]
    log: String,
}

/// Checks a log filter. A single word must be a level: the filter's own parser would take a
/// misspelt one for the name of a module, and silence everything else.
fn log_filter(text: &str) -> Result<String, String> {
    if !text.contains(['=', ',', '[']) {
        text.parse::<LevelFilter>().map_err(|error| error.to_string())?;
    }
    EnvFilter::try_new(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        Self::new(error.exit_code(), error)
    }
}

/// Runs the daemon until a signal stops it.
pub(super) async fn run(args: ServeArgs, env: &Env) -> Result<u8, Failure> {
    log_to_stderr(&args.log);
    let root = |root: RootArg| RootFlag { id: root.id, dir: root.dir.into() };
    let flags = Flags {
        roots: args.root.into_iter().map(root).collect(),
        allow: args.allow,
        environment_ids: args.environment_id,
        listen: args.listen,
    };
    let config =
        Config::from_flags(flags, env).map_err(|mistakes| Failure::all(exit::CONFIG, &mistakes))?;
    // Before anybody can know that there is a daemon to stop.
    let stop = stop_signal().map_err(|error| {
        Failure::new(exit::INTERNAL, format!("signals cannot be received: {error}"))
    })?;
    let app = app::build(config).await?;
    announce(&app.listening())?;
    app.run(stop).await?;
    Ok(exit::OK)
}

fn log_to_stderr(filter: &str) {
    // A second subscriber, as in a test, leaves the first in place.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .try_init();
}

/// Ends at the first SIGTERM or SIGINT from now on.
pub(super) fn stop_signal() -> io::Result<impl Future<Output = ()> + Send> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Says where the daemon listens. That nobody reads it is no reason not to serve.
fn announce(listening: &[String]) -> Result<(), Failure> {
    let outcome = print(|stdout| {
        listening.iter().try_for_each(|address| writeln!(stdout, "listening {address}"))
    });
    outcome.or_else(|failure| if failure.is_quiet() { Ok(()) } else { Err(failure) })
}

#[cfg(test)]
mod tests {
    use super::log_filter;

    #[test]
    fn a_misspelt_level_is_refused() {
        for good in ["info", "OFF", "caproot=debug,h2=warn", "warn,caproot=trace"] {
            assert_eq!(log_filter(good).as_deref(), Ok(good));
        }
        for bad in ["inof", "caproot=loud", "caproot=debug,h2=wran"] {
            assert!(log_filter(bad).is_err(), "{bad}");
        }
    }
}
