//! The door's keeper: every call comes by here before it is looked at, and goes on with the caller
//! that it is from, or not at all. Leaves the rules to `domain::callers`, and what a caller may see to
//! the keeper of its bound.

use super::audit_log::AuditLog;
use super::errors::caller_denied;
use crate::bearer::{RuleTokens, TokenDigest};
use crate::domain::callers::{AuthDenial, TokenCheck};
use crate::domain::{Caller, CallerPolicy, PeerIdentity};
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
const MAX_TOKEN_COMPARISONS: usize = 8;

/// Lets callers in. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct AuthLayer(Arc<AuthInner>);

#[derive(Debug)]
struct AuthInner {
    /// Those in force. A watch holds only the latest, so it is never full.
    rules: watch::Sender<Arc<AuthRules>>,
    comparison_permits: Semaphore,
    audit: AuditLog,
}

/// The rules at the door.
#[derive(Debug)]
pub struct AuthRules {
    /// None where whoever can connect may ask for everything.
    pub callers: Option<(CallerPolicy, Arc<RuleTokens>)>,
    /// Whether health is told to whoever can connect, all the same.
    pub public_health: bool,
    /// The same of reflection.
    pub public_reflection: bool,
}

/// A service behind the door.
#[derive(Debug, Clone)]
pub struct AuthService<S> {
    auth: AuthLayer,
    /// Whether it is for whoever can connect.
    is_public: fn(&AuthRules) -> bool,
    inner: S,
}

/// What somebody was let in by, for whoever stays while the rules change.
#[derive(Debug, Clone)]
pub struct CallerCredentials {
    auth: AuthLayer,
    peer: Option<PeerIdentity>,
    token: Option<TokenDigest>,
    /// Those by which it was let in, until they are looked at again.
    rules: watch::Receiver<Arc<AuthRules>>,
}

impl AuthLayer {
    /// A door with these rules.
    #[must_use]
    pub fn new(entry: AuthRules, audit: AuditLog) -> Self {
        let entry = watch::Sender::new(Arc::new(entry));
        Self(Arc::new(AuthInner {
            rules: entry,
            comparison_permits: Semaphore::new(MAX_TOKEN_COMPARISONS),
            audit,
        }))
    }

    /// Goes by other rules from now on. Whoever has a stream is judged again.
    pub fn replace_rules(&self, entry: AuthRules) {
        self.0.rules.send_replace(Arc::new(entry));
    }

    /// Puts a service behind the door.
    pub fn wrap_service<S>(&self, inner: S) -> AuthService<S> {
        self.wrap_service_unless(|_| false, inner)
    }

    /// Puts a service behind the door unless the rules leave it open.
    pub fn wrap_service_unless<S>(
        &self,
        is_open: fn(&AuthRules) -> bool,
        inner: S,
    ) -> AuthService<S> {
        AuthService { auth: self.clone(), is_public: is_open, inner }
    }

    /// What somebody shows who knocks.
    #[must_use]
    pub fn request_credentials(
        &self,
        peer: Option<&PeerIdentity>,
        headers: &HeaderMap,
    ) -> CallerCredentials {
        let token = bearer_token(headers).map(|token| TokenDigest::new(&token));
        CallerCredentials {
            auth: self.clone(),
            peer: peer.cloned(),
            token,
            rules: self.0.rules.subscribe(),
        }
    }
}

impl CallerCredentials {
    /// Who that is, by the rules in force.
    async fn authenticate(&mut self) -> Result<Caller, AuthDenial> {
        let entry = self.rules.borrow_and_update().clone();
        let Some((callers, tokens)) = &entry.callers else { return Ok(Caller::default()) };
        let Some(peer) = &self.peer else { return Err(AuthDenial::Unauthenticated) };
        let Some(shown) = self.token.clone() else {
            return callers.authorize(peer, TokenCheck::Missing);
        };
        // Closed never: the semaphore lives as long as this.
        let Ok(_turn) = self.auth.0.comparison_permits.acquire().await else {
            return Err(AuthDenial::Unauthenticated);
        };
        let tokens = tokens.clone();
        let whose = tokio::task::spawn_blocking(move || tokens.matching_rules(&shown)).await;
        let whose = whose.unwrap_or_else(|panic| {
            tracing::error!(%panic, "comparing a token ended by a defect");
            Vec::new()
        });
        callers.authorize(peer, TokenCheck::Presented(&whose))
    }

    /// Whether there are other rules than those by which it was judged.
    pub(super) fn rules_changed(&self) -> bool {
        self.rules.has_changed().unwrap_or_default()
    }

    /// Waits until there are.
    pub(super) async fn wait_for_new_rules(&self) {
        if self.rules.clone().changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Who that is, by rules that were not there before.
    pub(super) async fn reauthenticate(&mut self) -> Result<Caller, Status> {
        self.authenticate().await.map_err(caller_denied)
    }

    /// Waits for rules by which it is let in no more, and says so as to one who knocks.
    pub(super) async fn wait_until_denied(mut self, path: &str) -> Status {
        loop {
            // An error means that the daemon is gone already.
            if self.rules.changed().await.is_err() {
                return super::errors::shutting_down();
            }
            if let Err(status) = self.reauthenticate().await {
                self.auth.0.audit.record_rejected_call(self.peer.as_ref(), path, &status);
                return status;
            }
        }
    }
}

/// The caller that a call was let in for. A call without one did not come by the door: it is
/// nobody's.
pub(super) fn authenticated_caller(extensions: &Extensions) -> Result<&Caller, Status> {
    extensions.get::<Caller>().ok_or_else(|| caller_denied(AuthDenial::Unauthenticated))
}

/// What it was let in by.
pub(super) fn caller_credentials(extensions: &Extensions) -> Result<CallerCredentials, Status> {
    extensions
        .get::<CallerCredentials>()
        .cloned()
        .ok_or_else(|| caller_denied(AuthDenial::Unauthenticated))
}

/// The token of `authorization: Bearer TOKEN`: RFC 6750, 2.1. Another scheme is none of ours.
fn bearer_token(headers: &HeaderMap) -> Option<Box<[u8]>> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii().into())
}

impl<S> Service<Request<Body>> for AuthService<S>
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
        if (self.is_public)(&self.auth.0.rules.borrow()) {
            return Box::pin(async move { inner.call(request).await });
        }
        let mut pass = self.auth.request_credentials(request.extensions().get(), request.headers());
        Box::pin(async move {
            match pass.authenticate().await {
                Ok(caller) => {
                    request.extensions_mut().insert(caller);
                    request.extensions_mut().insert(pass);
                    inner.call(request).await
                }
                Err(refusal) => {
                    let status = caller_denied(refusal);
                    let path = request.uri().path();
                    pass.auth.0.audit.record_rejected_call(pass.peer.as_ref(), path, &status);
                    Ok(status.into_http())
                }
            }
        })
    }
}

impl<S: NamedService> NamedService for AuthService<S> {
    const NAME: &'static str = S::NAME;
}

#[cfg(test)]
mod tests {
    use super::bearer_token;
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
            assert_eq!(bearer_token(&headers).as_deref(), token.map(str::as_bytes), "{value:?}");
        }
        assert_eq!(bearer_token(&HeaderMap::new()), None);
    }
}
