//! The door's keeper: every call comes by here before it is looked at, and goes on with the caller
//! that it is from, or not at all. Leaves the rules to `domain::callers`, and what a caller may see to
//! the keeper of its bound.

use super::audit::Audit;
use super::errors::caller_refused;
use crate::bearer::{Shown, Tokens};
use crate::domain::callers::{Refusal, Token};
use crate::domain::{Caller, Callers, Peer};
use http::header::AUTHORIZATION;
use http::{HeaderMap, Request, Response};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::{Semaphore, watch};
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::{Extensions, Status};
use tower::Service;

/// Tokens that are compared at once: should their files hang, the calls that show one do, and no more
/// threads than these.
const MAX_COMPARED: usize = 8;

/// Lets callers in. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct Admission(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Those in force. A watch holds only the latest, so it is never full.
    entry: watch::Sender<Arc<Entry>>,
    comparing: Semaphore,
    audit: Audit,
}

/// The rules at the door.
#[derive(Debug)]
pub struct Entry {
    /// None where whoever can connect may ask for everything.
    pub callers: Option<(Callers, Arc<Tokens>)>,
    /// Whether health is told to whoever can connect, all the same.
    pub open_health: bool,
    /// The same of reflection.
    pub open_reflection: bool,
}

/// A service behind the door.
#[derive(Debug, Clone)]
pub struct Admitted<S> {
    door: Admission,
    /// Whether it is for whoever can connect.
    is_open: fn(&Entry) -> bool,
    inner: S,
}

/// What somebody was let in by, for whoever stays while the rules change.
#[derive(Debug, Clone)]
pub struct Pass {
    door: Admission,
    peer: Option<Peer>,
    token: Option<Shown>,
    /// Those by which it was let in, until they are looked at again.
    entry: watch::Receiver<Arc<Entry>>,
}

impl Admission {
    /// A door with these rules.
    #[must_use]
    pub fn new(entry: Entry, audit: Audit) -> Self {
        let entry = watch::Sender::new(Arc::new(entry));
        Self(Arc::new(Inner { entry, comparing: Semaphore::new(MAX_COMPARED), audit }))
    }

    /// Goes by other rules from now on. Whoever has a stream is judged again.
    pub fn renew(&self, entry: Entry) {
        self.0.entry.send_replace(Arc::new(entry));
    }

    /// Puts a service behind the door.
    pub fn guard<S>(&self, inner: S) -> Admitted<S> {
        self.guard_unless(|_| false, inner)
    }

    /// Puts a service behind the door unless the rules leave it open.
    pub fn guard_unless<S>(&self, is_open: fn(&Entry) -> bool, inner: S) -> Admitted<S> {
        Admitted { door: self.clone(), is_open, inner }
    }

    /// What somebody shows who knocks.
    #[must_use]
    pub fn pass(&self, peer: Option<&Peer>, headers: &HeaderMap) -> Pass {
        let token = bearer(headers).map(|token| Shown::new(&token));
        Pass { door: self.clone(), peer: peer.cloned(), token, entry: self.0.entry.subscribe() }
    }
}

impl Pass {
    /// Who that is, by the rules in force.
    async fn judge(&mut self) -> Result<Caller, Refusal> {
        let entry = self.entry.borrow_and_update().clone();
        let Some((callers, tokens)) = &entry.callers else { return Ok(Caller::default()) };
        let Some(peer) = &self.peer else { return Err(Refusal::Unknown) };
        let Some(shown) = self.token.clone() else { return callers.judge(peer, Token::Missing) };
        // Closed never: the semaphore lives as long as this.
        let Ok(_turn) = self.door.0.comparing.acquire().await else {
            return Err(Refusal::Unknown);
        };
        let tokens = tokens.clone();
        let whose = tokio::task::spawn_blocking(move || tokens.whose(&shown)).await;
        let whose = whose.unwrap_or_else(|panic| {
            tracing::error!(%panic, "comparing a token ended by a defect");
            Vec::new()
        });
        callers.judge(peer, Token::Given(&whose))
    }

    /// Whether there are other rules than those by which it was judged.
    pub(super) fn is_old(&self) -> bool {
        self.entry.has_changed().unwrap_or_default()
    }

    /// Waits until there are.
    pub(super) async fn renewed(&self) {
        if self.entry.clone().changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Who that is, by rules that were not there before.
    pub(super) async fn judge_again(&mut self) -> Result<Caller, Status> {
        self.judge().await.map_err(caller_refused)
    }

    /// Waits for rules by which it is let in no more, and says so as to one who knocks.
    pub(super) async fn refused(mut self, path: &str) -> Status {
        loop {
            // An error means that the daemon is gone already.
            if self.entry.changed().await.is_err() {
                return super::errors::shutting_down();
            }
            if let Err(status) = self.judge_again().await {
                self.door.0.audit.turned_away(self.peer.as_ref(), path, &status);
                return status;
            }
        }
    }
}

/// The caller that a call was let in for. A call without one did not come by the door: it is
/// nobody's.
pub(super) fn caller(extensions: &Extensions) -> Result<&Caller, Status> {
    extensions.get::<Caller>().ok_or_else(|| caller_refused(Refusal::Unknown))
}

/// What it was let in by.
pub(super) fn pass(extensions: &Extensions) -> Result<Pass, Status> {
    extensions.get::<Pass>().cloned().ok_or_else(|| caller_refused(Refusal::Unknown))
}

/// The token of `authorization: Bearer TOKEN`: RFC 6750, 2.1. Another scheme is none of ours.
fn bearer(headers: &HeaderMap) -> Option<Box<[u8]>> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii().into())
}

impl<S> Service<Request<Body>> for Admitted<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        // The one that was asked whether it is ready is the one to call.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        if (self.is_open)(&self.door.0.entry.borrow()) {
            return Box::pin(async move { inner.call(request).await });
        }
        let mut pass = self.door.pass(request.extensions().get(), request.headers());
        Box::pin(async move {
            match pass.judge().await {
                Ok(caller) => {
                    request.extensions_mut().insert(caller);
                    request.extensions_mut().insert(pass);
                    inner.call(request).await
                }
                Err(refusal) => {
                    let status = caller_refused(refusal);
                    let path = request.uri().path();
                    pass.door.0.audit.turned_away(pass.peer.as_ref(), path, &status);
                    Ok(status.into_http())
                }
            }
        })
    }
}

impl<S: NamedService> NamedService for Admitted<S> {
    const NAME: &'static str = S::NAME;
}

#[cfg(test)]
mod tests {
    use super::bearer;
    use http::HeaderMap;

    #[test]
    fn tokens_in_headers() {
        for (value, token) in [
            ("Bearer abc", Some("abc")),
            ("bearer abc", Some("abc")),
            ("Bearer   abc ", Some("abc")),
            ("Bearer ", Some("")),
            ("Bearer", None),
            ("Bearerabc", None),
            ("Basic abc", None),
            ("abc", None),
            ("", None),
        ] {
            let headers: HeaderMap =
                [(http::header::AUTHORIZATION, value.parse().expect("a value"))]
                    .into_iter()
                    .collect();
            assert_eq!(bearer(&headers).as_deref(), token.map(str::as_bytes), "{value:?}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }
}
