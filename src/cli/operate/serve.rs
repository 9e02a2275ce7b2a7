//! `caproot serve`: loads the configuration, binds listeners and applies the sandbox while the
//! process has one thread, then runs the daemon until a signal.

use super::daemon_signals::DaemonSignals;
use crate::cli::args::{preset_parser, root_arg_parser};
use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::cli::log_args::start_log;
use crate::cli::operate::config_check::{self, ConfigChecker};
use crate::cli::output::print_ready_lines;
use crate::cli::root_arg::RootArg;
use crate::daemon::config::{
    Config, ConfigError, ConfigErrors, ListenAddress, LockPaths, READ_TIMEOUT, ReadProgress,
    RootFlag, RootPreset, ServeFlags, TlsFiles, TlsFlags, record_reading,
};
use crate::daemon::model::{LandlockMode, LandlockState, SandboxStatus};
use crate::daemon::sandbox::{ProcessSandbox, SandboxError, SandboxPolicy, restrict_process};
use crate::daemon::server::{
    self, BoundDaemon, BoundListeners, ConfigFile, ConfigFileCheck, ConfigLoader, ExitReason,
    ReloadSource, SandboxReadCheck, StartError,
};
use crate::daemon::telemetry::logs;
use crate::log_config;
use caproot_core::file_watch::FileStamp;
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::sync::run_blocking;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;

/// Time limit for sending the last spans.
const TRACE_FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Run the daemon in the foreground
///
/// Prints one line per listener on stdout when it is ready: `listening unix:/…` or `listening
/// tcp:…`. Logs go to stderr. SIGTERM and SIGINT stop the daemon. Calls in flight get 10 s. A
/// second signal aborts them. SIGHUP reloads the config file. With --watch-config, a change of the
/// file reloads it, too. Under a service manager, the daemon exits with 75 if the file needs a new
/// process.
///
/// Inherited sockets, such as the sockets of a systemd socket unit, replace the default socket and
/// are served in addition to --listen. An inherited socket named `metrics` serves Prometheus.
///
/// With --config, each flag replaces the value of its key in the file, lists as a whole. Values
/// without a flag come from the file. `caproot config example` prints a file with every key and its
/// flag.
///
/// Without roots and allowed directories, the daemon publishes the default roots. The roots `repo`,
/// `repo-2` and so on are `.agents/skills` of the working directory and of each directory above it,
/// up to the root of the repository. Each of these roots is listed while its directory exists.
///
/// With a certificate, every TCP listener uses TLS. The certificate files are read again when they
/// change. Open connections stay.
///
/// Before it serves, the daemon restricts itself with the kernel's Landlock to the files and ports
/// that it needs. `caproot status` shows the restrictions.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  caproot serve                                           # the default roots
  caproot serve --root ./skills                           # publish one root
  caproot serve --root team=/srv/skills --allow /opt      # also allow /opt
  caproot serve --root ./skills --listen tcp:127.0.0.1:0  # any free port
  caproot serve --config /etc/caproot/caproot.yaml        # from a file
  caproot serve --stop-with-stdin                         # below a program
  caproot serve --root ./skills --listen tcp:0.0.0.0:7420 \\
      --tls-cert server.pem --tls-key server.key --tls-client-ca clients.pem")]
#[allow(clippy::struct_excessive_bools)] // each is a flag
pub struct ServeArgs {
    /// Config file, see caproot.yaml(5) [default: none]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Publish a directory and allow it; its id defaults to the directory's name; repeat for more
    #[arg(long, value_name = "[ID=]DIR", value_parser = root_arg_parser())]
    root: Vec<RootArg>,
    /// Publish the directories in which a tool keeps skills, in the project of the working directory
    /// and at home; repeat for more
    #[arg(long, value_name = "TOOL", value_parser = preset_parser())]
    preset: Vec<RootPreset>,
    /// Allow callers to select roots below this directory; repeat for more
    #[arg(long, value_name = "DIR")]
    allow: Vec<PathBuf>,
    /// Environment id of this daemon; repeat for more [default: local]
    #[arg(long, value_name = "ID")]
    environment_id: Vec<String>,
    /// Listen at unix:PATH or tcp:HOST:PORT; repeat for more [default: a socket that clients find
    /// without configuration]
    #[arg(long, value_name = "ENDPOINT")]
    listen: Vec<String>,
    /// Log each call: its caller, target and outcome; rejected calls are always logged
    #[arg(long)]
    audit: bool,
    /// Certificate of the daemon (PEM), followed by its intermediate certificates; every TCP
    /// listener then uses TLS
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Key of --tls-cert (PEM)
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Authorities of clients (PEM): reject clients without a certificate of these authorities
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,
    /// Allow TCP listeners on other addresses than loopback without TLS: an attacker on the network
    /// can read and change everything
    #[arg(long)]
    insecure_tcp: bool,
    /// Log filter: off, error, warn, info, debug, trace, or a filter such as caproot=debug,h2=warn
    /// [default: info]
    #[arg(long, value_name = "LEVEL-FILTER", env = "CAPROOT_LOG", value_parser = log_config::parse_filter)]
    log: Option<String>,
    /// Mode of the Landlock sandbox; with required, the daemon does not start if the sandbox cannot
    /// be applied [default: best-effort]
    #[arg(long, value_name = "MODE", value_parser = PossibleValuesParser::new(LandlockMode::NAMES)
        .try_map(|name| LandlockMode::parse(&name)))]
    sandbox: Option<LandlockMode>,
    /// Reload the config file when it changes
    #[arg(long, requires = "config")]
    watch_config: bool,
    /// Also stop when stdin ends. A program that starts the daemon with a pipe as stdin then leaves no
    /// daemon behind, even if the program is killed
    #[arg(long)]
    stop_with_stdin: bool,
    /// Instead of serving, check the config file for each line on stdin; used by the daemon
    #[arg(long, requires = "config", hide = true)]
    check_config: bool,
}

/// Daemon with bound listeners and sandbox, ready for its runtime.
#[derive(Debug)]
pub struct PreparedDaemon {
    config: Config,
    listeners: BoundListeners,
    /// Held until the daemon ends.
    sandbox_guard: Arc<ProcessSandbox>,
    /// Flags and environment for reloading the file, if there is a file.
    reload_inputs: Option<(ServeArgs, ProcessEnv)>,
    file: Option<ConfigFile>,
    /// Set under a service manager.
    checker: Option<io::Result<ConfigChecker>>,
    stops_with_stdin: bool,
}

/// Result of the work before the runtime starts.
#[derive(Debug)]
pub enum ServePreparation {
    Daemon(Box<PreparedDaemon>),
    /// The command is finished, with this exit code.
    Finished(u8),
}

impl From<SandboxError> for CommandFailure {
    fn from(error: SandboxError) -> Self {
        Self::new(exit::BAD_CONFIG, error)
    }
}

impl From<StartError> for CommandFailure {
    fn from(error: StartError) -> Self {
        Self::new(error.exit_code(), error)
    }
}

/// Does all work that must be done while the process has one thread.
pub fn prepare_daemon(
    args: ServeArgs,
    env: &ProcessEnv,
) -> Result<ServePreparation, CommandFailure> {
    if args.check_config {
        return config_check::answer_check_requests(|| load_config(&args, env))
            .map(ServePreparation::Finished);
    }

    let (inherited, handed_over) = server::take_inherited_sockets()?;
    let env = &ProcessEnv {
        inherited_sockets: handed_over,
        ..env.clone()
    };
    let LoadedConfig { config, file } = load_config_in_time(&args, env)?;

    // The listeners are bound first, so that the sandbox can deny binding, locking and creating
    // sockets.
    let listeners = server::bind_listeners(&config, inherited)?;
    // The checker starts before the sandbox, which would restrict it.
    let is_managed = args.config.is_some() && server::has_service_manager();
    let checker = is_managed.then(ConfigChecker::start);

    let restricted = restrict_process(&sandbox_policy(&config, args.config.clone(), env))?;
    let stops_with_stdin = args.stop_with_stdin;
    let reload_inputs = args.config.is_some().then(|| (args, env.clone()));
    Ok(ServePreparation::Daemon(Box::new(PreparedDaemon {
        config,
        listeners,
        sandbox_guard: Arc::new(restricted),
        reload_inputs,
        file,
        checker,
        stops_with_stdin,
    })))
}

/// Configuration of the start.
struct LoadedConfig {
    config: Config,
    file: Option<ConfigFile>,
}

impl LoadedConfig {
    fn load(args: &ServeArgs, env: &ProcessEnv) -> Result<Self, ConfigErrors> {
        if let Some(path) = &args.config {
            record_reading(&[path]);
        }
        // The stamp comes first, so that a change during the read is noticed.
        let file = args.config.clone().map(|path| {
            let stamp = FileStamp::of_path(&path);
            ConfigFile { path, stamp }
        });
        let config = load_config(args, env)?;
        Ok(Self { config, file })
    }
}

/// Loads the configuration on another thread, so that a file that hangs is an error. The thread has
/// ended when the function succeeds: the sandbox restricts one thread only. If the system refuses a
/// thread, loads the configuration on this thread without a time limit: the runtime reports the
/// refusal.
fn load_config_in_time(args: &ServeArgs, env: &ProcessEnv) -> Result<LoadedConfig, ConfigErrors> {
    let progress = ReadProgress::default();
    let (sender, receiver) = mpsc::channel();
    let (owned_args, owned_env, followed) = (args.clone(), env.clone(), progress.clone());
    let spawned = thread::Builder::new().spawn(move || {
        let loaded = followed.follow(|| LoadedConfig::load(&owned_args, &owned_env));
        drop(sender.send(loaded));
    });
    let Ok(loading) = spawned else {
        return LoadedConfig::load(args, env);
    };

    match receiver.recv_timeout(READ_TIMEOUT) {
        Ok(loaded) => {
            // The thread has sent its result, and cannot fail any longer.
            drop(loading.join());
            loaded
        }
        Err(RecvTimeoutError::Timeout) => Err(Config::read_timeout_error(&progress).into()),
        Err(RecvTimeoutError::Disconnected) => match loading.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => Err(ConfigError::key("the configuration", "was not loaded").into()),
        },
    }
}

/// Loads the config file and the flags, at the start and for each reload.
fn load_config(args: &ServeArgs, env: &ProcessEnv) -> Result<Config, ConfigErrors> {
    let args = args.clone();
    let roots = args.root.into_iter().map(|root| RootFlag {
        id: root.id,
        dir: root.dir.into(),
    });
    let flags = ServeFlags {
        roots: roots.collect(),
        presets: args.preset,
        allow: args.allow,
        environment_ids: args.environment_id,
        listen: args.listen,
        audit: args.audit,
        tls: TlsFlags {
            cert: args.tls_cert,
            key: args.tls_key,
            client_ca: args.tls_client_ca,
            insecure_tcp: args.insecure_tcp,
        },
        watch_config: args.watch_config,
    };
    let mut config = Config::load(flags, args.config.as_deref(), env)?;

    if let Some(filter) = args.log {
        config.log.filter = filter;
    }
    if config.audit {
        // A directive for a target takes precedence over the general level.
        config.log.filter.push_str(",caproot::audit=info");
    }
    config.landlock = args.sandbox.unwrap_or(config.landlock);
    Ok(config)
}

/// Runs the daemon until a signal stops it.
pub async fn run(prepared: ServePreparation) -> Result<u8, CommandFailure> {
    let PreparedDaemon {
        config,
        listeners,
        sandbox_guard,
        reload_inputs,
        file,
        checker,
        stops_with_stdin,
    } = match prepared {
        ServePreparation::Daemon(ready) => *ready,
        ServePreparation::Finished(code) => return Ok(code),
    };

    // Before the listeners are printed, so that a signal after that stops the daemon properly.
    let signals = DaemonSignals::new(stops_with_stdin)?;
    let logs = Arc::new(start_log(&config.log, config.traces.as_ref())?);
    log_sandbox(&sandbox_guard);

    let app = server::build_daemon_on(listeners, config, sandbox_guard.status).await?;
    print_listeners(&app).await?;

    let may_read = sandbox_guard.is_restricted().then(|| {
        let sandbox = sandbox_guard.clone();
        Arc::new(move |dir: &Path| sandbox.may_read(dir)) as SandboxReadCheck
    });
    let requested = Arc::default();
    let reloads = ReloadSource {
        requested: Arc::clone(&requested),
        // The flags replace the values of the file on each reload, too.
        load_config: reload_inputs
            .map(|(args, env)| Arc::new(move || load_config(&args, &env)) as ConfigLoader),
        may_read,
        logs: Some(logs.clone()),
        config_file: file,
        check_file: checker.and_then(file_check),
    };
    let (stop, stopped) = oneshot::channel();
    let run = Box::pin(app.run_with_reloads(async { drop(stopped.await) }, reloads));
    let outcome = signals.run_until_stopped(run, stop, &requested).await;

    // Blocks for a moment, so it must not run on a thread of the runtime. With the timeout, a
    // thread that hangs on a dead mount does not delay the exit.
    let flushed = run_blocking(move || logs.flush_spans());
    drop(tokio::time::timeout(TRACE_FLUSH_TIMEOUT, flushed).await);

    let reason = outcome.unwrap_or_else(|| {
        tracing::warn!("second stop signal: calls in flight are aborted");
        Ok(ExitReason::Stopped)
    })?;
    Ok(match reason {
        ExitReason::Stopped => exit::OK,
        ExitReason::NeedsRestart => exit::NEEDS_RESTART,
    })
}

/// Returns the check of the config file by the checker, if the checker has started.
fn file_check(started: io::Result<ConfigChecker>) -> Option<ConfigFileCheck> {
    match started {
        Ok(checker) => Some(Arc::new(move || checker.check())),
        Err(error) => {
            tracing::warn!(%error, "keys that need a new process are applied only at a restart");
            None
        }
    }
}

/// Returns the files and ports that the daemon needs after the sandbox is applied. New needs belong
/// here.
#[must_use]
pub fn sandbox_policy(config: &Config, file: Option<PathBuf>, env: &ProcessEnv) -> SandboxPolicy {
    let callers = config.callers.iter();
    let tokens = callers.flat_map(|rules| rules.token_files.iter().flatten());
    let tokens = tokens.map(|file| file.path().to_owned());
    let certificates = config.tls.iter().flat_map(TlsFiles::paths);
    let certificates = certificates.map(Path::to_owned);
    let locks = config.trust.iter();
    let locks = locks.flat_map(|trust| LockPaths::of(&trust.policy.lock).all());
    let roots = config.published_roots.iter();
    // A default root that does not exist must not open the home directory.
    let roots = roots.filter(|root| !Config::needs_home(root, env));
    let listeners = config.listeners.iter().chain(&config.metrics);

    SandboxPolicy {
        landlock: config.landlock,
        allowed_dirs: config
            .extra_allowed_dirs()
            .iter()
            .cloned()
            .chain(config.link_dirs())
            .collect(),
        roots: roots
            .map(|root| OsStr::from_bytes(&root.path).into())
            .collect(),
        files: file
            .into_iter()
            .chain(tokens)
            .chain(certificates)
            .chain(locks)
            .collect(),
        sockets: listeners
            .filter_map(|listener| match listener {
                ListenAddress::Unix(path) | ListenAddress::UnixInOwnDir(path) => Some(path.clone()),
                ListenAddress::Tcp(_) => None,
            })
            .collect(),
        connect_ports: config.traces.iter().map(|traces| traces.port).collect(),
        may_bind_tcp: false,
        home: env.home.clone(),
    }
}

fn log_sandbox(restricted: &ProcessSandbox) {
    let SandboxStatus {
        landlock: state,
        landlock_abi: abi,
        readable_dirs: prefixes,
        no_new_privs,
    } = restricted.status;
    let landlock = state.name();

    match state {
        LandlockState::Enforced | LandlockState::Off => {
            tracing::info!(landlock, abi, prefixes, no_new_privs, "sandbox");
        }
        LandlockState::Partial | LandlockState::Unavailable => {
            tracing::warn!(landlock, abi, prefixes, no_new_privs, "sandbox");
        }
    }
    for note in &restricted.warnings {
        tracing::warn!("{note}");
    }
}

/// Prints the addresses of the listeners.
async fn print_listeners(app: &BoundDaemon) -> Result<(), CommandFailure> {
    let addresses = app.listen_addresses();
    let served = addresses.iter();
    let served = served.map(|address| format!("listening {address}"));
    let scraped = app.metrics_address();
    let scraped = scraped.iter().map(|address| format!("metrics {address}"));

    // On a terminal, the log of the start comes first. If the log is not read, its lines may come later.
    let _ = logs::flush_log();
    print_ready_lines(served.chain(scraped).collect()).await
}
