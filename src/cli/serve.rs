//! `caproot serve`: turns flags into a configuration, binds and restricts the process while it has
//! one thread, starts the daemon, says where it listens, and stops it when asked to.

use super::args::root_arg;
use super::config_check::{self, ConfigChecker};
use super::exit;
use super::failure::Failure;
use super::output::print;
use super::root_arg::RootArg;
use super::self_test;
use super::signals::Signals;
use crate::config::{Config, Flags, Listener, Mistake, RootFlag, TlsFiles, TlsFlags, log};
use crate::domain::{Landlock, LandlockState};
use crate::endpoint::Env;
use crate::file_watch::FileStamp;
use crate::sandbox::{Needs, Restricted, SelfTest, Unrestricted, restrict};
use crate::server::{
    self, App, CheckFile, ConfigFile, Ending, Listeners, Load, MayRead, Reloads, StartError,
};
use crate::telemetry::logs;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// What the last spans may take to be sent.
const LAST_SPANS: Duration = Duration::from_secs(5);

/// Run the daemon in the foreground
///
/// Prints one line a listener on stdout when it is ready: `listening unix:/…` or
/// `listening tcp:…`. Logs go to stderr. SIGTERM and SIGINT stop it, calls under way get 10 s; a second
/// one cuts them off. SIGHUP has it read its config file again; with --watch-config, a change of the
/// file does so too. Under a service manager it ends with 75 if the file needs a new process.
///
/// Sockets that it is handed over, as by a systemd socket unit, are served in place of the default
/// one, and beside those of --listen; one by the name of `metrics` is for Prometheus.
///
/// With --config, every flag that is given replaces what the file says of it: --root the file's
/// `roots`, --allow its `allow`, --environment-id its `environment_ids`, --listen its `listen`,
/// --tls-cert and --tls-key its `tls.certificate` and `tls.key`, --tls-client-ca its `tls.client_ca`,
/// --insecure-tcp its `insecure_tcp`, --log its `log.filter`, --sandbox its `sandbox.landlock`; --audit
/// is the same as `audit: true`. Whatever has no flag is as the file says. `caproot config example`
/// prints a file with every key.
///
/// With a certificate, every TCP listener has TLS. The certificate files are read again when they
/// change; open connections stay.
///
/// Once it is bound and before it serves, it has the kernel keep it to what it needs. `caproot status`
/// says how far that goes.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  caproot serve --root ./skills                           publish ./skills as `skills`
  caproot serve --root team=/srv/skills --allow /opt      also let callers select below /opt
  caproot serve --root ./skills --listen tcp:127.0.0.1:0  a free port; stdout says which
  caproot serve --root ./skills --listen tcp:0.0.0.0:7420 --tls-cert server.pem \
      --tls-key server.key --tls-client-ca clients.pem    other machines, by certificate
  caproot serve --config /etc/caproot.yaml                what a file says")]
#[allow(clippy::struct_excessive_bools)] // each is a flag
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
    /// Log each call: who made it, what for, and how it ended; refused calls are logged in any case
    #[arg(long)]
    audit: bool,
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
    /// Whether the kernel's Landlock keeps the daemon to what it needs; with required it does not
    /// start where that cannot be [default: best-effort]
    #[arg(long, value_name = "MODE", value_parser = PossibleValuesParser::new(Landlock::NAMES)
        .try_map(|name| Landlock::parse(&name)))]
    sandbox: Option<Landlock>,
    /// Reload the config file whenever it changes
    #[arg(long, requires = "config")]
    watch_config: bool,
    /// Instead of serving, check the config file whenever a line comes on stdin, for the daemon
    #[arg(long, requires = "config", hide = true)]
    check_config: bool,
    /// Instead of serving, try what the sandbox denies, such as reading this file; for tests
    #[arg(long, value_name = "FILE", hide = true)]
    self_test: Option<PathBuf>,
}

/// A daemon that is bound and restricted, and waits for its runtime.
#[derive(Debug)]
pub(super) struct Ready {
    config: Config,
    listeners: Listeners,
    /// Held until the daemon ends.
    restricted: Arc<Restricted>,
    /// Flags and surroundings for reading the file again, if there is one.
    again: Option<(ServeArgs, Env)>,
    file: Option<ConfigFile>,
    /// Set under a service manager.
    checker: Option<io::Result<ConfigChecker>>,
}

/// What came of the work before there is a runtime.
#[derive(Debug)]
pub(super) enum Begun {
    Ready(Box<Ready>),
    /// There is nothing more to do.
    Ended(u8),
}

impl From<Unrestricted> for Failure {
    fn from(error: Unrestricted) -> Self {
        Self::new(exit::CONFIG, error)
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        Self::new(error.exit_code(), error)
    }
}

/// Does all that must come before the process has a second thread.
pub(super) fn begin(args: ServeArgs, env: &Env) -> Result<Begun, Failure> {
    if args.check_config {
        return config_check::answer(|| load(&args, env)).map(Begun::Ended);
    }
    let (inherited, handed_over) = server::inherit()?;
    let env = &Env { handed_over, ..env.clone() };
    let file = args.config.clone().map(|path| {
        let stamp = FileStamp::of_path(&path);
        ConfigFile { path, stamp }
    });
    let config = load(&args, env).map_err(|mistakes| {
        let sentences: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
        Failure::all(exit::CONFIG, &sentences)
    })?;
    // What is bound by now needs no right to bind, to lock or to make a socket any more.
    let listeners = server::bind(&config, inherited)?;
    let test = args.self_test.clone().map(SelfTest::before).transpose().map_err(|error| {
        Failure::new(exit::INTERNAL, format!("the self-test cannot begin: {error}"))
    })?;
    let is_managed = args.config.is_some() && server::has_service_manager();
    let checker = (is_managed && test.is_none()).then(ConfigChecker::start);
    let restricted = restrict(&needs(&config, args.config.clone(), env))?;
    if let Some(test) = test {
        return self_test::run(&test, &config, &restricted.sandbox).map(Begun::Ended);
    }
    let restricted = Arc::new(restricted);
    let again = args.config.is_some().then(|| (args, env.clone()));
    Ok(Begun::Ready(Box::new(Ready { config, listeners, restricted, again, file, checker })))
}

/// What the file and the flags say together, at the start and later.
fn load(args: &ServeArgs, env: &Env) -> Result<Config, Vec<Mistake>> {
    let root = |root: &RootArg| RootFlag { id: root.id.clone(), dir: root.dir.clone().into() };
    let flags = Flags {
        roots: args.root.iter().map(root).collect(),
        allow: args.allow.clone(),
        environment_ids: args.environment_id.clone(),
        listen: args.listen.clone(),
        audit: args.audit,
        tls: TlsFlags {
            cert: args.tls_cert.clone(),
            key: args.tls_key.clone(),
            client_ca: args.tls_client_ca.clone(),
            insecure_tcp: args.insecure_tcp,
        },
        watch_config: args.watch_config,
    };
    let mut config = Config::load(flags, args.config.as_deref(), env)?;
    if let Some(filter) = &args.log {
        config.log.filter.clone_from(filter);
    }
    if config.audit {
        // Asked for by name, so that it goes before what the filter says of everything.
        config.log.filter.push_str(",caproot::audit=info");
    }
    config.landlock = args.sandbox.unwrap_or(config.landlock);
    Ok(config)
}

/// Runs the daemon until a signal stops it.
pub(super) async fn run(begun: Begun) -> Result<u8, Failure> {
    let Ready { config, listeners, restricted, again, file, checker } = match begun {
        Begun::Ready(ready) => *ready,
        Begun::Ended(code) => return Ok(code),
    };
    // Before anybody is told that there is a daemon to stop.
    let signals = Signals::new().map_err(|error| {
        Failure::new(exit::INTERNAL, format!("signals cannot be received: {error}"))
    })?;
    let logs = logs::begin(&config.log, config.traces.as_ref())
        .map_err(|sentence| Failure::new(exit::CONFIG, sentence))?;
    let logs = Arc::new(logs);
    say_restricted(&restricted);
    let app = server::build_on(listeners, config, restricted.sandbox).await?;
    announce(&app)?;
    // The flags still replace what they replace.
    let load = again.map(|(args, env)| Arc::new(move || load(&args, &env)) as Load);
    let may_read = restricted.is_walled().then(|| {
        let restricted = restricted.clone();
        Arc::new(move |dir: &Path| restricted.may_read(dir)) as MayRead
    });
    let checker = checker.and_then(|started| {
        let warn = |error: &io::Error| {
            tracing::warn!(%error, "keys that need a new process wait for a restart");
        };
        started.inspect_err(warn).ok()
    });
    let check_file = checker.map(|checker| Arc::new(move || checker.check()) as CheckFile);
    let logs_of_reload = Some(logs.clone());
    let asked = Arc::default();
    let reloads = Reloads {
        asked: Arc::clone(&asked),
        load,
        may_read,
        logs: logs_of_reload,
        file,
        check_file,
    };
    let (stop, stopped) = oneshot::channel();
    let run = Box::pin(app.run_reloading(async { drop(stopped.await) }, reloads));
    let outcome = signals.rule(run, stop, &asked).await;
    // Blocks for a moment, which must not be one of the runtime's own threads; nor must one that hangs
    // on a dead mount keep it waiting.
    let ended = tokio::task::spawn_blocking(move || logs.end());
    drop(tokio::time::timeout(LAST_SPANS, ended).await);
    let ending = outcome.unwrap_or_else(|| {
        tracing::warn!("told to stop again: calls in flight are cut off");
        Ok(Ending::Stopped)
    })?;
    Ok(match ending {
        Ending::Stopped => exit::OK,
        Ending::NeedsNewProcess => exit::RESTART,
    })
}

/// What the daemon does once it is restricted. Whatever else it is to read then belongs in here.
fn needs(config: &Config, file: Option<PathBuf>, env: &Env) -> Needs {
    let socket = |listener: &Listener| match listener {
        Listener::Unix(path) | Listener::OwnUnix(path) => Some(path.clone()),
        Listener::Tcp(_) => None,
    };
    let tokens = config.callers.iter().flat_map(|rules| rules.token_files.iter().flatten());
    let tokens = tokens.map(|file| file.path().to_owned());
    let certificates = config.tls.iter().flat_map(TlsFiles::all).map(Path::to_owned);
    Needs {
        landlock: config.landlock,
        allow: config.allowed_beside().to_vec(),
        roots: config.published.iter().map(|p| OsStr::from_bytes(&p.path).into()).collect(),
        files: file.into_iter().chain(tokens).chain(certificates).collect(),
        sockets: config.listeners.iter().chain(&config.metrics).filter_map(socket).collect(),
        connect: config.traces.iter().map(|traces| traces.port).collect(),
        home: env.home.clone(),
    }
}

fn say_restricted(restricted: &Restricted) {
    let sandbox = &restricted.sandbox;
    let (landlock, abi, prefixes) = (sandbox.landlock.name(), sandbox.abi, sandbox.prefixes);
    let no_new_privs = sandbox.no_new_privs;
    match sandbox.landlock {
        LandlockState::Enforced | LandlockState::Off => {
            tracing::info!(landlock, abi, prefixes, no_new_privs, "sandbox");
        }
        LandlockState::Partial | LandlockState::Unavailable => {
            tracing::warn!(landlock, abi, prefixes, no_new_privs, "sandbox");
        }
    }
    for note in &restricted.notes {
        tracing::warn!("{note}");
    }
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
