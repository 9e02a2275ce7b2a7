//! Listener: takes the calls of a manager from an event stream and reconnects.

use super::super::drain::POLL_INTERVALS;
use super::super::tracker::DeliveryMode;
use super::super::{CallDispatcher, DispatchError};
use super::{HttpManager, failure};
use crate::network::http_client::event_stream;
use caproot_core::backoff::Backoff;
use caproot_core::json::parse_message;
use futures_util::StreamExt as _;
use http::StatusCode;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use reqwest::Response;
use sse_stream::Sse;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Limit of an event with the comments before it, in bytes. The arguments of a call have at most
/// 1 MiB.
const MAX_EVENT_BYTES: usize = 2 << 20;
/// Limit of the id of an event, which is a header of the next request.
const MAX_EVENT_ID_BYTES: usize = 1_024;
/// Delays between two connections.
const RECONNECT_BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(200), Duration::from_secs(10));
/// Longest delay that the manager may request by `retry`.
const MAX_REQUESTED_DELAY: Duration = Duration::from_mins(1);

/// Error that ends [`CallListener::listen`]. Displays as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    /// The dispatcher polls for calls.
    #[error(transparent)]
    Dispatch(#[from] DispatchError),
    /// The manager rejects the request, so that another attempt is of no use.
    #[error("no event stream: {0}")]
    Rejected(String),
}

/// Listener for the calls that a manager streams as `text/event-stream`. The data of an event is a
/// call as in the response of [`HttpManager`]; other events are ignored.
///
/// A lost connection is opened again with `Last-Event-ID`: the id of the last event whose call the
/// dispatcher has. An answer that the manager did not take is submitted again, also while the
/// stream is quiet. An event that comes again causes no second call.
///
/// ```no_run
/// use caproot_session::Session;
/// use caproot_session::dispatch::{CallDispatcher, CallListener, DispatchOptions, HttpManager, HttpManagerConfig};
/// use std::error::Error;
/// use std::sync::Arc;
///
/// async fn answer_streamed_calls(session: Arc<Session>) -> Result<(), Box<dyn Error>> {
///     let config = HttpManagerConfig::new("https://platform.example", "thread-1");
///     let manager = Arc::new(HttpManager::new(config).await?);
///     let options = DispatchOptions::default();
///     let dispatcher = CallDispatcher::new("thread-1", manager.clone(), session, options);
///     CallListener::new(manager).listen(&dispatcher).await?;
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct CallListener {
    manager: Arc<HttpManager>,
    last_event_id: Option<String>,
    /// Delay that the manager requested.
    requested_delay: Duration,
    /// Whether an event has come since the last connection.
    has_progress: bool,
}

/// End of one event stream before the manager has no more events.
enum StreamError {
    /// The stream is to be opened again, with the reason.
    Lost(String),
    Fatal(ListenError),
}

impl From<DispatchError> for StreamError {
    fn from(error: DispatchError) -> Self {
        match error {
            // The event comes again with the next stream.
            DispatchError::TooManyUnsent { .. } => Self::Lost(error.to_string()),
            error => Self::Fatal(error.into()),
        }
    }
}

impl CallListener {
    /// Returns a listener that begins with the events that the manager sends first.
    #[must_use]
    pub fn new(manager: Arc<HttpManager>) -> Self {
        Self {
            manager,
            last_event_id: None,
            requested_delay: Duration::ZERO,
            has_progress: false,
        }
    }

    /// Sets the id of the last known event, such as from an earlier process.
    #[must_use]
    pub fn resume_after(self, event_id: impl Into<String>) -> Self {
        Self {
            last_event_id: Some(event_id.into()),
            ..self
        }
    }

    /// Returns the id of the last event whose call the dispatcher has.
    #[must_use]
    pub fn last_event_id(&self) -> Option<&str> {
        self.last_event_id.as_deref()
    }

    /// Gives the calls of the stream to the dispatcher, until the manager responds 204: no more
    /// events. The calls are answered on tasks of the dispatcher, so dropping the future loses
    /// none, and listening again goes on. The delivery mode is
    /// [`DeliveryMode::Pushed`].
    ///
    /// # Errors
    ///
    /// The manager responds with another status than 2xx, 408, 429 or 5xx, or with another content
    /// type, or the dispatcher polls.
    pub async fn listen(&mut self, dispatcher: &CallDispatcher) -> Result<(), ListenError> {
        dispatcher
            .context
            .tracker()
            .set_mode(DeliveryMode::Pushed)?;
        tokio::select! {
            ended = self.follow(dispatcher) => ended,
            never = resend_unsent(dispatcher) => match never {},
        }
    }

    /// Follows the stream and opens it again after each loss.
    async fn follow(&mut self, dispatcher: &CallDispatcher) -> Result<(), ListenError> {
        let mut backoff = RECONNECT_BACKOFF;
        loop {
            self.has_progress = false;
            match self.follow_stream(dispatcher).await {
                Ok(()) => return Ok(()),
                Err(StreamError::Fatal(error)) => return Err(error),
                Err(StreamError::Lost(reason)) => {
                    tracing::debug!(last_event_id = self.last_event_id, "stream lost: {reason}");
                }
            }

            if self.has_progress {
                backoff.reset();
            }
            sleep(backoff.next_delay().max(self.requested_delay)).await;
        }
    }

    /// Follows one stream until the manager has no more events.
    async fn follow_stream(&mut self, dispatcher: &CallDispatcher) -> Result<(), StreamError> {
        let limit = dispatcher.context.options.manager_timeout;
        let response = self.open_stream(limit).await.map_err(StreamError::Lost)?;

        let status = response.status();
        let is_temporary = status.is_server_error()
            || [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status);
        if status == StatusCode::NO_CONTENT {
            return Ok(());
        } else if is_temporary {
            return Err(StreamError::Lost(failure(response).await));
        } else if !status.is_success() {
            let reason = failure(response).await;
            return Err(StreamError::Fatal(ListenError::Rejected(reason)));
        }
        let content_type = response.headers().get(CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default();
        if !content_type.starts_with("text/event-stream") {
            let reason = format!("the manager responds with the content type {content_type:?}");
            return Err(StreamError::Fatal(ListenError::Rejected(reason)));
        }

        let mut events = pin!(event_stream(response, MAX_EVENT_BYTES));
        while let Some(event) = events.next().await {
            let event = event.map_err(|error| StreamError::Lost(error.to_string()))?;
            self.take_event(dispatcher, event).await?;
        }
        let reason = "the manager closed the stream";
        Err(StreamError::Lost(reason.to_owned()))
    }

    async fn open_stream(&self, limit: Duration) -> Result<Response, String> {
        let manager = &self.manager;
        let url = manager.url(&manager.paths.call_events, "");
        let mut request = manager.client.get(url).header(ACCEPT, "text/event-stream");
        if let Some(id) = &self.last_event_id {
            request = request.header("Last-Event-ID", id);
        }
        timeout(limit, manager.send(request))
            .await
            .unwrap_or_else(|_| Err("the manager does not respond".to_owned()))
    }

    /// Starts the call of an event. The id of the event counts once the call is started.
    async fn take_event(
        &mut self,
        dispatcher: &CallDispatcher,
        event: Sse,
    ) -> Result<(), StreamError> {
        if let Some(retry) = event.retry {
            self.requested_delay = Duration::from_millis(retry).min(MAX_REQUESTED_DELAY);
        }

        let message = match event.data {
            Some(data) => parse_message(data.as_bytes()).await.ok(),
            None => None,
        };
        let call = message.and_then(|message| self.manager.read_call(Ok(message)));
        if let Some((request_id, job)) = call.and_then(|call| dispatcher.job_for_call(call)) {
            let start = dispatcher.start_call(DeliveryMode::Pushed, request_id, job);
            // The receiver is dropped: the record goes to `on_dispatch_ended`.
            drop(start.await?);
        }

        self.has_progress = true;
        if let Some(id) = event.id {
            // An empty id resets the position. Source: the specification of server-sent events. An
            // id that no header can carry is treated as empty.
            self.last_event_id = Some(id).filter(|id| {
                (1..=MAX_EVENT_ID_BYTES).contains(&id.len()) && HeaderValue::from_str(id).is_ok()
            });
        }
        Ok(())
    }
}

/// Submits unsent answers again. The delays grow while the manager takes none.
async fn resend_unsent(dispatcher: &CallDispatcher) -> Infallible {
    let mut intervals = POLL_INTERVALS;
    loop {
        sleep(intervals.next_limit()).await;
        let resent = dispatcher.resend_unsent().await;
        if resent.failed == 0 && resent.total() > 0 {
            intervals.reset();
        }
    }
}
