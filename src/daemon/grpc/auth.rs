//! Authentication layer. Attaches the authenticated [`Caller`] to each request, or rejects the
//! request.

mod callers;
mod tokens;

pub use callers::{AuthDenial, Caller, CallerPolicy, CallerRule, SanPattern, TokenCheck};
pub use tokens::{RuleTokens, TokenDigest, TokenFile, TokenFileError, exposed_group};

use super::audit_log::AuditLog;
use super::errors::caller_denied;
use crate::daemon::model::{AccessScope, PeerIdentity};
use caproot_core::sync::{BlockingError, run_blocking};
use http::header::AUTHORIZATION;
use http::{HeaderMap, Request, Response};
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::{Semaphore, watch};
use tonic::body::Body;
use tonic::codegen::BoxFuture;
use tonic::server::NamedService;
use tonic::{Extensions, Status};
use tower::Service;

/// Maximum number of concurrent token comparisons. If a token file hangs, it blocks at most this
/// many threads, and only calls with a token wait.
const MAX_TOKEN_COMPARISONS: usize = 8;

/// Factory of authenticated services. All clones share the same rules.
#[derive(Debug, Clone)]
pub struct AuthLayer(Arc<AuthInner>);

#[derive(Debug)]
struct AuthInner {
    /// Active rules. A watch channel keeps only the latest value, so it is never full.
    rules: watch::Sender<Arc<AuthRules>>,
    comparison_permits: Semaphore,
    audit_log: AuditLog,
}

/// Authentication rules.
#[derive(Debug)]
pub struct AuthRules {
    /// Rules for callers and their tokens. `None`: every client that can connect may call
    /// everything.
    pub callers: Option<(CallerPolicy, Arc<RuleTokens>)>,
    /// Whether the health service needs no authentication.
    pub public_health: bool,
    /// Whether the reflection service needs no authentication.
    pub public_reflection: bool,
}

/// Service that requires authentication.
#[derive(Debug, Clone)]
pub struct AuthService<S> {
    auth: AuthLayer,
    /// Whether the rules make this service public.
    is_public: fn(&AuthRules) -> bool,
    inner: S,
}

/// Identity proofs of a caller, kept to authenticate the caller again after the rules change.
#[derive(Debug, Clone)]
pub struct CallerCredentials {
    auth: AuthLayer,
    peer: Option<PeerIdentity>,
    token: Option<TokenDigest>,
    /// Active rules. Rules that are newer than the last authentication count as changed.
    rules: watch::Receiver<Arc<AuthRules>>,
}

/// Authentication of one call. The load limit leaves it in the first call of a connection for
/// [`AuthService`].
#[derive(Debug, Clone)]
pub struct Authentication {
    credentials: CallerCredentials,
    pub(super) outcome: Result<Caller, AuthDenial>,
}

impl AuthLayer {
    /// Creates a layer with these rules.
    #[must_use]
    pub fn new(rules: AuthRules, audit_log: AuditLog) -> Self {
        Self(Arc::new(AuthInner {
            rules: watch::Sender::new(Arc::new(rules)),
            comparison_permits: Semaphore::new(MAX_TOKEN_COMPARISONS),
            audit_log,
        }))
    }

    /// Replaces the rules. Open streams authenticate their callers again.
    pub fn replace_rules(&self, rules: AuthRules) {
        self.0.rules.send_replace(Arc::new(rules));
    }

    /// Adds authentication to a service, unless the rules make the service public.
    pub fn wrap_service<S>(&self, is_public: fn(&AuthRules) -> bool, inner: S) -> AuthService<S> {
        AuthService {
            auth: self.clone(),
            is_public,
            inner,
        }
    }

    /// Returns the credentials of a request.
    #[must_use]
    pub fn request_credentials(
        &self,
        peer: Option<&PeerIdentity>,
        headers: &HeaderMap,
    ) -> CallerCredentials {
        CallerCredentials {
            auth: self.clone(),
            peer: peer.cloned(),
            token: bearer_token(headers).map(|token| TokenDigest::new(&token)),
            rules: self.0.rules.subscribe(),
        }
    }

    /// Authenticates the caller of a request. The future borrows nothing of the request, whose body
    /// threads cannot share.
    pub fn authenticate(
        &self,
        peer: Option<&PeerIdentity>,
        headers: &HeaderMap,
    ) -> impl Future<Output = Authentication> + Send + use<> {
        let mut credentials = self.request_credentials(peer, headers);
        async move {
            let outcome = credentials.authenticate().await;
            Authentication {
                credentials,
                outcome,
            }
        }
    }
}

impl CallerCredentials {
    /// Authenticates the caller by the active rules.
    pub(super) async fn authenticate(&mut self) -> Result<Caller, AuthDenial> {
        let rules = self.rules.borrow_and_update().clone();
        let Some((callers, tokens)) = &rules.callers else {
            return Ok(Caller::default());
        };
        let Some(peer) = &self.peer else {
            return Err(AuthDenial::Unauthenticated);
        };
        let Some(digest) = self.token.clone() else {
            return callers.authorize(peer, TokenCheck::Missing);
        };

        // The semaphore is never closed: it lives as long as `self`.
        let Ok(_permit) = self.auth.0.comparison_permits.acquire().await else {
            return Err(AuthDenial::Unauthenticated);
        };
        let rule_tokens = tokens.clone();
        let compared = run_blocking(move || rule_tokens.matching_rules(&digest)).await;

        let matching = match compared {
            Ok(matching) => matching,
            Err(BlockingError::NoThread(_)) => return Err(AuthDenial::NoThread),
            Err(error) => {
                tracing::error!(%error, "internal error: a token comparison panicked");
                Vec::new()
            }
        };
        callers.authorize(peer, TokenCheck::Presented(&matching))
    }

    /// Whether the rules changed since the last authentication.
    pub(super) fn rules_changed(&self) -> bool {
        self.rules.has_changed().unwrap_or_default()
    }

    /// Waits until the rules change.
    pub(super) async fn wait_for_new_rules(&self) {
        if self.rules.clone().changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until new rules deny the caller. Records the denial in the audit log and returns its
    /// status.
    pub(super) async fn wait_until_denied(mut self, path: &str) -> Status {
        loop {
            // The sender is gone, so the daemon is stopping.
            if self.rules.changed().await.is_err() {
                return super::errors::shutting_down();
            }
            if let Err(denial) = self.authenticate().await {
                let status = caller_denied(denial);
                let log = &self.auth.0.audit_log;
                log.record_rejected_call(self.peer, path, &status);
                return status;
            }
        }
    }
}

/// Returns the access scope of the authenticated caller of a request.
pub fn caller_access_scope(extensions: &Extensions) -> Result<Arc<AccessScope>, Status> {
    authenticated(extensions).map(|caller: Caller| caller.access_scope)
}

/// Returns the caller or the credentials of a request. A request without them bypassed this layer and
/// is denied.
pub fn authenticated<T: Clone + Send + Sync + 'static>(
    extensions: &Extensions,
) -> Result<T, Status> {
    let known = extensions.get().cloned();
    known.ok_or_else(|| caller_denied(AuthDenial::Unauthenticated))
}

/// Returns the token of `authorization: Bearer TOKEN` (RFC 6750, 2.1). Other schemes are ignored.
fn bearer_token(headers: &HeaderMap) -> Option<Box<[u8]>> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(b"Bearer ".len())?;
    scheme
        .eq_ignore_ascii_case(b"Bearer ")
        .then(|| token.trim_ascii().into())
}

impl<S> Service<Request<Body>> for AuthService<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Response<Body>, Infallible>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if (self.is_public)(&self.auth.0.rules.borrow()) {
            return Box::pin(self.inner.call(request));
        }

        // Call the instance that was polled for readiness, not its clone.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let auth = self.auth.clone();
        Box::pin(async move {
            let Authentication {
                credentials,
                outcome,
            } = if let Some(done) = request.extensions_mut().remove() {
                done
            } else {
                let peer = request.extensions().get();
                let authenticating = auth.authenticate(peer, request.headers());
                authenticating.await
            };
            match outcome {
                Ok(caller) => {
                    request.extensions_mut().insert(caller);
                    request.extensions_mut().insert(credentials);
                    inner.call(request).await
                }
                Err(denial) => {
                    let status = caller_denied(denial);
                    let path = request.uri().path();
                    let log = &auth.0.audit_log;
                    log.record_rejected_call(credentials.peer, path, &status);
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
    fn bearer_token_is_parsed_from_header() {
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
            assert_eq!(
                bearer_token(&headers).as_deref(),
                token.map(str::as_bytes),
                "{value:?}"
            );
        }
        assert_eq!(bearer_token(&HeaderMap::new()), None);
    }
}
