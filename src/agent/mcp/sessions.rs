//! HTTP sessions of clients of the older protocol: the sessions of the SDK, limited in number. While all
//! places are in use, a new session is refused, so that a client cannot end the sessions of others. A
//! session without a request gives its place back after [`SESSION_IDLE_TIMEOUT`].

use super::limits::{MAX_SESSIONS, SESSION_IDLE_TIMEOUT};
use caproot_core::sync::Mutex;
use futures_util::Stream;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError, SessionError,
};
use rmcp::transport::streamable_http_server::session::{
    ServerSseMessage, SessionId, SessionManager,
};
use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

tokio::task_local! {
    /// Whether the current request was refused a session. The SDK answers it like an internal error.
    pub static IS_REFUSED: Cell<bool>;
}

/// Sessions with the time of their last request.
#[derive(Debug)]
pub struct LimitedSessionManager {
    inner: LocalSessionManager,
    places: Arc<Semaphore>,
    open: Mutex<HashMap<SessionId, OpenHttpSession>>,
}

/// Place of an open session.
#[derive(Debug)]
struct OpenHttpSession {
    last_request: Instant,
    _place: OwnedSemaphorePermit,
}

impl LimitedSessionManager {
    pub fn new() -> Self {
        let mut inner = LocalSessionManager::default();
        inner.session_config.keep_alive = Some(SESSION_IDLE_TIMEOUT);
        // Responses are not cached: a client that lost a response repeats the request.
        inner.session_config.completed_cache_ttl = Duration::ZERO;
        Self {
            inner,
            places: Arc::new(Semaphore::new(MAX_SESSIONS)),
            open: Mutex::default(),
        }
    }

    /// Returns a place for a session. If there is none, ends the idle sessions first.
    async fn take_place(&self) -> Result<OwnedSemaphorePermit, LocalSessionManagerError> {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return Ok(place);
        }
        // An open stream or a notification keeps a session of the SDK alive, and is no request.
        let idle: Vec<SessionId> = {
            let open = self.open.lock();
            open.iter()
                .filter(|(_, session)| session.last_request.elapsed() >= SESSION_IDLE_TIMEOUT)
                .map(|(id, _)| id.clone())
                .collect()
        };
        for id in &idle {
            self.close_session(id).await?;
        }
        self.places.clone().try_acquire_owned().map_err(|_| {
            // Outside of a request, nothing reads the mark.
            let _ = IS_REFUSED.try_with(|refused| refused.set(true));
            let error = io::Error::other(format!("{MAX_SESSIONS} sessions are in use"));
            SessionError::Io(error).into()
        })
    }

    fn record_request(&self, id: &SessionId) {
        if let Some(session) = self.open.lock().get_mut(id) {
            session.last_request = Instant::now();
        }
    }
}

impl SessionManager for LimitedSessionManager {
    type Error = LocalSessionManagerError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let place = self.take_place().await?;
        let created = self.inner.create_session().await?;
        let session = OpenHttpSession {
            last_request: Instant::now(),
            _place: place,
        };
        self.open.lock().insert(created.0.clone(), session);
        Ok(created)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        // The place comes back also if the SDK fails to end the session.
        self.open.lock().remove(id);
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
        self.record_request(id);
        self.inner.create_stream(id, message).await
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), Self::Error> {
        self.record_request(id);
        self.inner.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.record_request(id);
        self.inner.create_standalone_stream(id).await
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.record_request(id);
        self.inner.resume(id, last_event_id).await
    }
}

#[cfg(test)]
mod tests {
    use super::{LimitedSessionManager, MAX_SESSIONS, SESSION_IDLE_TIMEOUT};
    use rmcp::transport::streamable_http_server::session::SessionManager as _;
    use std::time::Duration;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn an_idle_session_gives_its_place_back() {
        let manager = LimitedSessionManager::new();
        let mut transports = Vec::new();
        for _ in 0..MAX_SESSIONS {
            transports.push(manager.create_session().await.expect("a place"));
        }
        advance(SESSION_IDLE_TIMEOUT.saturating_sub(Duration::from_secs(1))).await;
        let used = transports[0].0.clone();
        manager.record_request(&used);
        let Err(refused) = manager.create_session().await else {
            panic!("no place is free")
        };
        assert!(refused.to_string().contains("64 sessions are in use"));

        advance(Duration::from_secs(1)).await;
        manager.create_session().await.expect("a place");
        assert!(manager.has_session(&used).await.expect("an answer"));
        let ended = &transports[1].0;
        assert!(!manager.has_session(ended).await.expect("an answer"));
    }
}
