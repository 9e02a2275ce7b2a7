//! Executors of `caproot call`, and the roots of its sessions.

use super::CallArgs;
use super::answer::RequestError;
use crate::cli::failure::CommandFailure;
use crate::cli::output::print_stderr;
use crate::cli::{exit, fleet};
use caproot_client::fleet::{ExecutorRegistry, OmittedExecutor, RegistryFuture};
use caproot_client::{ExecutorConfig, Fleet, parse_selected_roots};
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::SelectedCapabilityRoot;
use serde_json::Value;
use std::time::Duration;

/// Executors of the command line, which all sessions share.
pub struct SessionExecutors<'a> {
    pub fleet: Fleet,
    args: &'a CallArgs,
    env: &'a ProcessEnv,
}

/// Executors and roots of the first session.
pub struct OpenExecutors<'a> {
    pub executors: SessionExecutors<'a>,
    pub roots: Vec<SelectedCapabilityRoot>,
}

/// Roots of a session.
#[derive(Default)]
pub struct SessionRoots {
    pub roots: Vec<SelectedCapabilityRoot>,
    /// Executors whose published roots are missing, one sentence each.
    pub warnings: Vec<String>,
}

/// One executor of the command line.
struct ConnectedRoots {
    fleet: Fleet,
    roots: Vec<SelectedCapabilityRoot>,
}

/// Registry in which one executor has every environment: a session may select any root of the daemon.
struct EveryEnvironment(ExecutorConfig);

impl ExecutorRegistry for EveryEnvironment {
    fn find_executor<'a>(&'a self, _: &'a str) -> RegistryFuture<'a> {
        Box::pin(std::future::ready(Ok(Some(self.0.clone()))))
    }
}

impl<'a> OpenExecutors<'a> {
    /// Connects to the executors of the command line.
    pub async fn open(args: &'a CallArgs, env: &'a ProcessEnv) -> Result<Self, CommandFailure> {
        if args.selection.is_of_stdin() {
            let sentence = "--selected - cannot be used here: stdin has the requests; name a file";
            return Err(CommandFailure::new(exit::USAGE, sentence));
        }

        let mut roots = Vec::new();
        let fleet = if let Some(file) = args.connection.whole_fleet() {
            let fleet = fleet::read_fleet(file).await?;
            if !args.no_session {
                roots = match args.selection.roots_from_file()? {
                    Some(roots) => roots,
                    None => fleet::published_roots(&fleet, args.connect_timeout).await,
                };
            }
            fleet
        } else {
            match open_executor(args, env).await {
                Ok(connected) => {
                    roots = connected.roots;
                    connected.fleet
                }
                Err(failure) if !args.needs_executor() && is_missing(&failure) => {
                    print_stderr(&[format!("caproot: {}", missing_executor(&failure))]);
                    Fleet::from_executors([])
                }
                Err(failure) => return Err(failure),
            }
        };

        let executors = SessionExecutors { fleet, args, env };
        Ok(Self { executors, roots })
    }
}

impl SessionExecutors<'_> {
    /// Returns the roots of a session: those of a request, otherwise those of the command line.
    pub async fn select_roots(
        &self,
        given: Option<&Value>,
        has_other_source: bool,
        timeout: Duration,
    ) -> Result<SessionRoots, RequestError> {
        if let Some(given) = given {
            let roots = parse_selected_roots(&given.to_string())
                .map_err(|error| RequestError::bad_config(vec![format!("roots: {error}")]))?;
            return Ok(SessionRoots {
                roots,
                warnings: Vec::new(),
            });
        }

        let selected = if self.args.connection.whole_fleet().is_some() {
            self.select_fleet_roots(timeout).await?
        } else {
            match open_executor(self.args, self.env).await {
                Ok(connected) => SessionRoots {
                    roots: connected.roots,
                    warnings: Vec::new(),
                },
                Err(failure) if !self.args.needs_executor() && is_missing(&failure) => {
                    SessionRoots {
                        roots: Vec::new(),
                        warnings: vec![missing_executor(&failure)],
                    }
                }
                Err(failure) => return Err(request_error(&failure)),
            }
        };

        let is_lost = selected.roots.is_empty() && !selected.warnings.is_empty();
        if is_lost && !has_other_source {
            let message = selected.warnings.join("; ");
            return Err(RequestError::new("NO_DAEMON", message));
        }
        Ok(selected)
    }

    async fn select_fleet_roots(&self, timeout: Duration) -> Result<SessionRoots, RequestError> {
        let of_file = self.args.selection.roots_from_file();
        if let Some(roots) = of_file.map_err(|failure| request_error(&failure))? {
            return Ok(SessionRoots {
                roots,
                warnings: Vec::new(),
            });
        }

        let published = self.fleet.published_roots(timeout).await;
        Ok(SessionRoots {
            roots: published.roots,
            warnings: published.omitted.iter().map(omitted_sentence).collect(),
        })
    }
}

fn omitted_sentence(omitted: &OmittedExecutor) -> String {
    let id = &omitted.environment_id;
    let reason = &omitted.reason;
    format!("the executor of the environment {id:?} is omitted: {reason}")
}

fn is_missing(failure: &CommandFailure) -> bool {
    failure.exit_code() == exit::NO_DAEMON
}

fn missing_executor(failure: &CommandFailure) -> String {
    format!("the session has no executor: {}", failure.sentence())
}

fn request_error(failure: &CommandFailure) -> RequestError {
    if is_missing(failure) {
        RequestError::new("NO_DAEMON", failure.sentence())
    } else {
        RequestError::failed(&failure.sentence())
    }
}

/// Connects to the one executor of the command line, within the time limit.
async fn open_executor(
    args: &CallArgs,
    env: &ProcessEnv,
) -> Result<ConnectedRoots, CommandFailure> {
    let opened = tokio::time::timeout(args.connect_timeout, async {
        let mut executor = args.connection.connect(env).await?;
        let roots = args.selection.selected_roots(&mut executor, env).await?;
        let fleet = match executor.fleet() {
            Some(fleet) => fleet.clone(),
            None => Fleet::new(EveryEnvironment(executor.config.clone())),
        };
        Ok(ConnectedRoots { fleet, roots })
    });

    opened.await.unwrap_or_else(|_| {
        let span = humantime::format_duration(args.connect_timeout);
        let sentence = format!("no daemon answers within {span}");
        let failure = CommandFailure::new(exit::NO_DAEMON, sentence);
        Err(failure.with_hint("--connect-timeout sets how long to wait"))
    })
}
