//! Client of one daemon: single calls, each within a deadline.

use super::grpc_call::{ResponseStream, ResponseTooLarge, ServiceRequest, call_once, open_stream};
use super::pages;
use super::watch::SkillWatch;
use crate::connect::channel::ConnectError;
use crate::connect::credentials::ClientCredentials;
use crate::connect::dial::{ConnectorError, root_cause};
use crate::connect::executor_channel::{ExecutorChannel, ExecutorConnector};
use crate::connect::fixed_executor::{AddressConnector, ChannelConnector};
use crate::connect::response_budget::{MAX_ROOT_STATE_MEMORY, MAX_ROOTS_MEMORY, MeteredMessage};
use crate::connect::retry::{RetryPolicy, run_with_retries};
use caproot_core::net::endpoint::DaemonEndpoint;
use caproot_core::proto::caproot::v1::{
    ErrorReason, GetExecutorRequest, GetExecutorResponse, ListResourcesRequest,
    ListResourcesResponse, ListRootsRequest, ListRootsResponse, ListSkillsRequest,
    ListSkillsResponse, ResolveRootsRequest, ResolveRootsResponse, RootStatus, SkillView,
    WatchSkillsRequest, WatchSkillsResponse,
};
use caproot_core::proto::{ERROR_DOMAIN, grpc_code_name};
use futures_util::future::BoxFuture;
use std::error::Error;
use std::io;
use std::iter;
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::Channel;
use tonic::{Code, Request, Status, TimeoutExpired};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt as _;

/// Failure of a call, or of the calls that one response takes. Displays as one sentence.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The daemon or the connection ended the call.
    #[error("{}", status_sentence(.0))]
    Status(#[from] Status),
    /// The response violates the protocol. Further calls could go on without end.
    #[error("invalid response from the daemon: {0}")]
    InvalidResponse(&'static str),
    /// The file changed after its first bytes went to the output.
    #[error("the file changed during the read: the bytes written so far are of the old version")]
    ChangedDuringRead,
    /// The bytes of a file do not have the digest that the daemon sent with them, after several
    /// attempts.
    #[error(
        "the bytes of the file do not have the digest that the daemon sent: the file is written \
         during each read; try again later"
    )]
    DigestMismatch,
    /// The output could not be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

impl CallError {
    /// Whether the call failed without a connection for a reason that is known at once: the socket is
    /// missing, this user may not use the socket, the connection is refused, or no registry names an
    /// executor.
    #[must_use]
    pub fn is_connection_refused(&self) -> bool {
        let Self::Status(status) = self else {
            return false;
        };
        let refusals = [
            io::ErrorKind::NotFound,
            io::ErrorKind::ConnectionRefused,
            io::ErrorKind::PermissionDenied,
        ];
        match status.source().and_then(root_cause) {
            Some(ConnectorError::Io(cause)) => refusals.contains(&cause.kind()),
            Some(ConnectorError::UnknownExecutor(_)) => true,
            _ => false,
        }
    }

    /// Returns the sentence without the code and the reason of a status.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Status(status) => message_without_reason(status).to_owned(),
            error => error.to_string(),
        }
    }

    /// Returns the reason why the daemon rejected the call; see [`error_reason`].
    #[must_use]
    pub fn reason(&self) -> Option<ErrorReason> {
        match self {
            Self::Status(status) => error_reason(status),
            Self::InvalidResponse(_)
            | Self::ChangedDuringRead
            | Self::DigestMismatch
            | Self::Output(_) => None,
        }
    }
}

/// Maximum size of the response of a health check, which has one number.
const MAX_HEALTH_BYTES: usize = 1 << 10;
/// Deadline of the single call for the states of roots. A root whose first scan takes longer is
/// transferred without a look at the shared catalogs.
const ROOT_STATES_TIMEOUT: Duration = Duration::from_secs(5);

/// Client of one daemon. A clone is cheap and shares the connection.
///
/// A lost connection is opened again. A connection whose machine vanished ends after 40 s without an
/// answer to a ping. [`Client::connect`] never repeats a call, and
/// [`Client::connect_lazily`] repeats calls by the default [`RetryPolicy`]. A response is an error if
/// a message is over 4 MiB or a page is larger than requested.
#[derive(Debug, Clone)]
pub struct Client {
    pub(super) channel: ExecutorChannel,
    /// Timeout of a call, unless the registry of the executor named another one.
    timeout: Duration,
    retry_policy: RetryPolicy,
    /// Shared by all clones, so that a fleet knows whether the client is in use.
    clones: Arc<()>,
}

impl Client {
    /// Connects with credentials within `timeout`. Each later call has the same timeout.
    ///
    /// A lost connection is opened again, and the credential files are read again. No call is
    /// retried: see [`Client::with_retry_policy`].
    pub async fn connect(
        endpoint: &DaemonEndpoint,
        credentials: &ClientCredentials,
        timeout: Duration,
    ) -> Result<Self, ConnectError> {
        let client = Self::connect_lazily(endpoint, credentials, timeout).await?;
        let connected = client.channel.connection().await;
        connected.map_err(|error| ConnectError::from_connector(error, endpoint))?;
        Ok(client.with_retry_policy(RetryPolicy::NONE))
    }

    /// Creates a client that connects with its first call, and retries by the default
    /// [`RetryPolicy`]. Fails only if a credential file cannot be used.
    pub async fn connect_lazily(
        endpoint: &DaemonEndpoint,
        credentials: &ClientCredentials,
        timeout: Duration,
    ) -> Result<Self, ConnectError> {
        let connector = AddressConnector::new(endpoint, credentials, timeout).await;
        let connector = connector.map_err(ConnectError::Credentials)?;
        Ok(Self::from_connector(connector, timeout))
    }

    /// Sets the retry policy.
    #[must_use]
    pub fn with_retry_policy(self, retries: RetryPolicy) -> Self {
        Self {
            retry_policy: retries,
            ..self
        }
    }

    /// Creates a client that calls through `channel` without a token, each call within `timeout`.
    #[must_use]
    pub fn new(channel: Channel, timeout: Duration) -> Self {
        let connector = ChannelConnector { channel, timeout };
        Self::from_connector(connector, timeout).with_retry_policy(RetryPolicy::NONE)
    }

    /// Creates a client that connects with its first call, and retries by the default
    /// [`RetryPolicy`]. Until the first connection, a call has this timeout.
    pub(super) fn from_connector(connector: impl ExecutorConnector, timeout: Duration) -> Self {
        let channel = ExecutorChannel::new(connector);
        Self {
            channel,
            timeout,
            retry_policy: RetryPolicy::default(),
            clones: Arc::default(),
        }
    }

    /// Waits until the client is connected, or the attempt failed.
    pub(super) async fn wait_for_connection(&self) -> Result<(), Status> {
        let connected = self.channel.connection().await.map(drop);
        connected.map_err(|error| Status::from_error(Box::new(tonic::ConnectError(error.into()))))
    }

    /// Returns whether another clone of this client exists.
    pub(super) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.clones) > 1
    }

    /// Returns the description of the daemon.
    pub async fn get_executor(&mut self) -> Result<GetExecutorResponse, CallError> {
        Ok(self.call_with_retries(GetExecutorRequest {}).await?.message)
    }

    /// Lists the published roots.
    pub async fn list_roots(&mut self) -> Result<ListRootsResponse, CallError> {
        let published = self.call_with_retries(ListRootsRequest {}).await?;
        if published.memory > MAX_ROOTS_MEMORY {
            let reason = "the published roots take over 4 MiB of memory";
            return Err(CallError::InvalidResponse(reason));
        }
        Ok(published.message)
    }

    /// Returns the health of the whole daemon. A number that `grpc.health.v1` does not define is
    /// `Unknown`.
    pub async fn check_health(&mut self) -> Result<ServingStatus, CallError> {
        let mut request = Request::new(HealthCheckRequest {
            service: String::new(),
        });
        let limit = self.timeout();
        request.set_timeout(limit);
        let mut health =
            HealthClient::new(self.channel.clone()).max_decoding_message_size(MAX_HEALTH_BYTES);
        let answer = with_deadline(limit, limit, health.check(request)).await?;
        Ok(answer.into_inner().status())
    }

    /// Makes one call, with retries, within one deadline. The daemon receives the deadline and
    /// plans its waiting with it. All calls of the service only read, so a call may be repeated.
    pub(super) async fn call_with_retries<Q: ServiceRequest>(
        &self,
        message: Q,
    ) -> Result<MeteredMessage<Q::Response>, Status> {
        match run_with_retries(self.retry_policy, self.timeout(), |left| {
            self.call_within(message.clone(), left, self.timeout())
        })
        .await
        {
            // Tokens may be short-lived, so the file may hold a new token.
            Err(status)
                if status.code() == Code::Unauthenticated && self.channel.reload_token().await =>
            {
                self.call_within(message, self.timeout(), self.timeout())
                    .await
            }
            outcome => outcome,
        }
    }

    /// Makes one call within `limit`. The error of a call that takes too long names the time of all
    /// attempts. The future of a call is large. The box keeps the futures of the callers small.
    fn call_within<Q: ServiceRequest>(
        &self,
        message: Q,
        limit: Duration,
        all_attempts: Duration,
    ) -> BoxFuture<'static, Result<MeteredMessage<Q::Response>, Status>> {
        let mut request = Request::new(message);
        request.set_timeout(limit);
        let call = call_once(self.channel.clone(), request);
        Box::pin(with_deadline(limit, all_attempts, call))
    }

    /// Lists skills and joins the pages into one response without a page token.
    ///
    /// `request.page_token` must be empty. If the revision is gone before the last page, the list
    /// starts again, at most three times.
    pub async fn list_skills(
        &mut self,
        request: &ListSkillsRequest,
    ) -> Result<ListSkillsResponse, CallError> {
        pages::collect_list(self, request, |_| false).await
    }

    /// Returns the states of roots with their catalog digests, for the whole list of a request.
    pub async fn list_root_states(
        &mut self,
        request: &ListSkillsRequest,
    ) -> Result<Vec<RootStatus>, CallError> {
        let request = ListSkillsRequest {
            roots_only: true,
            ..request.clone()
        };
        Ok(self.list_skills(&request).await?.roots)
    }

    /// Lists the states of the roots of a watch in a view by one call, without retries.
    pub(super) async fn list_root_states_once(
        &self,
        watch: &WatchSkillsRequest,
        view: SkillView,
    ) -> Result<ListSkillsResponse, Status> {
        let request = ListSkillsRequest {
            selected_capability_roots: watch.selected_capability_roots.clone(),
            product: watch.product.clone(),
            view: view.into(),
            roots_only: true,
            ..ListSkillsRequest::default()
        };
        let max_memory = MAX_ROOT_STATE_MEMORY * (1 + request.selected_capability_roots.len());
        let limit = ROOT_STATES_TIMEOUT.min(self.timeout());
        let states = self.call_within(request, limit, limit).await?;

        // Each mirror keeps the states while it waits for the catalogs of other mirrors.
        if states.memory > max_memory {
            let message = "the states of the roots take too much memory".to_owned();
            return Err(ResponseTooLarge.into_status(message));
        }
        Ok(states.message)
    }

    /// Resolves roots and joins the pages into one response without a page token.
    ///
    /// `request.page_token` must be empty. If the revision is gone before the last page, the call
    /// starts again, at most three times.
    pub async fn resolve_roots(
        &mut self,
        request: ResolveRootsRequest,
    ) -> Result<ResolveRootsResponse, CallError> {
        pages::collect_list(self, &request, |_| false).await
    }

    /// Lists the files of a package and joins the pages into one response without a page token. The
    /// response has the epoch and revision of the first page.
    ///
    /// `request.page_token` must be empty.
    pub async fn list_resources(
        &mut self,
        request: &ListResourcesRequest,
    ) -> Result<ListResourcesResponse, CallError> {
        self.list_resources_until(request, usize::MAX).await
    }

    /// Lists files like [`Client::list_resources`], but requests no further page after more than
    /// `enough` files. The response then has the token of the next page, if there is a next page.
    pub async fn list_resources_until(
        &mut self,
        request: &ListResourcesRequest,
        enough: usize,
    ) -> Result<ListResourcesResponse, CallError> {
        pages::collect_list(self, request, |list: &ListResourcesResponse| {
            list.resources.len() > enough
        })
        .await
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
    ) -> Result<ResponseStream<WatchSkillsResponse>, Status> {
        self.channel.reload_token().await;
        let limit = self.timeout();
        let open = open_stream(self.channel.clone(), Request::new(request));
        // The box is gone once the stream is open, so that a mirror's future stays small.
        Box::pin(with_deadline(limit, limit, open)).await
    }

    /// How long a call may take.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.channel.call_timeout().unwrap_or(self.timeout)
    }
}

/// Waits for a call, including the body. The deadline of tonic ends with the headers. The message of
/// the error has the time of all attempts.
async fn with_deadline<T>(
    limit: Duration,
    all_attempts: Duration,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    match tokio::time::timeout(limit, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(status)) if !is_timeout(&status) => Err(status),
        Ok(Err(_)) | Err(_) => {
            let span = humantime::format_duration(all_attempts);
            Err(Status::deadline_exceeded(format!(
                "no response within {span}"
            )))
        }
    }
}

/// Whether the status is the deadline of tonic, which tonic reports as CANCELLED.
fn is_timeout(status: &Status) -> bool {
    iter::successors(status.source(), |&error| error.source())
        .any(<dyn Error>::is::<TimeoutExpired>)
}

/// Returns the reason why the daemon rejected a call. `None` if the status is not from the daemon,
/// or if a newer daemon has a reason that this version does not know.
#[must_use]
pub fn error_reason(status: &Status) -> Option<ErrorReason> {
    let info = status.get_details_error_info();
    let info = info.filter(|info| info.domain == ERROR_DOMAIN)?;
    ErrorReason::from_wire_name(&info.reason)
}

/// Returns the reason in the status's `google.rpc.ErrorInfo` as text, such as `PACKAGE_NOT_FOUND`.
/// Includes the reasons that this version does not know.
#[must_use]
pub fn error_reason_name(status: &Status) -> Option<String> {
    let info = status.get_details_error_info()?;
    Some(info.reason).filter(|reason| !reason.is_empty())
}

/// Formats a status as `CODE REASON: message`. A reason that equals the code is omitted.
fn status_sentence(status: &Status) -> String {
    let code = grpc_code_name(status.code());
    let reason = error_reason_name(status).filter(|reason| reason != code);
    let head = reason.map_or_else(|| code.to_owned(), |reason| format!("{code} {reason}"));
    if let Some(why) = status.source().and_then(root_cause) {
        return format!("{head}: no connection to the daemon: {why}");
    }
    let message = message_without_reason(status);
    if message.is_empty() {
        head
    } else {
        format!("{head}: {message}")
    }
}

/// Returns the message without the reason, which the daemon puts in front of each message.
fn message_without_reason(status: &Status) -> &str {
    let message = status.message();
    error_reason_name(status)
        .and_then(|reason| message.strip_prefix(reason.as_str())?.strip_prefix(": "))
        .unwrap_or(message)
}

#[cfg(test)]
mod tests {
    use super::{CallError, with_deadline};
    use std::time::Duration;
    use tonic::{Code, Status};
    use tonic_types::{ErrorDetails, StatusExt as _};

    #[test]
    fn status_is_formatted_as_one_sentence() {
        let with = |code, reason: &str| {
            let details = ErrorDetails::with_error_info(reason, "caproot", []);
            let message = format!("{reason}: Look again");
            CallError::from(Status::with_error_details(code, message, details)).to_string()
        };
        assert_eq!(
            with(Code::NotFound, "PACKAGE_NOT_FOUND"),
            "NOT_FOUND PACKAGE_NOT_FOUND: Look again"
        );
        assert_eq!(
            with(Code::InvalidArgument, "INVALID_ARGUMENT"),
            "INVALID_ARGUMENT: Look again"
        );
        assert_eq!(
            CallError::from(Status::internal("")).to_string(),
            "INTERNAL"
        );
    }

    #[tokio::test]
    async fn endless_call_ends_at_its_deadline() {
        let (limit, whole) = (Duration::from_millis(1), Duration::from_secs(2));
        let answer = with_deadline::<()>(limit, whole, std::future::pending()).await;
        let status = answer.expect_err("a timeout");
        assert_eq!(status.code(), Code::DeadlineExceeded);
        assert_eq!(status.message(), "no response within 2s");
    }
}
