//! `caproot serve`: turns flags into a configuration, starts the daemon, says where it listens, and
//! stops it when asked to.

use super::args::root_arg;
use super::exit;
use super::failure::Failure;
use super::output::print;
use super::root_arg::RootArg;
use crate::app::{self, App, StartError};
use crate::config::{Config, Flags, Log, RootFlag, TlsFlags, log};
use crate::endpoint::Env;
use crate::telemetry::logs;
use clap::Args;
use std::io;
use std::path::PathBuf;
use tokio::signal::unix::{SignalKind, signal};

/// Run the daemon in the foreground
///
/// Prints one line a listener on stdout when it is ready: `listening unix:/…` or
/// `listening tcp:…`. Logs go to stderr. SIGTERM and SIGINT stop it.
///
/// With --config, every flag that is given replaces what the file says of it: --root the file's
/// `roots`, --allow its `allow`, --environment-id its `environment_ids`, --listen its `listen`,
/// --tls-cert and --tls-key its `tls.certificate` and `tls.key`, --tls-client-ca its `tls.client_ca`,
/// --insecure-tcp its `insecure_tcp`, --log its `log.filter`. Whatever has no flag is as the file says.
/// `caproot config example` prints a file with every key.
///
/// With a certificate, every TCP listener has TLS. The certificate files are read again when they
/// change; open connections stay.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot serve --root ./skills                           publish ./skills as `skills`
  caproot serve --root team=/srv/skills --allow /opt      also let callers select below /opt
  caproot serve --root ./skills --listen tcp:127.0.0.1:0  a free port; stdout says which
  caproot serve --root ./skills --listen tcp:0.0.0.0:7420 --tls-cert server.pem \
      --tls-key server.key --tls-client-ca clients.pem    other machines, by certificate
  caproot serve --config /etc/caproot.yaml                what a file says")]
pub(super) struct ServeArgs {
    /// Read this config file; each flag below replaces what the file says of it, lists as a whole
    /// [default: none]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
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
    /// The daemon's certificate, in PEM, and behind it those that lead to its authority; every TCP
    /// listener then has TLS
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The key of --tls-cert, in PEM
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// The authorities of clients, in PEM: turn away who shows no certificate of theirs
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,
    /// Let TCP listeners leave the machine without TLS: whoever is on the way can read and change
    /// everything
    #[arg(long)]
    insecure_tcp: bool,
    /// What to log: off, error, warn, info, debug, trace, or a filter such as
    /// caproot=debug,h2=warn [default: info]
    #[arg(long, value_name = "LEVEL-FILTER", env = "CAPROOT_LOG", value_parser = log::filter)]
    log: Option<String>,
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        Self::new(error.exit_code(), error)
    }
}

/// Runs the daemon until a signal stops it.
pub(super) async fn run(args: ServeArgs, env: &Env) -> Result<u8, Failure> {
    let root = |root: RootArg| RootFlag { id: root.id, dir: root.dir.into() };
    let flags = Flags {
        roots: args.root.into_iter().map(root).collect(),
        allow: args.allow,
        environment_ids: args.environment_id,
        listen: args.listen,
        tls: TlsFlags {
            cert: args.tls_cert,
            key: args.tls_key,
            client_ca: args.tls_client_ca,
            insecure_tcp: args.insecure_tcp,
        },
    };
    let config = Config::load(flags, args.config.as_deref(), env).map_err(|mistakes| {
        let sentences: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
        Failure::all(exit::CONFIG, &sentences)
    })?;
    let log = Log { filter: args.log.unwrap_or(config.log.filter.clone()), ..config.log };
    let logs = logs::begin(&log, config.traces.as_ref())
        .map_err(|sentence| Failure::new(exit::CONFIG, sentence))?;
    // Before anybody can know that there is a daemon to stop.
    let stop = stop_signal().map_err(|error| {
        Failure::new(exit::INTERNAL, format!("signals cannot be received: {error}"))
    })?;
    let app = app::build(config).await?;
    announce(&app)?;
    let outcome = app.run(stop).await;
    // Blocks for a moment, which must not be one of the runtime's own threads.
    drop(tokio::task::spawn_blocking(move || logs.end()).await);
    outcome?;
    Ok(exit::OK)
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
fn announce(app: &App) -> Result<(), Failure> {
    let outcome = print(|stdout| {
        let scraped = app.scraped();
        app.listening().iter().try_for_each(|address| writeln!(stdout, "listening {address}"))?;
        scraped.iter().try_for_each(|address| writeln!(stdout, "metrics {address}"))
    });
    outcome.or_else(|failure| if failure.is_quiet() { Ok(()) } else { Err(failure) })
}
