//! Check of the addresses that an HTTP client connects to. A name is resolved here for each connection,
//! so the checked address is the connected address, and a name cannot change to a machine of the local
//! network between the check and the connection.

use super::http_client::http_client_builder;
use caproot_core::net::endpoint::is_loopback_host;
use caproot_core::net::routable::check_globally_routable;
use caproot_core::text::SentenceResult as _;
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::sync::Arc;
use tokio::net::lookup_host;

/// Addresses that a client may connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressPolicy {
    /// Globally routable addresses.
    Global,
    /// All addresses.
    Any,
}

/// Address of a server that may be connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    pub url: Url,
    pub origin: String,
    /// The program may allow addresses that are not globally routable.
    pub policy: AddressPolicy,
}

impl AddressPolicy {
    /// Checks the host of a URL if the host is an address; names are checked when they are resolved.
    /// Errors are the end of a sentence.
    pub fn check_host(self, url: &Url) -> Result<(), String> {
        let host = url.host_str().unwrap_or_default();
        match host.trim_start_matches('[').trim_end_matches(']').parse() {
            Ok(address) if self == Self::Global => check_globally_routable(address),
            _ => Ok(()),
        }
    }
}

/// Returns the builder of a client for a URL that connects only to addresses of a policy. The client
/// follows no redirects, because the host of a redirect can be an address, which no resolver sees. A
/// caller that follows redirects checks each URL with [`AddressPolicy::check_host`]. Proxies of the
/// environment are not used: a proxy would connect to addresses that are not checked.
pub async fn checked_client_builder(
    url: &Url,
    policy: AddressPolicy,
) -> Result<reqwest::ClientBuilder, String> {
    policy.check_host(url)?;
    let builder = http_client_builder(url.as_str()).await?;
    Ok(builder.no_proxy().dns_resolver(Arc::new(policy)))
}

/// Returns no address that the policy refuses.
impl Resolve for AddressPolicy {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = *self;
        Box::pin(async move {
            let host = name.as_str();
            let addresses: Vec<_> = lookup_host((host, 0)).await?.collect();

            if policy == Self::Global {
                // One refused address refuses the name: it may be an attempt to reach a machine
                // behind a firewall.
                for address in &addresses {
                    check_globally_routable(address.ip())
                        .context(format_args!("{host} is refused"))?;
                }
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// Returns the address of a declared URL. Errors are the end of a sentence about the server.
pub fn parse_server_url(text: &str, private_origins: &[String]) -> Result<ServerAddress, String> {
    if text.contains(['{', '}', '<', '>', '$'])
        || text.contains(|c: char| c.is_whitespace() || c.is_control())
    {
        return Err("its URL has a placeholder or a part that is withheld".to_owned());
    }
    let url = Url::parse(text).context("its URL is invalid")?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("its URL has user information".to_owned());
    }

    let origin = url.origin().ascii_serialization();
    let host = url.host_str().ok_or("its URL has no host")?;
    let allows_private = private_origins
        .iter()
        .any(|allowed| Url::parse(allowed).is_ok_and(|allowed| allowed.origin() == url.origin()));
    match url.scheme() {
        "https" => {}
        "http" if allows_private && is_loopback_host(host) => {}
        _ => return Err("its URL must use https".to_owned()),
    }

    let policy = if allows_private {
        AddressPolicy::Any
    } else {
        AddressPolicy::Global
    };
    policy.check_host(&url)?;
    Ok(ServerAddress {
        url,
        origin,
        policy,
    })
}

#[cfg(test)]
mod tests {
    use super::{AddressPolicy, checked_client_builder, parse_server_url};
    use crate::network::http_client::root_cause;

    #[test]
    fn only_safe_urls_are_used() {
        for (url, part) in [
            ("http://a.example/mcp", "must use https"),
            ("ftp://a.example/mcp", "must use https"),
            ("https://user@a.example/mcp", "user information"),
            ("https://:x@a.example/mcp", "user information"),
            ("https://${HOST}/mcp", "placeholder"),
            ("https://a.example/mcp?key=<redacted>", "placeholder"),
            ("https://a.example/{tenant}", "placeholder"),
            ("https://127.0.0.1/mcp", "not a globally routable"),
            ("https://2130706433/mcp", "not a globally routable"),
            ("https://[::ffff:10.0.0.1]/mcp", "not a globally routable"),
            ("https://169.254.169.254/", "not a globally routable"),
            ("https://0.0.0.0/", "not a globally routable"),
            ("http://127.0.0.1:1/mcp", "must use https"),
            ("mcp", "invalid"),
        ] {
            let error = parse_server_url(url, &[]).expect_err(url);
            assert!(error.contains(part), "{url}: {error}");
        }

        let allowed = [
            "http://127.0.0.1:1".to_owned(),
            "http://a.example".to_owned(),
        ];
        let address = parse_server_url("http://127.0.0.1:1/mcp", &allowed).expect("allowed");
        assert_eq!(address.origin, "http://127.0.0.1:1");
        assert_eq!(address.policy, AddressPolicy::Any);
        assert!(parse_server_url("http://127.0.0.1:2/mcp", &allowed).is_err());
        assert!(parse_server_url("http://a.example/mcp", &allowed).is_err());
        let address = parse_server_url("https://A.example:443/mcp", &allowed).expect("global");
        assert_eq!(address.origin, "https://a.example");
        assert_eq!(address.policy, AddressPolicy::Global);
    }

    #[tokio::test]
    async fn only_addresses_of_the_policy_are_connected_to() {
        let listener = tokio::net::TcpListener::bind("127.77.96.1:0").await;
        let listener = listener.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let local = format!("http://localhost:{port}").parse().expect("a URL");
        let literal = format!("http://127.77.96.1:{port}").parse().expect("a URL");

        let refused = checked_client_builder(&literal, AddressPolicy::Global).await;
        let reason = refused.expect_err("a loopback address");
        assert_eq!(reason, "127.77.96.1 is not a globally routable address");

        // A name is refused when it is resolved.
        let builder = checked_client_builder(&local, AddressPolicy::Global).await;
        let client = builder.expect("a name").build().expect("a client");
        let error = client.get(local).send().await.expect_err("a loopback name");
        let reason = root_cause(&error);
        assert!(reason.starts_with("localhost is refused: "), "{reason}");

        let builder = checked_client_builder(&literal, AddressPolicy::Any).await;
        let client = builder.expect("any address").build().expect("a client");
        let request = tokio::spawn(client.get(literal).send());
        listener.accept().await.expect("a connection");
        request.abort();
    }
}
