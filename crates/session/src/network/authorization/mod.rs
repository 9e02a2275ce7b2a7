//! `Authorization` on demand: the program gives the header of an HTTP MCP server once the server has
//! answered 401. caproot stores no credential and follows no link of the server.

mod authorizer;
mod challenge;

pub use authorizer::Authorizer;

use futures_util::future::BoxFuture;
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

/// Function that gives `Authorization` for HTTP MCP servers whose declarations have no credential. The
/// function is called after the server answered 401, once at a time for each server, and may take 15
/// minutes. The value is sent only to the origin of its request. It is asked for again after the server
/// answers 401 to a value that it accepted before. A value that the server refuses at once is asked for
/// once more, and then only after [`Session::retry_servers`](crate::Session::retry_servers).
///
/// ```
/// use caproot_session::ServerAuthorization;
///
/// // The author of the server chooses all texts except the origin, so the origin decides.
/// let authorize = ServerAuthorization::new(|request| async move {
///     let is_tracker = request.origin == "https://mcp.tracker.example";
///     Ok(is_tracker.then(|| "Bearer secret".to_owned()))
/// });
/// # drop(authorize);
/// ```
#[derive(Clone, Default)]
pub struct ServerAuthorization(Option<AuthorizationFunction>);

type AuthorizationOutcome = Result<Option<String>, AuthorizationFailed>;
type AuthorizationFunction =
    Arc<dyn Fn(AuthorizationRequest) -> BoxFuture<'static, AuthorizationOutcome> + Send + Sync>;

/// Failure of a [`ServerAuthorization`]. The program logs the reason: a reason can have a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the program cannot give `Authorization`")]
pub struct AuthorizationFailed;

/// Request of the value of `Authorization`, such as `Bearer …`. The plugin's author and the server choose
/// all texts except the source and the package.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuthorizationRequest {
    /// Kind of the source: `executor` or `local` of a plugin's server, `mcp` of another server.
    pub source_kind: String,
    /// Id of the source: the environment of an executor, or the name of an MCP server.
    pub source_id: String,
    /// Handle of the plugin; `null` if no plugin declares the server.
    pub package: Option<String>,
    /// Name of the plugin; `null` if no plugin declares the server.
    pub plugin: Option<String>,
    /// Name of the server.
    pub server: String,
    /// URL of the server: the resource that the token is for.
    pub url: String,
    /// Origin that gets the value, such as `https://mcp.tracker.example`.
    pub origin: String,
    /// URL of the protected resource metadata (RFC 9728), as the server names it. The server is not
    /// trusted: the host can resolve to a machine of your network. `null` if the server names no URL.
    pub resource_metadata: Option<String>,
    /// Scopes that the server asks for, at most 64.
    pub scopes: Vec<String>,
    /// Error code of the server, such as `invalid_token`; `null` if the server names no code.
    pub error: Option<String>,
}

impl ServerAuthorization {
    /// Returns the values of a function. The function returns `None` if the server must get no value.
    #[must_use]
    pub fn new<F, Running>(function: F) -> Self
    where
        F: Fn(AuthorizationRequest) -> Running + Send + Sync + 'static,
        Running: Future<Output = AuthorizationOutcome> + Send + 'static,
    {
        Self(Some(Arc::new(move |request| Box::pin(function(request)))))
    }
}

impl fmt::Debug for ServerAuthorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServerAuthorization").finish_non_exhaustive()
    }
}

/// Two values are equal if they have the same function.
impl PartialEq for ServerAuthorization {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        }
    }
}

impl Eq for ServerAuthorization {}
