//! Check of the addresses that an HTTP client connects to. A name is resolved here for each connection,
//! so the checked address is the connected address, and a name cannot change to a machine of the local
//! network between the check and the connection.

use super::http_client::http_client_builder;
use caproot_core::net::routable::check_globally_routable;
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

impl AddressPolicy {
    /// Checks the host of a URL if the host is an address; names are checked when they are resolved.
    /// Errors are the end of a sentence.
    pub fn check_host(self, url: &Url) -> Result<(), String> {
        let host = url.host_str().unwrap_or_default();
        let address = host.trim_start_matches('[').trim_end_matches(']').parse();
        match (self, address) {
            (Self::Global, Ok(address)) => check_globally_routable(address),
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
    Ok(builder
        .no_proxy()
        .dns_resolver(Arc::new(CheckedResolver { policy })))
}

/// Resolver that returns no address that the policy refuses.
struct CheckedResolver {
    policy: AddressPolicy,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = self.policy;
        Box::pin(async move {
            let host = name.as_str();
            let addresses: Vec<_> = lookup_host((host, 0)).await?.collect();

            if policy == AddressPolicy::Global {
                // One refused address refuses the name: it may be an attempt to reach a machine
                // behind a firewall.
                for address in &addresses {
                    check_globally_routable(address.ip())
                        .map_err(|reason| format!("{host} is refused: {reason}"))?;
                }
            }
            let addresses: Addrs = Box::new(addresses.into_iter());
            Ok(addresses)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{AddressPolicy, checked_client_builder};
    use crate::session::http_client::root_cause;

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
