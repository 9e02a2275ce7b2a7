//! Probe of one executor: connects, and asks for the environments and the state of the daemon.

use super::target::FleetTarget;
use crate::cli::exit::{self, EXIT_CODES};
use crate::cli::failure::CommandFailure;
use caproot_client::fleet::wrong_environment;
use caproot_client::{Client, ExecutorConfig};
use caproot_core::proto::caproot::v1::GetExecutorResponse;
use caproot_core::text::escape_text;
use std::time::{Duration, Instant};

/// Code of an executor that has other environments than the fleet file says.
const WRONG_ENVIRONMENT: &str = "WRONG_ENVIRONMENT";

/// Open connection to an executor that has the environment.
#[derive(Debug)]
pub struct ProbedExecutor {
    pub client: Client,
    /// Time until the connection was open, with TLS.
    pub connect_time: Duration,
}

/// Reason why an executor cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeFailure {
    /// Name of an exit code, such as `NO_DAEMON`, or `WRONG_ENVIRONMENT`.
    pub code: &'static str,
    /// Reason in one sentence, escaped.
    pub sentence: String,
}

impl ProbeFailure {
    /// Formats the failure as a line of stderr.
    pub fn to_line(&self, environment_id: &str) -> String {
        format!(
            "error[{}] {}: {}",
            self.code,
            escape_text(environment_id),
            self.sentence
        )
    }
}

/// Runs work within the timeout of an executor.
pub async fn run_in_time<T>(
    target: &FleetTarget,
    work: impl Future<Output = Result<T, ProbeFailure>>,
) -> Result<T, ProbeFailure> {
    let limit = target.config.timeout;
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        let span = humantime::format_duration(limit);
        Err(CommandFailure::new(exit::TRY_LATER, format!("no answer within {span}")).into())
    })
}

/// Failure that a command would have after the same error.
impl<E> From<E> for ProbeFailure
where
    CommandFailure: From<E>,
{
    fn from(error: E) -> Self {
        let failure = CommandFailure::from(error);
        let entry = EXIT_CODES
            .iter()
            .find(|entry| entry.code == failure.exit_code());
        Self {
            code: entry.map_or("INTERNAL", |entry| entry.name),
            sentence: failure.sentence(),
        }
    }
}

/// Connects to an executor, and checks that the executor has the environment.
pub async fn probe_executor(target: &FleetTarget) -> Result<ProbedExecutor, ProbeFailure> {
    let ExecutorConfig {
        endpoint,
        credentials,
        timeout,
        via_nats,
    } = &target.config;
    // The caller's limit ends first, so that all calls that are late have the same message.
    let call_limit = *timeout + Duration::from_secs(1);
    let start = Instant::now();

    let mut client = if *via_nats {
        let mut client = target.fleet.lazy_client(&target.environment_id);
        // The first call opens the tunnel.
        let called = client.get_executor().await;
        called.map_err(CommandFailure::from_first_call)?;
        client
    } else {
        Client::connect(endpoint, credentials, call_limit).await?
    };
    let connect_time = start.elapsed();

    describe_executor(&mut client, &target.environment_id).await?;
    Ok(ProbedExecutor {
        client,
        connect_time,
    })
}

/// Asks for the description of an executor that must have the environment.
pub async fn describe_executor(
    client: &mut Client,
    environment_id: &str,
) -> Result<GetExecutorResponse, ProbeFailure> {
    let description = client.get_executor().await?;
    match wrong_environment(&description, environment_id) {
        Some(sentence) => {
            let reason = sentence.trim_start_matches("WRONG_ENVIRONMENT: ");
            Err(ProbeFailure {
                code: WRONG_ENVIRONMENT,
                sentence: escape_text(reason),
            })
        }
        None => Ok(description),
    }
}
