//! HTTP sessions of clients of the older protocol: the sessions of the SDK, limited in number. A
//! new session over the limit ends the oldest session. The client of the oldest session learns this
//! with its next request, and starts a new session.

use super::limits::{MAX_SESSIONS, SESSION_IDLE_TIMEOUT};
use caproot_core::sync::Mutex;
use futures_util::Stream;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError,
};
use rmcp::transport::streamable_http_server::session::{
    ServerSseMessage, SessionId, SessionManager,
};
use std::collections::VecDeque;
use std::time::Duration;

/// Sessions, oldest first.
#[derive(Debug)]
pub struct LimitedSessionManager {
    inner: LocalSessionManager,
    order: Mutex<VecDeque<SessionId>>,
}

impl LimitedSessionManager {
    pub fn new() -> Self {
        let mut inner = LocalSessionManager::default();
        inner.session_config.keep_alive = Some(SESSION_IDLE_TIMEOUT);
        // Responses are not cached: a client that lost a response repeats the request.
        inner.session_config.completed_cache_ttl = Duration::ZERO;
        Self {
            inner,
            order: Mutex::default(),
        }
    }

    /// Records a session. Returns the oldest sessions that exceed the limit.
    fn add_session(&self, id: SessionId) -> Vec<SessionId> {
        let mut order = self.order.lock();
        order.push_back(id);
        let over = order.len().saturating_sub(MAX_SESSIONS);
        order.drain(..over).collect()
    }
}

impl SessionManager for LimitedSessionManager {
    type Error = LocalSessionManagerError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let created = self.inner.create_session().await?;
        for oldest in self.add_session(created.0.clone()) {
            self.inner.close_session(&oldest).await?;
        }
        Ok(created)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        self.order.lock().retain(|open| open != id);
        self.inner.close_session(id).await
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        self.inner.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        self.inner.has_session(id).await
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.inner.create_stream(id, message).await
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), Self::Error> {
        self.inner.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.inner.create_standalone_stream(id).await
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.inner.resume(id, last_event_id).await
    }
}
