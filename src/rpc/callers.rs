//! The door's keeper: every call comes by here before it is looked at, and goes on with the caller
//! that it is from, or not at all. Leaves the rules to `domain::callers`, and what a caller may see to
//! the keeper of its bound.

use super::audit::Audit;
use super::errors::caller_refused;
use crate::bearer::Tokens;
use crate::domain::callers::{Refusal, Token};
use crate::domain::{Caller, Callers, Peer};
use http::header::AUTHORIZATION;
use http::{HeaderMap, Request, Response};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::Semaphore;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::{Extensions, Status};
use tower::Service;

/// Tokens that are compared at once: should their files hang, the calls that show one do, and no more
/// threads than these.
const MAX_COMPARED: usize = 8;

/// Lets callers in. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Admission(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// None where whoever can connect may ask for everything.
    rules: Option<(Callers, Arc<Tokens>)>,
    comparing: Semaphore,
    audit: Audit,
}

/// A service behind the door.
#[derive(Debug, Clone)]
pub struct Admitted<S> {
    door: Admission,
    inner: S,
}

impl Admission {
    /// A door with rules, or one that is open.
    #[must_use]
    pub fn new(rules: Option<(Callers, Tokens)>, audit: Audit) -> Self {
        let rules = rules.map(|(callers, tokens)| (callers, Arc::new(tokens)));
        Self(Arc::new(Inner { rules, comparing: Semaphore::new(MAX_COMPARED), audit }))
    }

    /// Puts a service behind the door.
    pub fn guard<S>(&self, inner: S) -> Admitted<S> {
        Admitted { door: self.clone(), inner }
    }

    /// Who is calling, at the start of a call.
    async fn admit(&self, peer: Option<&Peer>, headers: &HeaderMap) -> Result<Caller, Refusal> {
        let Some((callers, tokens)) = &self.0.rules else { return Ok(Caller::default()) };
        let Some(peer) = peer else { return Err(Refusal::Unknown) };
        let Some(token) = bearer(headers) else { return callers.judge(peer, Token::Missing) };
        // Closed never: the semaphore lives as long as this.
        let Ok(_turn) = self.0.comparing.acquire().await else { return Err(Refusal::Unknown) };
        let tokens = tokens.clone();
        let whose = tokio::task::spawn_blocking(move || tokens.whose(&token)).await;
        let whose = whose.unwrap_or_else(|panic| {
            tracing::error!(%panic, "comparing a token ended by a defect");
            Vec::new()
        });
        callers.judge(peer, Token::Given(&whose))
    }
}

/// The caller that a call was let in for. A call without one did not come by the door: it is
/// nobody's.
pub(super) fn caller(extensions: &Extensions) -> Result<&Caller, Status> {
    extensions.get::<Caller>().ok_or_else(|| caller_refused(Refusal::Unknown))
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
        let door = self.door.clone();
        // The one that was asked whether it is ready is the one to call.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(async move {
            let peer = request.extensions().get::<Peer>();
            match door.admit(peer, request.headers()).await {
                Ok(caller) => {
                    request.extensions_mut().insert(caller);
                    inner.call(request).await
                }
                Err(refusal) => {
                    let status = caller_refused(refusal);
                    door.0.audit.turned_away(peer, request.uri().path(), &status);
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
