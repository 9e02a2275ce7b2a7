//! One daemon, its calls one by one, each within a deadline. Leaves joining pages to `list`,
//! `resources` and `read`.

use super::connect::{ConnectError, channel_with};
use super::credentials::{Bearer, Credentials};
use super::line::{Alert, Line};
use crate::endpoint::Endpoint;
use crate::proto::caproot::v1::capability_service_client::CapabilityServiceClient;
use crate::proto::caproot::v1::{
    GetExecutorRequest, GetExecutorResponse, ListRootsRequest, ListRootsResponse,
};
use crate::proto::code_name;
use std::error::Error as _;
use std::io;
use std::time::Duration;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, TimeoutExpired};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt as _;

/// Why a call, or the calls that one answer takes, failed. Displays as one sentence.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The daemon, or the way to it, ended the call.
    #[error("{}", sentence(.0))]
    Status(#[from] Status),
    /// The daemon broke its own promise; going on could go on for ever.
    #[error("the daemon's answer makes no sense: {0}")]
    Nonsense(&'static str),
    /// The file changed after some of it had been handed out.
    #[error("the file changed while it was read, and what was written so far is of the old one")]
    ChangedMidway,
    /// What was read could not be handed out.
    #[error("the output cannot be written: {0}")]
    Output(#[from] io::Error),
}

/// A daemon behind a channel.
#[derive(Debug, Clone)]
pub struct Client {
    pub(super) service: CapabilityServiceClient<Line>,
    pub(super) bearer: Bearer,
    health: HealthClient<Line>,
    timeout: Duration,
}

impl Client {
    /// Connects with credentials, within `timeout`; each call later is within it, too. Their files
    /// are read again where the connection is lost and made anew.
    pub async fn connect(
        endpoint: &Endpoint,
        credentials: &Credentials,
        timeout: Duration,
    ) -> Result<Self, ConnectError> {
        let bearer = Bearer::read(credentials.token_file.clone()).await;
        let bearer = bearer.map_err(ConnectError::Credentials)?;
        let (channel, heard) = channel_with(endpoint, credentials, timeout).await?;
        Ok(Self::over(Line { channel, bearer, heard }, timeout))
    }

    /// Calls through `channel`, without a token, each within `timeout`.
    #[must_use]
    pub fn new(channel: Channel, timeout: Duration) -> Self {
        let line = Line { channel, bearer: Bearer::default(), heard: Alert::default() };
        Self::over(line, timeout)
    }

    fn over(line: Line, timeout: Duration) -> Self {
        Self {
            service: CapabilityServiceClient::new(line.clone()),
            bearer: line.bearer.clone(),
            health: HealthClient::new(line),
            timeout,
        }
    }

    /// Who answers.
    pub async fn executor(&mut self) -> Result<GetExecutorResponse, CallError> {
        let request = self.request(GetExecutorRequest {});
        Ok(within(self.timeout, self.service.get_executor(request)).await?)
    }

    /// The published roots.
    pub async fn roots(&mut self) -> Result<ListRootsResponse, CallError> {
        let request = self.request(ListRootsRequest {});
        Ok(within(self.timeout, self.service.list_roots(request)).await?)
    }

    /// The health of the daemon as a whole; a number that `grpc.health.v1` does not know is
    /// `Unknown`.
    pub async fn health(&mut self) -> Result<ServingStatus, CallError> {
        let request = self.request(HealthCheckRequest { service: String::new() });
        let answer = within(self.timeout, self.health.check(request)).await?;
        Ok(answer.status())
    }

    /// A request that tells the daemon the deadline, which it plans its waiting by.
    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(self.timeout);
        request
    }

    /// How long a call may take.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }
}

/// Waits for a call, body and all; tonic's own deadline ends with the headers.
pub(super) async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, Status> {
    let late = || {
        let span = humantime::format_duration(limit);
        Status::deadline_exceeded(format!("no answer within {span}"))
    };
    match tokio::time::timeout(limit, call).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) if ran_out(&status) => Err(late()),
        Ok(Err(status)) => Err(status),
        Err(_) => Err(late()),
    }
}

/// Whether this is tonic's own deadline, which it reports as CANCELLED.
fn ran_out(status: &Status) -> bool {
    let mut below = status.source();
    while let Some(error) = below {
        if error.is::<TimeoutExpired>() {
            return true;
        }
        below = error.source();
    }
    false
}

/// The reason in the status's `google.rpc.ErrorInfo`, such as `PACKAGE_NOT_FOUND`.
#[must_use]
pub fn reason(status: &Status) -> Option<String> {
    status.get_details_error_info().map(|info| info.reason).filter(|reason| !reason.is_empty())
}

/// A status as `CODE REASON: message`, the reason only where it says more than the code.
fn sentence(status: &Status) -> String {
    let code = code_name(status.code());
    let reason = reason(status).filter(|reason| reason != code);
    let head = reason.map_or_else(|| code.to_owned(), |reason| format!("{code} {reason}"));
    if status.message().is_empty() { head } else { format!("{head}: {}", status.message()) }
}

#[cfg(test)]
mod tests {
    use super::{CallError, within};
    use std::time::Duration;
    use tonic::{Code, Status};
    use tonic_types::{ErrorDetails, StatusExt as _};

    #[test]
    fn a_status_is_one_sentence() {
        let with = |code, reason: &str| {
            let details = ErrorDetails::with_error_info(reason, "caproot", []);
            CallError::from(Status::with_error_details(code, "Look again", details)).to_string()
        };
        assert_eq!(
            with(Code::NotFound, "PACKAGE_NOT_FOUND"),
            "NOT_FOUND PACKAGE_NOT_FOUND: Look again"
        );
        assert_eq!(with(Code::InvalidArgument, "INVALID_ARGUMENT"), "INVALID_ARGUMENT: Look again");
        assert_eq!(CallError::from(Status::internal("")).to_string(), "INTERNAL");
    }

    #[tokio::test]
    async fn a_call_that_never_ends_is_ended() {
        let answer = within::<()>(Duration::from_millis(1), std::future::pending()).await;
        assert_eq!(answer.expect_err("no answer").code(), Code::DeadlineExceeded);
    }
}
