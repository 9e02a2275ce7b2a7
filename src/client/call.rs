//! One daemon, its calls one by one, each within a deadline. Leaves joining pages to `list`,
//! `resources` and `read`, and which calls are made again to `retry`.

use super::auth_channel::{AuthChannel, TlsAlertFlag};
use super::connect::{
    ConnectError, ConnectMode, connection_failure, is_connection_refused, open_channel_with,
};
use super::credentials::{BearerToken, ClientCredentials};
use super::retry::{RetryPolicy, run_with_retries};
use super::watch::SkillWatch;
use super::{list, read, resolve, resources};
use crate::endpoint::DaemonEndpoint;
use crate::proto::caproot::v1::capability_service_client::CapabilityServiceClient;
use crate::proto::caproot::v1::{
    GetExecutorRequest, GetExecutorResponse, ListResourcesRequest, ListResourcesResponse,
    ListRootsRequest, ListRootsResponse, ListSkillsRequest, ListSkillsResponse,
    ReadResourceRequest, ReadResourceResponse, ResolveRootsRequest, ResolveRootsResponse,
    WatchSkillsRequest, WatchSkillsResponse,
};
use crate::proto::grpc_code_name;
use std::error::Error as _;
use std::io;
use std::time::Duration;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status, Streaming, TimeoutExpired};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt as _;

/// Why a call, or the calls that one answer takes, failed. Displays as one sentence.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The daemon, or the way to it, ended the call.
    #[error("{}", status_sentence(.0))]
    Status(#[from] Status),
    /// The daemon broke its own promise; going on could go on for ever.
    #[error("the daemon's answer makes no sense: {0}")]
    InvalidResponse(&'static str),
    /// The file changed after some of it had been handed out.
    #[error("the file changed while it was read, and what was written so far is of the old one")]
    ChangedDuringRead,
    /// What was read could not be handed out.
    #[error("the output cannot be written: {0}")]
    Output(#[from] io::Error),
}

impl CallError {
    /// Whether nothing listens where the daemon should: the socket is missing, or the connection is refused.
    #[must_use]
    pub fn is_connection_refused(&self) -> bool {
        matches!(self, Self::Status(status) if is_connection_refused(status))
    }
}

/// The generated client.
pub(super) type ServiceClient = CapabilityServiceClient<AuthChannel>;

/// The most bytes of one message of a daemon; the pages of a caproot stay under 1 MiB. One that is
/// larger is an error of its call, and is not taken into memory.
const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// A daemon behind a channel. A clone is cheap, and shares the connection.
#[derive(Debug, Clone)]
pub struct Client {
    service: CapabilityServiceClient<AuthChannel>,
    token: BearerToken,
    health: HealthClient<AuthChannel>,
    timeout: Duration,
    retry_policy: RetryPolicy,
}

impl Client {
    /// Connects with credentials, within `timeout`; each call later is within it, too. Their files
    /// are read again where the connection is lost and made anew. No call is made twice: for that, see
    /// [`Client::retrying`].
    pub async fn connect(
        endpoint: &DaemonEndpoint,
        credentials: &ClientCredentials,
        timeout: Duration,
    ) -> Result<Self, ConnectError> {
        Self::open(endpoint, credentials, timeout, ConnectMode::Eager).await
    }

    /// The same without connecting: the first call does. Calls are made again as [`Retries`] says by
    /// default. An error is one of the credentials' files alone.
    pub async fn connect_lazily(
        endpoint: &DaemonEndpoint,
        credentials: &ClientCredentials,
        timeout: Duration,
    ) -> Result<Self, ConnectError> {
        let client = Self::open(endpoint, credentials, timeout, ConnectMode::Lazy).await?;
        Ok(client.with_retry_policy(RetryPolicy::default()))
    }

    /// The same client, whose calls are made again so.
    #[must_use]
    pub fn with_retry_policy(self, retries: RetryPolicy) -> Self {
        Self { retry_policy: retries, ..self }
    }

    /// Calls through `channel`, without a token, each within `timeout`.
    #[must_use]
    pub fn new(channel: Channel, timeout: Duration) -> Self {
        Self::from_parts(channel, BearerToken::default(), TlsAlertFlag::default(), timeout)
    }

    async fn open(
        endpoint: &DaemonEndpoint,
        credentials: &ClientCredentials,
        timeout: Duration,
        mode: ConnectMode,
    ) -> Result<Self, ConnectError> {
        let token = BearerToken::read(credentials.token_file.clone()).await;
        let token = token.map_err(ConnectError::Credentials)?;
        let (channel, alert_flag) = open_channel_with(endpoint, credentials, timeout, mode).await?;
        Ok(Self::from_parts(channel, token, alert_flag, timeout))
    }

    fn from_parts(
        channel: Channel,
        token: BearerToken,
        alert_flag: TlsAlertFlag,
        timeout: Duration,
    ) -> Self {
        let channel = AuthChannel::new(channel, token.clone(), alert_flag);
        Self {
            service: CapabilityServiceClient::new(channel.clone())
                .max_decoding_message_size(MAX_MESSAGE_BYTES),
            token,
            health: HealthClient::new(channel),
            timeout,
            retry_policy: RetryPolicy::NONE,
        }
    }

    /// Who answers.
    pub async fn get_executor(&mut self) -> Result<GetExecutorResponse, CallError> {
        let call = |mut service: ServiceClient, request| async move {
            service.get_executor(request).await
        };
        Ok(self.call_with_retries(GetExecutorRequest {}, call).await?)
    }

    /// The published roots.
    pub async fn list_roots(&mut self) -> Result<ListRootsResponse, CallError> {
        let call =
            |mut service: ServiceClient, request| async move { service.list_roots(request).await };
        Ok(self.call_with_retries(ListRootsRequest {}, call).await?)
    }

    /// The health of the daemon as a whole; a number that `grpc.health.v1` does not know is
    /// `Unknown`.
    pub async fn check_health(&mut self) -> Result<ServingStatus, CallError> {
        let mut request = Request::new(HealthCheckRequest { service: String::new() });
        request.set_timeout(self.timeout);
        let answer = with_deadline(self.timeout, self.health.check(request)).await?;
        Ok(answer.status())
    }

    /// Makes one call, again where that is worth it, all within the deadline. The daemon is told the
    /// deadline, and plans its waiting by it. All calls of the service read, so any may be made twice.
    pub(super) async fn call_with_retries<Q: Clone, A, F>(
        &self,
        message: Q,
        call: impl Fn(ServiceClient, Request<Q>) -> F,
    ) -> Result<A, Status>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let attempt = |left: Duration| {
            let mut request = Request::new(message.clone());
            request.set_timeout(left);
            // A call under way is large, and a future that may make one need not be.
            Box::pin(with_deadline(left, call(self.service.clone(), request)))
        };
        let outcome = run_with_retries(self.retry_policy, self.timeout, &attempt).await;
        match outcome {
            // A token that lasts an hour is another one by now.
            Err(status) if status.code() == Code::Unauthenticated && self.token.reload().await => {
                attempt(self.timeout).await
            }
            outcome => outcome,
        }
    }

    /// Lists skills and joins the pages into one response without a page token.
    ///
    /// `request.page_token` must be empty. If the revision is gone before the last page, the list
    /// starts again, at most three times.
    pub async fn list_skills(
        &mut self,
        request: &ListSkillsRequest,
    ) -> Result<ListSkillsResponse, CallError> {
        list::list_skills(self, request).await
    }

    /// Resolves roots and joins the pages into one response without a page token.
    ///
    /// `request.page_token` must be empty. If the revision is gone before the last page, the call
    /// starts again, at most three times.
    pub async fn resolve_roots(
        &mut self,
        request: ResolveRootsRequest,
    ) -> Result<ResolveRootsResponse, CallError> {
        resolve::resolve_roots(self, request).await
    }

    /// Lists the files of a package and joins the pages into one response without a page token. The
    /// response has the epoch and revision of the first page.
    ///
    /// `request.page_token` must be empty.
    pub async fn list_resources(
        &mut self,
        request: &ListResourcesRequest,
    ) -> Result<ListResourcesResponse, CallError> {
        resources::list_resources_until(self, request, usize::MAX).await
    }

    /// Lists files like [`Client::list_resources`], but requests no further page after more than
    /// `enough` files. The response then has the token of the next page, if there is a next page.
    pub async fn list_resources_until(
        &mut self,
        request: &ListResourcesRequest,
        enough: usize,
    ) -> Result<ListResourcesResponse, CallError> {
        resources::list_resources_until(self, request, enough).await
    }

    /// Reads a whole file. `request.cursor` and `request.if_none_match` must be empty.
    ///
    /// The bytes go to `out` in order. The first `hold` bytes are buffered until more bytes have
    /// come or the file is complete: if a small file changes during the read, the read starts again,
    /// at most three times. The response has no cursor. Its body is empty, and of the file's kind.
    pub async fn read_resource(
        &mut self,
        request: &ReadResourceRequest,
        hold: usize,
        out: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<ReadResourceResponse, CallError> {
        read::read_resource(self, request, hold, out).await
    }

    /// Reads one page of a file. A page over its size limit is an error.
    pub async fn read_page(
        &self,
        request: &ReadResourceRequest,
    ) -> Result<ReadResourceResponse, CallError> {
        read::read_page(self, request).await
    }

    /// Watches the skills that `request` selects, from its `resume_token` if it has one.
    #[must_use]
    pub fn watch_skills(&self, request: WatchSkillsRequest) -> SkillWatch {
        SkillWatch::new(self.clone(), request)
    }

    /// Opens one stream of changes, after reading the token again: tokens may be short-lived.
    ///
    /// The timeout covers the opening only, because a stream has no deadline.
    pub(super) async fn open_watch(
        &mut self,
        request: WatchSkillsRequest,
    ) -> Result<Streaming<WatchSkillsResponse>, Status> {
        self.token.reload().await;
        with_deadline(self.timeout, self.service.watch_skills(Request::new(request))).await
    }

    /// How long a call may take.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }
}

/// Waits for a call, body and all; tonic's own deadline ends with the headers.
async fn with_deadline<T>(
    limit: Duration,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, Status> {
    let late = || {
        let span = humantime::format_duration(limit);
        Status::deadline_exceeded(format!("no answer within {span}"))
    };
    match tokio::time::timeout(limit, call).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) if is_timeout(&status) => Err(late()),
        Ok(Err(status)) => Err(status),
        Err(_) => Err(late()),
    }
}

/// Whether this is tonic's own deadline, which it reports as CANCELLED.
fn is_timeout(status: &Status) -> bool {
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
pub fn error_reason(status: &Status) -> Option<String> {
    status.get_details_error_info().map(|info| info.reason).filter(|reason| !reason.is_empty())
}

/// A status as `CODE REASON: message`, the reason only where it says more than the code.
fn status_sentence(status: &Status) -> String {
    let code = grpc_code_name(status.code());
    let reason = error_reason(status).filter(|reason| reason != code);
    let head = reason.map_or_else(|| code.to_owned(), |reason| format!("{code} {reason}"));
    if let Some(why) = connection_failure(status) {
        return format!("{head}: there is no connection to the daemon: {why}");
    }
    let message = message_without_reason(status);
    if message.is_empty() { head } else { format!("{head}: {message}") }
}

/// The daemon begins each message with the reason, which a sentence names already.
fn message_without_reason(status: &Status) -> &str {
    let message = status.message();
    let behind = |reason: String| message.strip_prefix(reason.as_str())?.strip_prefix(": ");
    error_reason(status).and_then(behind).unwrap_or(message)
}

#[cfg(test)]
mod tests {
    use super::{CallError, with_deadline};
    use std::time::Duration;
    use tonic::{Code, Status};
    use tonic_types::{ErrorDetails, StatusExt as _};

    #[test]
    fn a_status_is_one_sentence() {
        let with = |code, reason: &str| {
            let details = ErrorDetails::with_error_info(reason, "caproot", []);
            let message = format!("{reason}: Look again");
            CallError::from(Status::with_error_details(code, message, details)).to_string()
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
        let answer = with_deadline::<()>(Duration::from_millis(1), std::future::pending()).await;
        assert_eq!(answer.expect_err("no answer").code(), Code::DeadlineExceeded);
    }
}
