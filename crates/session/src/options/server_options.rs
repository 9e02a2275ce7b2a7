//! Options of the MCP servers of plugins: which servers a session uses, and the values that their
//! declarations withhold.

use crate::network::authorization::ServerAuthorization;
use crate::skills::selection::SelectionError;
use crate::skills::skill_source::SourceKind;
use caproot_core::proto::caproot::v1::{McpServer, Plugin};
use caproot_core::text::quote_value;
use caproot_core::wire::handle::format_server_handle;
use futures_util::future::BoxFuture;
use std::fmt;
use std::sync::Arc;

/// HTTP MCP servers of plugins whose tools a session has, for
/// [`SessionOptions::mcp_servers`](crate::SessionOptions::mcp_servers).
///
/// ```
/// use caproot_session::{McpServerChoice, McpServerOptions, ServerValues};
///
/// let tracker = "https://mcp.tracker.example";
/// let options = McpServerOptions {
///     servers: McpServerChoice::Named(vec!["skill://tools/issues#tracker".to_owned()]),
///     // A plugin's author chooses server and name, so the origin decides.
///     values: ServerValues::new(move |request| async move {
///         let is_token = request.origin == tracker && request.name == "TRACKER_TOKEN";
///         is_token.then(|| "secret".to_owned())
///     }),
///     ..McpServerOptions::default()
/// };
/// # drop(options);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct McpServerOptions {
    /// Servers that the session uses; none by default.
    pub servers: McpServerChoice,
    /// Values that declarations withhold; no values by default.
    pub values: ServerValues,
    /// Function that gives `Authorization` for servers that answer 401 and whose declarations have no
    /// credential; no values by default.
    pub authorize: ServerAuthorization,
    /// Origins that may have addresses that are not globally routable, such as
    /// `https://mcp.internal.example`; none by default. Only these may use `http`, on a loopback
    /// address, such as `http://127.0.0.1:8080`.
    pub private_origins: Vec<String>,
}

/// MCP servers of plugins that a session uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum McpServerChoice {
    /// No server.
    #[default]
    None,
    /// All servers of the session's plugins.
    All,
    /// Each text chooses one server: by its handle, such as `skill://a/p#tracker`, or by
    /// `PLUGIN/SERVER` or `PLUGIN` if one server fits. A text that fits several servers chooses none.
    Named(Vec<String>),
}

/// Function that gives the values of headers that a declaration withholds: secrets, and variables of
/// the host's environment. A value is asked for when a session starts, and is sent only to the origin
/// of its request.
#[derive(Clone, Default)]
pub struct ServerValues(Option<ServerValueFunction>);

type ServerValueFunction =
    Arc<dyn Fn(ServerValueRequest) -> BoxFuture<'static, Option<String>> + Send + Sync>;

/// Value that a declaration withholds. A plugin's author chooses all texts except the source and the
/// package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerValueRequest {
    /// Kind of the plugin's source.
    pub source_kind: SourceKind,
    /// Id of the plugin's source; the environment of an executor.
    pub source_id: String,
    /// Handle of the plugin.
    pub package: String,
    /// Name of the plugin.
    pub plugin: String,
    /// Name of the server.
    pub server: String,
    /// Origin that gets the value, such as `https://mcp.tracker.example`.
    pub origin: String,
    /// Variable that the declaration names, such as `TRACKER_TOKEN`, or the name of the header.
    pub name: String,
}

impl McpServerOptions {
    /// Checks that each private origin is an origin.
    pub(crate) fn check(&self) -> Result<(), SelectionError> {
        let invalid: Vec<_> = self
            .private_origins
            .iter()
            .filter(|origin| !is_origin(origin))
            .map(|origin| {
                format!(
                    "the private origin {} is not an origin: expected a scheme, a host and a port \
                     alone, such as https://mcp.internal.example",
                    quote_value(origin)
                )
            })
            .collect();
        if invalid.is_empty() {
            Ok(())
        } else {
            Err(SelectionError(invalid))
        }
    }
}

fn is_origin(text: &str) -> bool {
    let url: Option<http::Uri> = text.parse().ok();
    url.is_some_and(|url| {
        let path = url.path_and_query().map_or("/", |path| path.as_str());
        let authority = url.authority().map_or("@", |authority| authority.as_str());
        matches!(url.scheme_str(), Some("http" | "https"))
            && path == "/"
            && !authority.contains('@')
    })
}

/// Returns whether a text of [`McpServerChoice::Named`] fits a server: its handle, `PLUGIN/SERVER` or
/// `PLUGIN`. No plugin's name has a slash.
pub(crate) fn fits_server(text: &str, plugin: &Plugin, server: &McpServer) -> bool {
    if text.contains("://") {
        return text == format_server_handle(&plugin.package, &server.name);
    }
    match text.split_once('/') {
        Some((name, server_name)) => name == plugin.name && server_name == server.name,
        None => text == plugin.name,
    }
}

impl ServerValues {
    /// Returns the values of a function. The function returns `None` for a value that the server must
    /// not get.
    #[must_use]
    pub fn new<F, Running>(function: F) -> Self
    where
        F: Fn(ServerValueRequest) -> Running + Send + Sync + 'static,
        Running: Future<Output = Option<String>> + Send + 'static,
    {
        Self(Some(Arc::new(move |request| Box::pin(function(request)))))
    }

    /// Returns a value, without a time limit.
    pub(crate) async fn request(&self, request: ServerValueRequest) -> Option<String> {
        match &self.0 {
            Some(function) => function(request).await,
            None => None,
        }
    }
}

impl fmt::Debug for ServerValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServerValues").finish_non_exhaustive()
    }
}

/// Two values are equal if they have the same function.
impl PartialEq for ServerValues {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        }
    }
}

impl Eq for ServerValues {}
